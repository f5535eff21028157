//! What a node tells about itself: one small object for each node, whatever the number of Services.
//!
//! It is the annotation [`ANNOTATION`] of a Lease, so that every API server has a place for it. A
//! controller that wrote a Service knows its resource version: the Service is live on each node
//! that has installed that version or a later one.

use serde::{Deserialize, Serialize};

/// The annotation of a node's Lease that has its report.
pub const ANNOTATION: &str = "portico.dev/report";
/// The namespace of the Leases.
pub const NAMESPACE: &str = "kube-system";
const PREFIX: &str = "portico-node-";
/// Leases with reports have this label, so that they can be followed without the others.
pub const LABEL: &str = "portico.dev/node-report";
/// So many Services that lag are named; of the rest only the number is told.
pub const MOST_BEHIND: usize = 20;

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
    /// How long changes take to reach the kernel; `None` before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programming: Option<Programming>,
    /// How addresses are announced; `None` where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announcing: Option<Announcing>,
}

/// A Service that cannot be installed.
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

fn is_zero(number: &usize) -> bool {
    *number == 0
}
