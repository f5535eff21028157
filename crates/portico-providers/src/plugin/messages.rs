//! The messages of `proto/plugin.proto` with their field numbers, which a test with another
//! language's reading of that file compares.

use std::collections::BTreeMap;

use prost::{Enumeration, Message};

/// The revision of `plugin.proto`.
pub(super) const REVISION: u32 = 1;

pub(super) const GET_INFO: &str = "/portico.provider.v1.Provider/GetInfo";
pub(super) const DESCRIBE: &str = "/portico.provider.v1.Provider/Describe";
pub(super) const ENSURE: &str = "/portico.provider.v1.Provider/Ensure";
pub(super) const UPDATE_NODES: &str = "/portico.provider.v1.Provider/UpdateNodes";
pub(super) const DELETE: &str = "/portico.provider.v1.Provider/Delete";
pub(super) const NEWS: &str = "/portico.provider.v1.Provider/News";

#[derive(Clone, PartialEq, Message)]
pub(super) struct GetInfoRequest {
    #[prost(uint32, tag = "1")]
    pub revision: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Info {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(uint32, tag = "3")]
    pub needs_revision: u32,
    #[prost(message, optional, tag = "4")]
    pub abilities: Option<Abilities>,
    #[prost(message, optional, tag = "5")]
    pub features: Option<Features>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Abilities {
    #[prost(bool, tag = "1")]
    pub uses_nodes: bool,
    #[prost(bool, tag = "2")]
    pub uses_endpoints: bool,
    #[prost(bool, tag = "3")]
    pub announced_by_nodes: bool,
    #[prost(bool, tag = "4")]
    pub needs_health_check_port: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Features {
    #[prost(enumeration = "Support", tag = "1")]
    pub local: i32,
    #[prost(enumeration = "Support", tag = "2")]
    pub source_ranges: i32,
    #[prost(enumeration = "Support", tag = "3")]
    pub affinity: i32,
    #[prost(enumeration = "Support", tag = "4")]
    pub udp: i32,
    #[prost(enumeration = "Support", tag = "5")]
    pub mixed_protocols: i32,
    #[prost(enumeration = "Support", tag = "6")]
    pub ipv6: i32,
    #[prost(enumeration = "Support", tag = "7")]
    pub dual_stack: i32,
    #[prost(enumeration = "Support", tag = "8")]
    pub node_ports: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Support {
    Unspecified = 0,
    Full = 1,
    Ignored = 2,
    Refused = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub cluster: String,
    #[prost(message, optional, tag = "2")]
    pub service: Option<Service>,
    #[prost(string, tag = "3")]
    pub balancer_name: String,
    #[prost(string, optional, tag = "4")]
    pub class: Option<String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    #[prost(string, optional, tag = "7")]
    pub requested_ip: Option<String>,
    #[prost(enumeration = "Family", repeated, tag = "8")]
    pub families: Vec<i32>,
    #[prost(bool, tag = "9")]
    pub require_all_families: bool,
    #[prost(message, repeated, tag = "10")]
    pub ports: Vec<Port>,
    #[prost(bool, tag = "11")]
    pub local: bool,
    #[prost(btree_map = "string, string", tag = "12")]
    pub selector: BTreeMap<String, String>,
    #[prost(uint32, optional, tag = "13")]
    pub affinity_seconds: Option<u32>,
    #[prost(string, repeated, tag = "14")]
    pub source_ranges: Vec<String>,
    #[prost(message, optional, tag = "15")]
    pub health_check: Option<HealthCheck>,
    #[prost(message, repeated, tag = "16")]
    pub nodes: Vec<Node>,
    #[prost(message, repeated, tag = "17")]
    pub endpoints: Vec<Endpoint>,
    #[prost(message, repeated, tag = "18")]
    pub ingress: Vec<Ingress>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Service {
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Family {
    Unspecified = 0,
    Ipv4 = 1,
    Ipv6 = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum Protocol {
    Unspecified = 0,
    Tcp = 1,
    Udp = 2,
    Sctp = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Port {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(enumeration = "Protocol", tag = "2")]
    pub protocol: i32,
    #[prost(uint32, tag = "3")]
    pub port: u32,
    #[prost(uint32, tag = "4")]
    pub node_port: u32,
    #[prost(string, optional, tag = "5")]
    pub app_protocol: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HealthCheck {
    #[prost(uint32, tag = "1")]
    pub port: u32,
    #[prost(string, tag = "2")]
    pub path: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub provider_id: String,
    #[prost(string, tag = "3")]
    pub zone: String,
    #[prost(string, repeated, tag = "4")]
    pub addresses: Vec<String>,
    #[prost(string, tag = "5")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Endpoint {
    #[prost(string, tag = "1")]
    pub address: String,
    #[prost(string, tag = "2")]
    pub port_name: String,
    #[prost(enumeration = "Protocol", tag = "3")]
    pub protocol: i32,
    #[prost(uint32, tag = "4")]
    pub port: u32,
    #[prost(string, optional, tag = "5")]
    pub node: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Description {
    #[prost(message, optional, tag = "1")]
    pub balancer: Option<Balancer>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Balancer {
    #[prost(message, repeated, tag = "1")]
    pub ingress: Vec<Ingress>,
    #[prost(string, tag = "2")]
    pub pending: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ingress {
    #[prost(string, tag = "1")]
    pub ip: String,
    #[prost(string, tag = "2")]
    pub hostname: String,
    #[prost(enumeration = "IpMode", tag = "3")]
    pub mode: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum IpMode {
    Vip = 0,
    Proxy = 1,
}

/// `UpdateNodesResponse`, `DeleteResponse` and `NewsRequest`, which have no fields.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct NewsItem {
    #[prost(enumeration = "NewsKind", tag = "1")]
    pub kind: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum NewsKind {
    Unspecified = 0,
    Freed = 1,
    Changed = 2,
}
