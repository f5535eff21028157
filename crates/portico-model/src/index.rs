//! Objects in, changes out: keeps what forwarding needs of every object and rebuilds only the service ports an update touches.

use crate::objects::{EndpointSlice, Node, Service, ServiceCidr};
use crate::table::{Change, ForwardingTable, HealthCheck, ServiceName};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How pods of this node are told from others (`--detect-local-mode`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetectLocal {
    ClusterCidr(Vec<IpNet>),
    /// The pod CIDRs of this node's Node object.
    NodeCidr,
    Bridge(Arc<str>),
    InterfacePrefix(Arc<str>),
}

/// Which of the node's addresses node ports answer on (`--nodeport-addresses`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortSetting {
    /// The addresses of the Node object.
    Primary,
    /// Every local address; those of the loopback range only if `loopback` (IPv4; never for IPv6).
    All { loopback: bool },
    /// Local addresses in these networks; a family without any is open on all its addresses.
    Networks(Vec<IpNet>),
}

/// What the operator decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub node_name: Arc<str>,
    pub detect_local: DetectLocal,
    pub node_ports: NodePortSetting,
    pub masquerade_all: bool,
    pub masquerade_mark: u32,
}

/// What changed since the last [`Index::take`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// In the order of their keys, at most one for each.
    pub changes: Vec<Change>,
    /// [`ForwardingTable::rules`] changed.
    pub rules: bool,
    /// Health-check node ports that changed, with what they are now (`None`: gone).
    pub health_checks: Vec<(ServiceName, Option<HealthCheck>)>,
    /// Whether the node is fit for new connections of load balancers changed ([`Index::eligible`]).
    pub eligible: bool,
}

/// What this node knows.
pub struct Index {
    table: ForwardingTable,
}

impl Index {
    pub fn new(settings: Settings) -> Index {
        let _ = settings;
        Index { table: ForwardingTable::default() }
    }

    pub fn apply_service(&mut self, service: Service) {
        let _ = service;
    }

    pub fn delete_service(&mut self, namespace: &str, name: &str) {
        let _ = (namespace, name);
    }

    pub fn apply_slice(&mut self, slice: EndpointSlice) {
        let _ = slice;
    }

    pub fn delete_slice(&mut self, namespace: &str, name: &str) {
        let _ = (namespace, name);
    }

    /// Only the node's own object matters; others are ignored.
    pub fn apply_node(&mut self, node: Node) {
        let _ = node;
    }

    pub fn delete_node(&mut self, name: &str) {
        let _ = name;
    }

    pub fn apply_service_cidr(&mut self, cidr: ServiceCidr) {
        let _ = cidr;
    }

    pub fn delete_service_cidr(&mut self, name: &str) {
        let _ = name;
    }

    /// The addresses that the node's interfaces have.
    pub fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        let _ = addresses;
    }

    /// (namespace, name) of everything known, so that what a new list does not have can be deleted.
    pub fn service_names(&self) -> Vec<(Arc<str>, Arc<str>)> {
        Vec::new()
    }

    pub fn slice_names(&self) -> Vec<(Arc<str>, Arc<str>)> {
        Vec::new()
    }

    /// Rebuild what was touched and say what changed. Equal pairs vanish.
    pub fn take(&mut self) -> Update {
        Update::default()
    }

    pub fn table(&self) -> &ForwardingTable {
        &self.table
    }

    pub fn health_checks(&self) -> &BTreeMap<ServiceName, HealthCheck> {
        static NONE: BTreeMap<ServiceName, HealthCheck> = BTreeMap::new();
        &NONE
    }

    /// Load balancers may send new connections here: the node is neither being deleted nor marked for it.
    pub fn eligible(&self) -> bool {
        true
    }
}
