//! What there is to announce, held back until it is in the kernel: traffic that a node attracts it
//! must be able to forward.

use crate::announce::Announceables;
use portico_model::announce::Announceable;
use portico_model::table::ServiceName;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub struct Held {
    waiting: BTreeMap<ServiceName, Option<Arc<Announceable>>>,
    /// All that there was at first has been told.
    begun: bool,
}

impl Held {
    pub fn hold(&mut self, changes: Announceables) {
        self.waiting.extend(changes);
    }

    /// The kernel has everything. The first time there is something to tell even if it is nothing.
    pub fn release(&mut self) -> Option<Announceables> {
        let first = !std::mem::replace(&mut self.begun, true);
        (first || !self.waiting.is_empty())
            .then(|| std::mem::take(&mut self.waiting).into_iter().collect())
    }
}
