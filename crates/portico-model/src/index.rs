//! Objects in, changes out: keeps what forwarding needs of every object and rebuilds only the
//! service ports an update touches.

mod build;
mod names;
mod node;
mod parse;
mod partitions;
mod pods;
mod services;
mod slices;
mod take;
mod topology;

#[cfg(test)]
mod tests;

use crate::announce::Announceable;
use crate::edge::Surroundings;
use crate::hash::Map;
use crate::key::ObjectKey;
use crate::objects::{EndpointSlice, Metadata, Node, Pod, Service, ServiceCidr, VISIBILITY};
use crate::partitions::PortPartition;
use crate::static_services::is_static;
use crate::table::{Change, Conflict, Family, ForwardingTable, HealthCheck, PortKey, Refusal};
use build::ClaimedWith;
use ipnet::IpNet;
use names::Names;
use node::{Here, NodeState};
use parse::Complaints;
use partitions::{Division, Overlap};
use pods::{Access, PodRecord, Pods};
use services::ServiceRecord;
use slices::{SliceRecord, service_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

/// How pods of this node are told from others (`--detect-local-mode`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetectLocal {
    /// Addresses in these networks are pods', on this node or another.
    ClusterCidr(Vec<IpNet>),
    /// The pod CIDRs of this node's Node object.
    NodeCidr,
    /// Packets from the bridge with this name come from pods.
    Bridge(Arc<str>),
    /// Packets from interfaces whose names begin so come from pods.
    InterfacePrefix(Arc<str>),
}

/// Which of the node's addresses node ports answer on (`--nodeport-addresses`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortSetting {
    /// The Node object's first address of each family, internal ones first; a family without any is
    /// open on all its addresses.
    Primary,
    /// All addresses of the Node object, internal and external ones; a family without any is open
    /// on all its addresses.
    Node,
    /// Local addresses in these networks; a family without any, or with one of length 0, is open on
    /// all its addresses. Loopback addresses only if `loopback`, and never for IPv6.
    Networks {
        /// The networks whose addresses are used.
        networks: Vec<IpNet>,
        /// Whether 127.0.0.1 may be one of them.
        loopback: bool,
    },
}

impl NodePortSetting {
    /// Whether node ports may answer on 127.0.0.1, for which the kernel has to be told
    /// (`route_localnet`).
    pub fn include_loopback(&self) -> bool {
        match self {
            Self::Primary | Self::Node => false,
            Self::Networks { networks, loopback } => *loopback && node::include_loopback(networks),
        }
    }
}

/// What the operator decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name of this node's Node object.
    pub node_name: Arc<str>,
    /// An address of the node that goes before those of its Node object, which need not know it.
    pub own_address: Option<IpAddr>,
    /// How pods of this node are told from other senders.
    pub detect_local: DetectLocal,
    /// Which addresses node ports answer on.
    pub node_ports: NodePortSetting,
    /// Whether all traffic to cluster IPs is masqueraded.
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_mark: u32,
    /// Serve the external IPs of Services, by which every writer of a Service can take addresses
    /// from others. Those of static Services are always served.
    pub external_ips: bool,
    /// Heed `ipMode` of load balancers' addresses; otherwise all of them are served here.
    pub load_balancer_ip_mode: bool,
}

/// What changed since the last [`Index::take`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// In the order of their keys, at most one for each.
    pub changes: Vec<Change>,
    /// [`ForwardingTable::rules`] changed.
    pub rules: bool,
    /// [`ForwardingTable::partitions`] changed.
    pub partitions: bool,
    /// Health-check node ports that changed, with what they are now (`None`: gone).
    pub health_checks: Vec<(ObjectKey, Option<HealthCheck>)>,
    /// Services whose load-balancer addresses, or who serves them, changed, with what they are now
    /// (`None`: without any). Only of an index [`with_announcing`](Index::with_announcing).
    pub announceables: Vec<(ObjectKey, Option<Arc<Announceable>>)>,
    /// Whether the node is fit for new connections of load balancers changed ([`Index::eligible`]).
    pub eligible: bool,
    /// What of the objects could not be used; the rest of them is.
    pub problems: Vec<Problem>,
}

/// A part of an object that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of the object.
    pub kind: &'static str,
    /// Empty for a Node or a ServiceCIDR.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// What cannot be used and why.
    pub sentence: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(
            f,
            "{} {}{slash}{}: {}",
            self.kind, self.namespace, self.name, self.sentence
        )
    }
}

