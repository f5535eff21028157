//! Ports that changed and are not in the kernel yet.

use portico_model::table::{Change, PortKey, Ports, ServicePort};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Each with what the kernel has.
#[derive(Default)]
pub(super) struct PendingPorts(BTreeMap<PortKey, Option<Arc<ServicePort>>>);

impl PendingPorts {
    /// Adds a change. Of several changes of a port the first says what the kernel has.
    pub(super) fn add(&mut self, change: Change) {
        self.0.entry(change.key).or_insert(change.before);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The changes from what the kernel has to what it should have.
    pub(super) fn changes(&self, ports: &Ports) -> Vec<Change> {
        let change = |(key, before): (&PortKey, &Option<Arc<ServicePort>>)| {
            let after = ports.get(key).cloned();
            (*before != after).then(|| Change {
                key: key.clone(),
                before: before.clone(),
                after,
            })
        };
        self.0.iter().filter_map(change).collect()
    }
}
