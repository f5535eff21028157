//! Changes that wait for a speaker that announces them. A slow speaker delays nothing: what changes
//! again meanwhile is sent once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use tokio::sync::mpsc;

/// What addresses have now, or no more.
type Changes<V> = Vec<(IpAddr, Option<V>)>;

pub(super) struct Outbox<V> {
    /// `None` until the speaker is connected.
    sender: Option<mpsc::Sender<Changes<V>>>,
    waiting: BTreeMap<IpAddr, Option<V>>,
    /// The first ones, which are all that there are, were sent.
    begun: bool,
}

impl<V> Default for Outbox<V> {
    fn default() -> Self {
        Self {
            sender: None,
            waiting: BTreeMap::new(),
            begun: false,
        }
    }
}

impl<V> Outbox<V> {
    pub(super) fn put(&mut self, changes: Changes<V>) {
        self.waiting.extend(changes);
        if !self.begun {
            self.waiting.retain(|_, now| now.is_some());
        }
    }

    /// Connects the speaker that the changes go to.
    pub(super) fn connect(&mut self, sender: mpsc::Sender<Changes<V>>) {
        self.sender = Some(sender);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.sender.is_some()
    }

    /// Sends what waits, once there is something and room for it. Nothing is lost if it is dropped
    /// half way.
    pub(super) async fn deliver(&mut self) {
        if let Some(sender) = &self.sender
            && (!self.begun || !self.waiting.is_empty())
            && let Ok(room) = sender.reserve().await
        {
            room.send(std::mem::take(&mut self.waiting).into_iter().collect());
            self.begun = true;
            return;
        }
        // Without changes, or without a speaker, there is nothing to send.
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn the_first_are_all_and_then_each_change_comes_once() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut outbox = Outbox::default();
        outbox.put(vec![(ip(1), Some('a')), (ip(2), Some('b'))]);
        outbox.put(vec![(ip(1), None), (ip(3), Some('c'))]);
        assert_eq!(outbox.deliver().now_or_never(), None, "nobody is there");
        outbox.connect(sender);
        assert_eq!(outbox.deliver().now_or_never(), Some(()));
        outbox.put(vec![(ip(2), None)]);
        assert_eq!(outbox.deliver().now_or_never(), None, "there is no room");
        outbox.put(vec![(ip(2), Some('d')), (ip(3), None)]);
        assert_eq!(
            receiver.try_recv().unwrap(),
            [(ip(2), Some('b')), (ip(3), Some('c'))]
        );
        assert_eq!(outbox.deliver().now_or_never(), Some(()));
        assert_eq!(
            receiver.try_recv().unwrap(),
            [(ip(2), Some('d')), (ip(3), None)]
        );
        assert_eq!(outbox.deliver().now_or_never(), None, "nothing waits");
    }

    #[test]
    fn that_there_is_nothing_is_told_too() {
        let (sender, mut receiver) = mpsc::channel::<Changes<char>>(1);
        let mut outbox = Outbox::default();
        outbox.connect(sender);
        assert_eq!(outbox.deliver().now_or_never(), Some(()));
        assert_eq!(receiver.try_recv().unwrap(), []);
    }
}