impl Problem {
    fn of_port(key: &PortKey, sentence: String) -> Self {
        let ObjectKey { namespace, name } = &key.service;
        Self {
            kind: "Service",
            namespace: namespace.to_string(),
            name: name.to_string(),
            sentence,
        }
    }
}

impl Problem {
    fn without_pods(service: &ObjectKey) -> Self {
        Self {
            kind: "Service",
            namespace: service.namespace.to_string(),
            name: service.name.to_string(),
            sentence: format!(
                "has the annotation {VISIBILITY}, and this node may not list its pods, so no pod is \
                 known to be allowed; give it the rights of deploy/rbac/node.yaml"
            ),
        }
    }
}

impl From<&Conflict> for Problem {
    fn from(conflict: &Conflict) -> Self {
        Self::of_port(&conflict.loser, conflict.to_string())
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        Self::of_port(&refusal.key, refusal.to_string())
    }
}

/// What this node knows.
pub struct Index {
    names: Names,
    node: NodeState,
    /// What the table was last built with.
    here: Here,
    eligible: bool,
    pods: Pods,
    /// What the table was last built with.
    access: Access,
    /// The pods of this node are not to be seen.
    pods_denied: bool,
    /// Services that depend on `access`.
    narrow: BTreeSet<ObjectKey>,
    services: Map<ObjectKey, Known>,
    /// The Service of each slice: (namespace, slice) to its name.
    slice_owners: Map<ObjectKey, Arc<str>>,
    /// To be rebuilt. Some are in it more than once.
    dirty: Vec<ObjectKey>,
    /// Services that changed, with what they were before: the first of a Service is what the table
    /// was last built with.
    replaced: Vec<(ObjectKey, Option<Box<ServiceRecord>>)>,
    table: ForwardingTable,
    /// Whose the node's addresses are for node ports.
    division: Arc<Division>,
    /// Addresses in two port partitions, as they were last reported.
    overlaps: Vec<Overlap>,
    /// What frontends were last claimed with.
    claimed_with: ClaimedWith,
    health_checks: BTreeMap<ObjectKey, HealthCheck>,
    /// Where addresses are announced: somebody wants to know of `announceables`.
    announcing: bool,
    announceables: BTreeMap<ObjectKey, Arc<Announceable>>,
    problems: Vec<Problem>,
}

/// A Service, its slices, or both: they come in any order.
#[derive(Default)]
struct Known {
    record: Option<Box<ServiceRecord>>,
    /// Sorted by name.
    slices: Vec<SliceRecord>,
    /// The table was last built with a record.
    built: bool,
}

