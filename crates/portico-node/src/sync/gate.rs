//! When enough is known to install a first table: what an earlier process left in the kernel must
//! not be replaced by half of what there is.

use crate::objects::Kind;
use std::time::{Duration, Instant};

/// Without its Node a node forwards all the same, but for node ports.
const NODE: Duration = Duration::from_secs(3);
/// Without its port partitions, ports in them do not answer.
const PARTITIONS: Duration = Duration::from_secs(3);
/// Without knowing other nodes a node serves those who come from outside by itself.
const EDGE: Duration = Duration::from_secs(3);
/// Without the addresses of its pods a node masks their addresses, at worst.
const POD_NETWORKS: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Gate {
    services: bool,
    slices: bool,
    /// Without them a Service for the pods of a namespace serves nobody, and a pod in the DMZ is taken
    /// for any other.
    pods: bool,
    /// Until when they are waited for; the past, once they are known.
    node: Instant,
    partitions: Instant,
    pod_networks: Instant,
    edge: Instant,
    began: Instant,
}

impl Gate {
    /// `pod_networks`: the Node is to say which addresses its pods have.
    pub(super) fn new(now: Instant, pod_networks: bool) -> Self {
        let pod_networks = if pod_networks {
            now + POD_NETWORKS
        } else {
            now
        };
        Self {
            services: false,
            slices: false,
            pods: false,
            node: now + NODE,
            partitions: now + PARTITIONS,
            pod_networks,
            edge: now,
            began: now,
        }
    }

    /// What the edge has to know of other nodes is still to come: an earlier process may have left
    /// rules that follow from it.
    pub(super) fn waiting_for_edge(self) -> Self {
        Self {
            edge: self.began + EDGE,
            ..self
        }
    }

    pub(super) fn edge_known(&mut self) {
        self.edge = self.began;
    }

    /// All of a kind are known.
    pub(super) fn listed(&mut self, kind: Kind) {
        match kind {
            Kind::Service => self.services = true,
            Kind::Slice => self.slices = true,
            Kind::Node => self.node = self.began,
            Kind::Pod => self.pods = true,
            Kind::Partition => self.partitions = self.began,
            Kind::Cidr => {}
        }
    }

    pub(super) fn pod_networks_known(&mut self) {
        self.pod_networks = self.began;
    }

    /// Since when, or from when on, it is open; `None` where something has to come in first.
    pub(super) fn opens(&self) -> Option<Instant> {
        let known = || {
            let others = self.pod_networks.max(self.edge);
            self.node.max(self.partitions).max(others)
        };
        (self.services && self.slices && self.pods).then(known)
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.opens().is_some_and(|opens| opens <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_when_everything_is_listed() {
        let now = Instant::now();
        let mut gate = Gate::new(now, false);
        for kind in [
            Kind::Node,
            Kind::Partition,
            Kind::Service,
            Kind::Pod,
            Kind::Slice,
        ] {
            assert_eq!(gate.opens(), None);
            gate.listed(kind);
        }
        assert!(gate.is_open(now));
    }

    #[test]
    fn does_not_wait_for_the_node_for_ever() {
        let now = Instant::now();
        for (pod_networks, longest) in [(false, NODE), (true, POD_NETWORKS)] {
            let mut gate = Gate::new(now, pod_networks);
            gate.listed(Kind::Service);
            gate.listed(Kind::Slice);
            gate.listed(Kind::Pod);
            assert!(!gate.is_open(now + longest - Duration::from_millis(1)));
            assert_eq!(gate.opens(), Some(now + longest));
            assert!(gate.is_open(now + longest));
        }
    }

    #[test]
    fn waits_for_the_edge_but_not_for_ever() {
        let now = Instant::now();
        let mut gate = Gate::new(now, false).waiting_for_edge();
        [
            Kind::Node,
            Kind::Partition,
            Kind::Service,
            Kind::Slice,
            Kind::Pod,
        ]
        .into_iter()
        .for_each(|kind| gate.listed(kind));
        assert!(!gate.is_open(now));
        assert!(gate.is_open(now + EDGE));
        gate.edge_known();
        assert!(gate.is_open(now));
    }

    #[test]
    fn waits_for_the_networks_of_pods() {
        let now = Instant::now();
        let mut gate = Gate::new(now, true);
        [
            Kind::Node,
            Kind::Partition,
            Kind::Service,
            Kind::Slice,
            Kind::Pod,
        ]
        .into_iter()
        .for_each(|kind| gate.listed(kind));
        assert!(!gate.is_open(now));
        gate.pod_networks_known();
        assert!(gate.is_open(now));
    }
}
