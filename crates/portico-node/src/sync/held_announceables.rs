//! Addresses to announce, held back until their rules are in the kernel: a node must be able to
//! forward the traffic that it attracts.

use crate::announce::Announceables;
use portico_model::announce::Announceable;
use portico_model::key::ObjectKey;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct HeldAnnounceables {
    waiting: BTreeMap<ObjectKey, Option<Arc<Announceable>>>,
    /// The first announceables have been passed on, even if there were none.
    begun: bool,
}

impl HeldAnnounceables {
    pub(super) fn hold(&mut self, changes: Announceables) {
        self.waiting.extend(changes);
    }

    /// The kernel has everything: returns what may be announced now. The first time there is an
    /// answer even where there is nothing to announce.
    pub(super) fn release(&mut self) -> Option<Announceables> {
        let first = !std::mem::replace(&mut self.begun, true);
        (first || !self.waiting.is_empty())
            .then(|| std::mem::take(&mut self.waiting).into_iter().collect())
    }
}
