//! The networks that the cluster is known to consist of: the nodes' addresses, and where their pods
//! get theirs from.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

/// The addresses of nodes and their pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    nodes: BTreeMap<String, Vec<IpNet>>,
    /// All of them: sorted, and none in another.
    merged: Vec<IpNet>,
}

impl Networks {
    /// The networks of these nodes.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut networks = Self::default();
        for node in nodes {
            networks
                .nodes
                .insert(node.metadata.name.clone().unwrap_or_default(), read(node));
        }
        networks.merge();
        networks
    }

    /// A node as it is now; whether that is news.
    pub fn apply(&mut self, node: &Node) -> bool {
        let name = node.metadata.name.clone().unwrap_or_default();
        let networks = read(node);
        if self.nodes.get(&name) == Some(&networks) {
            return false;
        }
        self.nodes.insert(name, networks);
        self.merge()
    }

    /// Forgets a node; whether this changes anything.
    pub fn delete(&mut self, node: &Node) -> bool {
        self.nodes
            .remove(node.metadata.name.as_deref().unwrap_or_default());
        self.merge()
    }

    /// Whether the address belongs to a node or a pod.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let after = self
            .merged
            .partition_point(|network| network.network() <= address);
        let last = after.checked_sub(1).and_then(|at| self.merged.get(at));
        last.is_some_and(|network| network.contains(&address))
    }

    fn merge(&mut self) -> bool {
        let all: Vec<IpNet> = self.nodes.values().flatten().copied().collect();
        let mut merged = IpNet::aggregate(&all);
        merged.sort_unstable_by_key(|network| network.network());
        let changed = merged != self.merged;
        self.merged = merged;
        changed
    }
}

fn read(node: &Node) -> Vec<IpNet> {
    let spec = node.spec.as_ref();
    let pods = spec.and_then(|spec| spec.pod_cidrs.as_ref());
    let first = spec.and_then(|spec| spec.pod_cidr.as_ref());
    let pods = pods.into_iter().flatten().chain(first);
    let own = node.status.iter().flat_map(|status| &status.addresses);
    // Names are not asked for: a node could have them resolve to anything.
    let own = own
        .flatten()
        .filter_map(|address| address.address.parse::<IpAddr>().ok());
    let mut networks: Vec<IpNet> = pods
        .filter_map(|cidr| cidr.parse::<IpNet>().ok())
        // A network of everything would be no bound.
        .filter(|network| network.prefix_len() > 0)
        .map(|network| network.trunc())
        .chain(own.map(|address| IpNet::from(address.to_canonical())))
        .collect();
    networks.sort_unstable();
    networks.dedup();
    networks
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, address: &str, pods: &[&str]) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name}, "spec": {"podCIDRs": pods},
            "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]}
        }))
        .unwrap()
    }

    fn has(networks: &Networks, address: &str) -> bool {
        networks.contain(address.parse().unwrap())
    }

    #[test]
    fn nodes_and_their_pods() {
        let first = node("n1", "192.0.2.1", &["10.244.0.0/24", "fd00:10::/64"]);
        let second = node("n2", "192.0.2.2", &["10.244.1.0/24", "0.0.0.0/0"]);
        let mut networks = Networks::of([&first, &second]);
        for address in [
            "192.0.2.1",
            "192.0.2.2",
            "10.244.0.9",
            "10.244.1.9",
            "fd00:10::9",
        ] {
            assert!(has(&networks, address), "{address}");
        }
        for address in [
            "192.0.2.3",
            "10.244.2.9",
            "fd00:11::9",
            "8.8.8.8",
            "0.0.0.1",
        ] {
            assert!(!has(&networks, address), "{address}");
        }
        assert!(!networks.apply(&first));
        assert!(networks.delete(&second));
        assert!(!has(&networks, "192.0.2.2") && has(&networks, "192.0.2.1"));
    }
}
