//! What a node tells about itself: one small object for each node, whatever the number of Services.
//!
//! It is the annotation [`ANNOTATION`] of a Lease, so that every API server has a place for it. A
//! controller that wrote a Service knows its resource version: the Service is live on each node
//! that has installed that version or a later one.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The annotation of a node's Lease that has its report.
pub const ANNOTATION: &str = "portico.dev/report";
/// The namespace of the Leases.
pub const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "portico-node-";
/// Leases with reports have this label, so that they can be followed without the others.
pub const LABEL: &str = "portico.dev/node-report";
/// Leases by which other daemons tell that they live have this label: its value is the command that
/// runs, such as `dns`. The holder is empty where the daemon was stopped.
pub const DAEMON_LABEL: &str = "portico.dev/daemon";
/// So many Services that lag are named; of the rest only the number is told.
pub const MOST_BEHIND: usize = 20;
/// So many addresses that a node answers for, and as many that it announces by BGP, are named: a
/// report is written again and again, and an annotation has to stay far below 256 KiB.
pub const MOST_ADDRESSES: usize = 500;

/// The name of the Lease with the report of a node.
pub fn lease_name(node: &str) -> String {
    format!("{PREFIX}{node}")
}

/// The node whose report a Lease has.
pub fn node_of_lease(lease: &str) -> Option<&str> {
    lease.strip_prefix(PREFIX)
}

/// What a node tells the controller and the tools, as JSON in an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReport {
    /// Everything that the API server said of Services up to this resource version is installed,
    /// but for `behind`.
    pub services: String,
    /// The same for EndpointSlices.
    pub slices: String,
    /// Services that cannot be installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_behind: usize,
    /// Why nothing can be installed at the moment, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trouble: String,
    /// By what it forwards: `nftables`, `iptables` or `ipvs`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Where the node says whether it is fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthz_port: Option<u16>,
    /// The networks on whose addresses node ports answer here. `None`: a program before 0.2 does not
    /// say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_ports: Option<Vec<String>>,
    /// The addresses that are in port partitions here, where only node ports of Services that name
    /// the partition answer. The first that has an address counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionAddresses>,
    /// How long changes take to reach the kernel; `None` before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programming: Option<Programming>,
    /// How addresses are announced; `None` where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announcing: Option<Announcing>,
}

/// The addresses of a node in one port partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartitionAddresses {
    /// Of the PortPartition.
    pub name: String,
    /// Networks.
    pub addresses: Vec<String>,
}

/// A Service that is not in the kernel as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Behind {
    /// `namespace/name`
    pub service: String,
    /// The error, for people.
    pub reason: String,
}

/// From an event of the API server to its being installed, for the last Services that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Programming {
    /// How many there were since the node started, so that news can be told from what is known.
    pub changes: u64,
    /// The last of them, in microseconds.
    pub last_micros: u64,
    /// Their median, in microseconds.
    pub median_micros: u64,
    /// The longest of them, in microseconds.
    pub worst_micros: u64,
}

/// How addresses are announced by this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Announcing {
    /// The nodes among which layer-2 addresses are shared out at the moment, this one included:
    /// sorted. Empty where it takes no part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// BGP sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Session>,
    /// The layer-2 addresses that this node answers for now, those that it got last first. `None`:
    /// a program before 0.2 does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<Holding>>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_held: usize,
    /// The addresses that this node announces by BGP. `None`: a program before 0.2 does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<IpAddr>>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_routes: usize,
}

/// Addresses that a node got at the same time and for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Holding {
    /// Those that are told by name.
    pub addresses: Vec<IpAddr>,
    /// By the node's clock, in RFC 3339.
    pub since: String,
    /// Why this node, for people.
    pub why: String,
    /// The node that had them before, where there was one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub before: String,
}

/// A BGP session of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Session {
    /// The name of the BgpPeer.
    pub peer: String,
    /// Whether routes are exchanged.
    pub established: bool,
    /// How many routes are announced to it.
    pub routes: usize,
    /// Why there is no session, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trouble: String,
}

/// Where node ports answer on a node, as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePortReach {
    /// `None` where it does not say, as kube-proxy.
    networks: Option<Vec<IpNet>>,
    /// In the order of the report.
    partitions: Vec<(String, Vec<IpNet>)>,
}

impl From<&NodeReport> for NodePortReach {
    /// A network that cannot be read is one fewer to send anybody to.
    fn from(report: &NodeReport) -> Self {
        let read = |texts: &Vec<String>| -> Vec<IpNet> {
            texts.iter().filter_map(|text| text.parse().ok()).collect()
        };
        let partitions = report.partitions.iter();
        Self {
            networks: report.node_ports.as_ref().map(read),
            partitions: partitions
                .map(|partition| (partition.name.clone(), read(&partition.addresses)))
                .collect(),
        }
    }
}

impl NodePortReach {
    /// Whether node ports answer at an address, as far as it is known: those of Services that name
    /// this partition, or of those that name none.
    pub fn answers_at(&self, address: IpAddr, partition: Option<&str>) -> bool {
        let has = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&address));
        self.networks.as_deref().is_none_or(has) && self.partition_of(address) == partition
    }

    /// The partition that an address of this node is in.
    pub fn partition_of(&self, address: IpAddr) -> Option<&str> {
        let mut partitions = self.partitions.iter();
        partitions
            .find(|(_, networks)| networks.iter().any(|network| network.contains(&address)))
            .map(|(name, _)| name.as_str())
    }

    /// Those with addresses here.
    pub fn partitions(&self) -> impl Iterator<Item = &str> {
        self.partitions.iter().map(|(name, _)| name.as_str())
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_partition_that_has_an_address_counts() {
        let part = |name: &str, addresses: &[&str]| PartitionAddresses {
            name: name.into(),
            addresses: addresses.iter().map(ToString::to_string).collect(),
        };
        let divided = NodePortReach::from(&NodeReport {
            node_ports: Some(vec!["10.0.0.0/8".into(), "2001:db8::/64".into()]),
            partitions: vec![
                part("one", &["10.0.0.1/32", "nonsense"]),
                part("rest", &["10.0.0.0/24"]),
            ],
            ..NodeReport::default()
        });
        for (address, wanted) in [
            ("10.0.0.1", Some(Some("one"))),
            ("10.0.0.2", Some(Some("rest"))),
            ("10.0.1.1", Some(None)),
            ("2001:db8::1", Some(None)),
            ("192.0.2.1", None),
        ] {
            let address: IpAddr = address.parse().unwrap();
            let answers: Vec<Option<&str>> = [None, Some("one"), Some("rest"), Some("other")]
                .into_iter()
                .filter(|partition| divided.answers_at(address, *partition))
                .collect();
            assert_eq!(answers, Vec::from_iter(wanted), "{address}");
        }
        // Another proxy knows no partitions.
        let silent = NodePortReach::from(&NodeReport::default());
        let address = [192, 0, 2, 1].into();
        assert!(silent.answers_at(address, None) && !silent.answers_at(address, Some("one")));
    }
}