impl Index {
    /// An index without objects.
    pub fn new(settings: Settings) -> Self {
        let node = NodeState::new(settings);
        let here = node.here();
        let division = Arc::<Division>::default();
        let table = ForwardingTable {
            rules: node.rules(&division),
            ..ForwardingTable::default()
        };
        Self {
            names: Names::default(),
            node,
            claimed_with: ClaimedWith {
                own: here.own,
                division: division.clone(),
            },
            division,
            overlaps: Vec::new(),
            here,
            eligible: false,
            pods: Pods::default(),
            access: Access::default(),
            pods_denied: false,
            narrow: BTreeSet::new(),
            services: Map::default(),
            slice_owners: Map::default(),
            dirty: Vec::new(),
            replaced: Vec::new(),
            table,
            health_checks: BTreeMap::new(),
            announcing: false,
            announceables: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// An index that also says what there is to announce; it remembers the node of every endpoint.
    /// To be called before objects come.
    pub fn with_announcing(self) -> Self {
        Self {
            announcing: true,
            ..self
        }
    }

    /// Takes in a Service as it is now.
    pub fn apply_service(&mut self, service: &Service) {
        let mut complaints = Complaints {
            list: &mut self.problems,
            kind: "Service",
            metadata: &service.metadata,
        };
        let mut record = ServiceRecord::read(service, &mut self.names, &mut complaints);
        let Metadata {
            namespace, name, ..
        } = &service.metadata;
        if !self.node.serves_external_ips() && !is_static(namespace) {
            record
                .iter_mut()
                .for_each(|record| record.external_ips = Box::default());
        }
        if !self.node.heeds_ip_mode() {
            record.iter_mut().for_each(ServiceRecord::serve_proxied_ips);
        }
        self.set_record(namespace, name, record.map(Box::new));
    }

    /// Forgets a Service.
    pub fn delete_service(&mut self, namespace: &str, name: &str) {
        self.set_record(namespace, name, None);
    }

    /// Takes in an EndpointSlice as it is now.
    pub fn apply_slice(&mut self, slice: &EndpointSlice) {
        let Metadata {
            namespace, name, ..
        } = &slice.metadata;
        let mut complaints = Complaints {
            list: &mut self.problems,
            kind: "EndpointSlice",
            metadata: &slice.metadata,
        };
        let service = service_of(slice);
        let record = service.and_then(|_| {
            SliceRecord::read(slice, self.node.name(), &mut self.names, &mut complaints)
        });
        let (Some(service), Some(mut record)) = (service, record) else {
            return self.delete_slice(namespace, name);
        };
        if self.announcing {
            record = record.with_places(slice, &mut self.names);
        }
        let service = self.service_name(namespace, service);
        let key = ObjectKey {
            namespace: service.namespace.clone(),
            name: record.name.clone(),
        };
        if self
            .slice_owners
            .get(&key)
            .is_some_and(|owner| *owner != service.name)
        {
            self.delete_slice(namespace, name);
        }
        self.slice_owners.insert(key, service.name.clone());
        let known = self.services.entry(service.clone()).or_default();
        match known
            .slices
            .binary_search_by(|slice| slice.name.cmp(&record.name))
        {
            Ok(at) => match known.slices.get_mut(at) {
                Some(old) if *old != record => *old = record,
                _ => return,
            },
            Err(at) => {
                known.slices.reserve_exact(1);
                known.slices.insert(at, record);
            }
        }
        self.dirty.push(service);
    }

    /// Forgets an EndpointSlice.
    pub fn delete_slice(&mut self, namespace: &str, name: &str) {
        let key = ObjectKey::new(namespace, name);
        let Some(owner) = self.slice_owners.remove(&key) else {
            return;
        };
        let service = ObjectKey {
            namespace: key.namespace,
            name: owner,
        };
        if let Some(known) = self.services.get_mut(&service) {
            known.slices.retain(|slice| *slice.name != *name);
            self.dirty.push(service);
        }
    }

    /// Takes in a Node. Only the node's own object matters; others are ignored.
    pub fn apply_node(&mut self, node: &Node) {
        if node.metadata.name != self.node.name() {
            return;
        }
        let mut complaints = Complaints {
            list: &mut self.problems,
            kind: "Node",
            metadata: &node.metadata,
        };
        self.node.apply(node, &mut complaints);
    }

    /// A node that is still there goes on as it was: what it knew of itself stays true.
    pub fn delete_node(&mut self, name: &str) {
        let _ = name;
    }

    /// Only pods of this node matter; others are ignored.
    pub fn apply_pod(&mut self, pod: &Pod) {
        let mut complaints = Complaints {
            list: &mut self.problems,
            kind: "Pod",
            metadata: &pod.metadata,
        };
        let record = PodRecord::read(pod, self.node.name(), &mut complaints);
        let name = self.pod_name(&pod.metadata.namespace, &pod.metadata.name);
        self.pods.set(name, record);
    }

    /// The Pod is gone.
    pub fn delete_pod(&mut self, namespace: &str, name: &str) {
        let name = self.pod_name(namespace, name);
        self.pods.set(name, None);
    }

    /// The API server does not show the pods of this node. Nothing is known of them then.
    pub fn set_pods_denied(&mut self, denied: bool) {
        if std::mem::replace(&mut self.pods_denied, denied) != denied {
            let problems: Vec<Problem> = self.without_pods().collect();
            problems
                .into_iter()
                .for_each(|problem| parse::report(&mut self.problems, problem));
        }
    }

    /// Services whose visibility cannot be kept as they want it.
    pub fn without_pods(&self) -> impl Iterator<Item = Problem> {
        self.narrow
            .iter()
            .filter(|_| self.pods_denied)
            .map(Problem::without_pods)
    }

    fn pod_name(&mut self, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: self.names.get(namespace),
            name: name.into(),
        }
    }

    /// A ServiceCIDR is there, or changed.
    pub fn apply_service_cidr(&mut self, cidr: &ServiceCidr) {
        let mut complaints = Complaints {
            list: &mut self.problems,
            kind: "ServiceCIDR",
            metadata: &cidr.metadata,
        };
        self.node.apply_service_cidr(cidr, &mut complaints);
    }

    /// Forgets a ServiceCIDR.
    pub fn delete_service_cidr(&mut self, name: &str) {
        self.node.delete_service_cidr(name);
    }

    /// A port partition is there, or changed.
    pub fn apply_port_partition(&mut self, partition: &PortPartition) {
        let mut complaints = Complaints {
            list: &mut self.problems,
            kind: "PortPartition",
            metadata: &partition.metadata,
        };
        self.node.apply_partition(partition, &mut complaints);
    }

    /// The port partition is gone.
    pub fn delete_port_partition(&mut self, name: &str) {
        self.node.delete_partition(name);
    }

    /// All that are known.
    pub fn port_partition_names(&self) -> Vec<Arc<str>> {
        self.node.partition_names()
    }

    /// The addresses that the node's interfaces have.
    pub fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.node.set_addresses(addresses);
    }

