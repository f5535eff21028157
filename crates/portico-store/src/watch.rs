//! One reader of the change log. It holds a position and no buffer, so a slow reader costs no
//! memory.

use std::sync::Arc;

use crate::mirror::{Listener, Mirror, Subscription};
use crate::{Event, ReadError, Revision, WatchError};

/// The changes of a range of keys, in order, from a revision on.
pub struct Watch {
    mirror: Arc<Mirror>,
    prefix: Box<str>,
    position: Revision,
    generation: u64,
    listener: Listener,
}

impl Watch {
    pub(crate) fn open(
        mirror: Arc<Mirror>,
        prefix: &str,
        from: Revision,
    ) -> Result<Self, ReadError> {
        let Subscription {
            watchers,
            generation,
        } = mirror.subscribe(prefix, from)?;
        Ok(Self {
            mirror,
            prefix: prefix.into(),
            position: from,
            generation,
            listener: Listener::of(watchers),
        })
    }

    /// A write is answered only after this watch has asked for more, which says that it has passed
    /// on what it got.
    pub fn before_answers(mut self) -> Self {
        self.listener.confirm();
        self
    }

    /// Waits for what is new, in revision order. A batch never ends inside a revision. Dropping the
    /// future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchError> {
        loop {
            self.listener.forget();
            if self.mirror.is_closed() {
                return Err(WatchError::Closed);
            }
            let batch = self
                .mirror
                .events(&self.prefix, self.position, self.generation)?;
            self.position = batch.position;
            if !batch.events.is_empty() {
                return Ok(batch.events);
            }
            self.listener.listen().await;
        }
    }

    /// Everything up to here, in the whole store, has been seen: a bookmark with this revision is
    /// truthful.
    pub fn position(&self) -> Revision {
        self.mirror
            .seen(&self.prefix, self.position, self.generation)
    }
}
