//! Everything that tools show, as the API server has it: read once, or kept while it is watched.

use crate::endpoint::service_of;
use crate::life::WatchedLease;
use crate::node::version;
use crate::owner::Owners;
use crate::service::Liveness;
use crate::{DaemonView, EndpointView, LeaderView, NodeView, ServiceView};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use portico_model::key::ObjectKey;
use portico_model::report;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The objects of the fleet as they were last seen.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    services: BTreeMap<ObjectKey, Service>,
    slices: BTreeMap<ObjectKey, EndpointSlice>,
    /// The slices of each Service.
    slices_of: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    nodes: BTreeMap<String, Node>,
    leases: BTreeMap<String, WatchedLease>,
}

/// An object of a kind that the fleet consists of.
#[derive(Clone, Debug)]
pub enum Object {
    /// A Service, with or without a load balancer.
    Service(Box<Service>),
    /// An EndpointSlice, which belongs to a Service by its label.
    Slice(Box<EndpointSlice>),
    /// A Node, whether or not it runs Portico.
    Node(Box<Node>),
    /// A Lease: the report of a node, or the election of a controller.
    Lease(Box<Lease>),
}

/// The kind of an [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Services.
    Service,
    /// EndpointSlices.
    Slice,
    /// Nodes.
    Node,
    /// Leases.
    Lease,
}

impl Kind {
    /// Every kind, in the order in which they are listed.
    pub const ALL: [Self; 4] = [Self::Service, Self::Slice, Self::Node, Self::Lease];
}

impl Object {
    /// The kind of this object.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Service(_) => Kind::Service,
            Self::Slice(_) => Kind::Slice,
            Self::Node(_) => Kind::Node,
            Self::Lease(_) => Kind::Lease,
        }
    }
}

impl From<Service> for Object {
    fn from(service: Service) -> Self {
        Self::Service(Box::new(service))
    }
}

impl From<EndpointSlice> for Object {
    fn from(slice: EndpointSlice) -> Self {
        Self::Slice(Box::new(slice))
    }
}

impl From<Node> for Object {
    fn from(node: Node) -> Self {
        Self::Node(Box::new(node))
    }
}

impl From<Lease> for Object {
    fn from(lease: Lease) -> Self {
        Self::Lease(Box::new(lease))
    }
}

impl Fleet {
    /// The object is there, or was changed, and this is known since now. Says whether there is
    /// anything new to show: a report that says again what it said is nothing new.
    pub fn apply(&mut self, object: Object, clock: Timestamp) -> bool {
        match object {
            Object::Service(service) => {
                self.services.insert(key_of(&service.metadata), *service);
            }
            Object::Slice(slice) => {
                let name = key_of(&slice.metadata);
                self.forget_slice(&name);
                let owner = owner(&slice);
                self.slices_of
                    .entry(owner)
                    .or_default()
                    .insert(name.clone());
                self.slices.insert(name, *slice);
            }
            Object::Node(node) => {
                self.nodes.insert(name_of(&node.metadata), *node);
            }
            Object::Lease(lease) => {
                let name = name_of(&lease.metadata);
                let before = self.leases.get(&name);
                let watched = WatchedLease::new(*lease, before, clock);
                let is_new = before.is_none_or(|before| !watched.is_only_renewed(before, clock));
                self.leases.insert(name, watched);
                return is_new;
            }
        }
        true
    }

    /// The object is gone.
    pub fn delete(&mut self, object: &Object) {
        match object {
            Object::Service(service) => {
                self.services.remove(&key_of(&service.metadata));
            }
            Object::Slice(slice) => self.forget_slice(&key_of(&slice.metadata)),
            Object::Node(node) => {
                self.nodes.remove(&name_of(&node.metadata));
            }
            Object::Lease(lease) => {
                self.leases.remove(&name_of(&lease.metadata));
            }
        }
    }

    /// These are all objects of a kind: others are gone.
    pub fn replace(&mut self, kind: Kind, objects: Vec<Object>, clock: Timestamp) {
        match kind {
            Kind::Service => self.services.clear(),
            Kind::Slice => {
                self.slices.clear();
                self.slices_of.clear();
            }
            Kind::Node => self.nodes.clear(),
            // What is known of the renewals of a Lease is not forgotten.
            Kind::Lease => {
                let listed: BTreeSet<String> = objects.iter().filter_map(lease_name).collect();
                self.leases.retain(|name, _| listed.contains(name));
            }
        }
        for object in objects {
            self.apply(object, clock);
        }
    }

    /// A view of each node at this time, by name.
    pub fn nodes(&self, clock: Timestamp) -> Vec<NodeView> {
        let newest = self.newest();
        let view = |(name, node): (&String, &Node)| {
            let lease = self.leases.get(&report::lease_name(name));
            NodeView::of(node, lease, newest, clock)
        };
        self.nodes.iter().map(view).collect()
    }

    /// A view of each Service at this time, by namespace and name.
    pub fn services(&self, clock: Timestamp) -> Vec<ServiceView> {
        let nodes = self.nodes(clock);
        let (liveness, owners) = (Liveness::of(&nodes), Owners::of_nodes(&nodes));
        let view = |(key, service): (&ObjectKey, &Service)| {
            ServiceView::of(service, self.slices_of(key), &liveness, &owners)
        };
        self.services.iter().map(view).collect()
    }