    /// What is known of other nodes for the edge, or (`None`) that there is none. Only of an index
    /// [`with_announcing`](Index::with_announcing).
    pub fn set_surroundings(&mut self, surroundings: Option<Surroundings>) {
        self.node.set_surroundings(surroundings);
    }

    /// Everything known, so that what a new list does not have can be deleted.
    #[expect(
        clippy::disallowed_methods,
        reason = "callers look names up, in no order"
    )]
    pub fn service_names(&self) -> Vec<ObjectKey> {
        let known = self
            .services
            .iter()
            .filter(|(_, known)| known.record.is_some());
        known.map(|(key, _)| key.clone()).collect()
    }

    /// Namespace and name of each EndpointSlice that is known.
    /// Namespace and name of each EndpointSlice that is known.
    #[expect(
        clippy::disallowed_methods,
        reason = "callers look names up, in no order"
    )]
    pub fn slice_names(&self) -> Vec<ObjectKey> {
        self.slice_owners.keys().cloned().collect()
    }

    /// Namespace and name of each Pod that is known.
    pub fn pod_names(&self) -> Vec<ObjectKey> {
        self.pods.names().cloned().collect()
    }

    /// The table as of the last [`Self::take`].
    pub fn table(&self) -> &ForwardingTable {
        &self.table
    }

    /// Frontends that more than one service port claims.
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.table.frontends.conflicts()
    }

    /// Of each Service with a health-check node port, what it answers.
    pub fn health_checks(&self) -> &BTreeMap<ObjectKey, HealthCheck> {
        &self.health_checks
    }

    /// What there is to announce of each Service.
    pub fn announceables(&self) -> &BTreeMap<ObjectKey, Arc<Announceable>> {
        &self.announceables
    }

    /// Load balancers may send new connections here: the node is known, and neither being deleted
    /// nor marked for it.
    pub fn eligible(&self) -> bool {
        self.node.eligible()
    }

    /// Where node ports answer, as others can know it: an address of the Node object may be one
    /// that is translated on the way to this node.
    pub fn node_port_networks(&self) -> Vec<IpNet> {
        Family::BOTH
            .into_iter()
            .flat_map(|family| self.node.node_port_networks(family))
            .collect()
    }

    /// The addresses of each port partition that has any here, as others can know them: the first
    /// that has an address counts.
    pub fn partition_networks(&self) -> Vec<(Arc<str>, Vec<IpNet>)> {
        self.node.partition_networks(&self.division)
    }

    fn set_record(&mut self, namespace: &str, name: &str, record: Option<Box<ServiceRecord>>) {
        let name = self.service_name(namespace, name);
        let known = self
            .services
            .get(&name)
            .and_then(|known| known.record.as_ref());
        if known == record.as_ref() {
            return;
        }
        match record.as_ref().is_some_and(|record| record.is_narrow()) {
            true => self.narrow.insert(name.clone()),
            false => self.narrow.remove(&name),
        };
        if self.pods_denied && self.narrow.contains(&name) {
            parse::report(&mut self.problems, Problem::without_pods(&name));
        }
        let old = mem::replace(
            &mut self.services.entry(name.clone()).or_default().record,
            record,
        );
        self.dirty.push(name.clone());
        self.replaced.push((name, old));
    }

    /// The name with the strings that are already there.
    fn service_name(&mut self, namespace: &str, name: &str) -> ObjectKey {
        let wanted = ObjectKey {
            namespace: self.names.get(namespace),
            name: name.into(),
        };
        self.services
            .get_key_value(&wanted)
            .map(|(known, _)| known.clone())
            .unwrap_or(wanted)
    }
}
