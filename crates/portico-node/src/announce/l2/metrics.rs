//! What is counted of layer 2.

use portico_client::metrics::Show;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of layer 2.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(super) members: Gauge,
    pub(super) held: Gauge,
    pub(super) taken: Counter,
    pub(super) released: Counter,
    pub(super) conflicts: Counter,
    pub(super) answers: Counter,
    pub(super) announcements: Counter,
    pub(super) heartbeats_sent: Counter,
    pub(super) heartbeats_received: Counter,
    pub(super) heartbeats_refused: Counter,
}

impl Metrics {
    /// Adds them to the registry.
    pub fn register(&self, registry: &mut Registry) {
        let l2 = registry.sub_registry_with_prefix("layer2");
        l2.show(
            "members",
            "Nodes among which addresses are shared out",
            self.members.clone(),
        );
        l2.show(
            "addresses",
            "Addresses that this node answers for",
            self.held.clone(),
        );
        l2.show(
            "taken",
            "Addresses that became this node's",
            self.taken.clone(),
        );
        l2.show(
            "released",
            "Addresses that this node gave up",
            self.released.clone(),
        );
        l2.show(
            "conflicts",
            "Claims of addresses by who takes no part",
            self.conflicts.clone(),
        );
        l2.show(
            "answers",
            "Answers to ARP requests and neighbour solicitations",
            self.answers.clone(),
        );
        l2.show(
            "announcements",
            "Announcements of addresses",
            self.announcements.clone(),
        );
        l2.show(
            "heartbeats_sent",
            "Heartbeats to other nodes",
            self.heartbeats_sent.clone(),
        );
        l2.show(
            "heartbeats_received",
            "Heartbeats from other nodes",
            self.heartbeats_received.clone(),
        );
        l2.show(
            "heartbeats_refused",
            "Packets that were no heartbeats, or had not our key",
            self.heartbeats_refused.clone(),
        );
    }
}