    /// In the order of Services.
    pub fn endpoints(&self) -> Vec<EndpointView> {
        let owners = self.slices_of.keys();
        owners
            .flat_map(|owner| self.endpoints_of(&owner.namespace, &owner.name))
            .collect()
    }

    /// The endpoints of one Service; none where it has no slices.
    pub fn endpoints_of(&self, namespace: &str, service: &str) -> Vec<EndpointView> {
        let key = ObjectKey::new(namespace, service);
        self.slices_of(&key).flat_map(EndpointView::of).collect()
    }

    /// The elections of Portico's controllers at this time.
    pub fn leaders(&self, clock: Timestamp) -> Vec<LeaderView> {
        let leases = self.leases.values();
        leases
            .filter_map(|lease| LeaderView::of(lease, clock))
            .collect()
    }

    /// Daemons that are neither nodes nor controllers, at this time.
    pub fn daemons(&self, clock: Timestamp) -> Vec<DaemonView> {
        let leases = self.leases.values();
        leases
            .filter_map(|lease| DaemonView::of(lease, clock))
            .collect()
    }

    /// Names that nodes report under and that no Node has.
    pub fn nodes_without_object(&self, clock: Timestamp) -> Vec<String> {
        let alive = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.is_alive(clock));
        let names = alive.filter_map(|(name, _)| report::node_of_lease(name));
        names
            .filter(|name| !self.nodes.contains_key(*name))
            .map(str::to_owned)
            .collect()
    }

    /// How long it takes until it is known whether those nodes live whose reports came late, if
    /// there are any.
    pub fn doubt(&self, clock: Timestamp) -> Option<Duration> {
        let leases = self.leases.values();
        leases.filter_map(|lease| lease.doubt(clock)).max()
    }

    /// When the next node or leader falls silent if nothing comes in.
    pub fn next_silence(&self, clock: Timestamp) -> Option<Timestamp> {
        let leases = self.leases.values();
        leases.filter_map(|lease| lease.expires(clock)).min()
    }

    fn slices_of(&self, service: &ObjectKey) -> impl Iterator<Item = &EndpointSlice> {
        let names = self.slices_of.get(service);
        names
            .into_iter()
            .flatten()
            .filter_map(|name| self.slices.get(name))
    }

    fn forget_slice(&mut self, name: &ObjectKey) {
        let Some(slice) = self.slices.remove(name) else {
            return;
        };
        let owner = owner(&slice);
        if let Some(names) = self.slices_of.get_mut(&owner) {
            names.remove(name);
            if names.is_empty() {
                self.slices_of.remove(&owner);
            }
        }
    }

    /// The version of the Service that was changed last: what nodes should have reached.
    fn newest(&self) -> u64 {
        let services = self.services.values();
        services
            .map(|service| version(service.metadata.resource_version.as_deref()))
            .max()
            .unwrap_or(0)
    }
}

/// What an object is called, of its metadata.
pub fn key_of(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

fn name_of(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

fn lease_name(object: &Object) -> Option<String> {
    match object {
        Object::Lease(lease) => lease.metadata.name.clone(),
        _ => None,
    }
}

/// The Service that a slice belongs to.
fn owner(slice: &EndpointSlice) -> ObjectKey {
    let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
    ObjectKey::new(namespace, service_of(slice))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, NOW};
    use serde_json::json;

    #[test]
    fn slices_follow_their_service() {
        let mut fleet = samples::fleet();
        let ready = |fleet: &Fleet| fleet.services(NOW.parse().unwrap())[0].endpoints.ready;
        assert_eq!(ready(&fleet), 1);
        let mut moved = samples::slice("other", json!([{"addresses": ["10.0.0.5"]}]));
        moved.metadata.name = Some("web-1".into());
        fleet.apply(moved.clone().into(), NOW.parse().unwrap());
        assert_eq!(ready(&fleet), 0, "the slice belongs to another Service now");
        assert_eq!(fleet.endpoints_of("shop", "other").len(), 1);
        fleet.delete(&moved.into());
        assert!(fleet.endpoints().is_empty() && fleet.slices_of.is_empty());
    }

    #[test]
    fn a_report_that_says_the_same_is_nothing_new() {
        let mut fleet = samples::fleet();
        let now: Timestamp = NOW.parse().unwrap();
        let at = |seconds: i64| Timestamp::from_second(now.as_second() + seconds).unwrap();
        let report = |renewed: i64, services: u64| -> Object {
            let time = at(renewed)
                .strftime("%Y-%m-%dT%H:%M:%S.000000Z")
                .to_string();
            samples::report("n1", services, &time, json!([])).into()
        };
        assert!(!fleet.apply(report(10, 100), at(10)));
        assert!(fleet.apply(report(11, 101), at(11)));
        // They last 15 s. Only n1 is still there, until 20 s after it was seen to report.
        assert_eq!(fleet.next_silence(at(20)), Some(at(26)));
        assert!(fleet.apply(report(20, 101), at(27)), "it was silent");
        let reports = |seconds| {
            let nodes = fleet.nodes(at(seconds));
            nodes.iter().map(NodeView::reports).collect::<Vec<_>>()
        };
        assert_eq!(reports(41), [true, false]);
        assert_eq!(reports(42), [false, false]);
    }
}
