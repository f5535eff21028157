//! Ports that changed and are not in the kernel yet.

use portico_model::table::{Change, PortKey, Ports, ServicePort};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Each with what the kernel has.
#[derive(Default)]
pub struct PendingPorts(BTreeMap<PortKey, Option<Arc<ServicePort>>>);

impl PendingPorts {
    /// Of several changes of a port the first says what the kernel has.
    pub fn add(&mut self, change: Change) {
        self.0.entry(change.key).or_insert(change.before);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// From what the kernel has to what it should have.
    pub fn changes(&self, ports: &Ports) -> Vec<Change> {
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
