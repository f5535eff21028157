//! Ends flows in the connection tracker whose endpoint is gone, at once or, where nobody else could serve them, after a while.

use crate::sync::Flows;
use portico_dataplane::conntrack::{ABANDONED_AFTER, Conntrack, Stale, check, plan};
use portico_dataplane::thread;
use portico_model::table::{Change, ForwardingTable, PortKey};
use std::collections::VecDeque;
use std::time::Instant;

/// The connection tracker of this node.
pub struct Tracker {
    /// `None` where it cannot be reached; told once.
    conntrack: Option<Conntrack>,
    /// Ports that lost their last endpoint, in the order in which they are due. One port may be in it several times.
    abandoned: VecDeque<(Instant, Vec<PortKey>)>,
}

impl Tracker {
    /// For the network namespace of the calling thread.
    pub fn open() -> Tracker {
        let opened = Conntrack::open();
        if let Err(error) = &opened {
            tracing::warn!(%error, "the connection tracker cannot be reached: UDP flows outlive their endpoints");
        }
        Tracker { conntrack: opened.ok(), abandoned: VecDeque::new() }
    }

    fn end(&mut self, stale: &Stale) -> usize {
        let Some(conntrack) = self.conntrack.as_mut().filter(|_| !stale.is_empty()) else { return 0 };
        // It looks at all that there are.
        thread::run_as_others();
        conntrack.end(stale).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot end flows whose endpoint is gone");
            0
        })
    }
}

impl Flows for Tracker {
    fn changed(&mut self, changes: &[Change], table: &ForwardingTable, now: Instant) -> usize {
        let mut stale = plan(changes, &table.rules);
        let abandoned = std::mem::take(&mut stale.abandoned);
        if !abandoned.is_empty() {
            self.abandoned.push_back((now + ABANDONED_AFTER, abandoned));
        }
        self.end(&stale)
    }

    fn check(&mut self, table: &ForwardingTable) -> usize {
        self.end(&check(table, table.ports.keys()))
    }

    fn check_due(&mut self, table: &ForwardingTable, now: Instant) -> usize {
        let mut ended = 0;
        while self.due().is_some_and(|due| due <= now) {
            let Some((_, ports)) = self.abandoned.pop_front() else { break };
            ended += self.end(&check(table, &ports));
        }
        ended
    }

    fn due(&self) -> Option<Instant> {
        self.abandoned.front().map(|(due, _)| *due)
    }
}
