//! What is known of the cluster: the index that the table comes from, and beside it what a table of
//! a few Services alone needs.

use crate::objects::{Kind, Name, Object};
use portico_model::index::{Index, Settings};
use portico_model::key::ObjectKey;
use portico_model::objects::Node;
use portico_model::partitions::PortPartition;
use portico_model::static_services::is_static;
use portico_model::table::ForwardingTable;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

pub(super) struct Cluster {
    pub index: Index,
    settings: Settings,
    /// The addresses of the node's interfaces.
    addresses: Vec<IpAddr>,
    pub node: Option<Box<Node>>,
    cidrs: HashSet<String>,
    partitions: BTreeMap<String, Box<PortPartition>>,
}

impl Cluster {
    pub(super) fn new(settings: Settings, announcing: bool) -> Self {
        let mut index = Index::new(settings.clone());
        if announcing {
            index = index.with_announcing();
        }
        Self {
            index,
            settings,
            addresses: Vec::new(),
            node: None,
            cidrs: HashSet::new(),
            partitions: BTreeMap::new(),
        }
    }

    pub(super) fn table(&self) -> &ForwardingTable {
        self.index.table()
    }

    pub(super) fn apply(&mut self, object: &Object) {
        match object {
            Object::Service(service) => self.index.apply_service(service),
            Object::Slice(slice) => self.index.apply_slice(slice),
            Object::Node(node) => {
                self.index.apply_node(node);
                self.node = Some(node.clone());
            }
            Object::Partition(partition) => {
                let name = partition.metadata.name.clone();
                self.partitions.insert(name, partition.clone());
                self.index.apply_port_partition(partition);
            }
            Object::Cidr(cidr) => {
                self.cidrs.insert(cidr.metadata.name.clone());
                self.index.apply_service_cidr(cidr);
            }
            Object::Pod(pod) => self.index.apply_pod(pod),
        }
    }

    pub(super) fn delete(&mut self, name: &Name) {
        match name.kind {
            Kind::Service => self.index.delete_service(&name.namespace, &name.name),
            Kind::Slice => self.index.delete_slice(&name.namespace, &name.name),
            Kind::Node => self.index.delete_node(&name.name),
            Kind::Partition => {
                self.partitions.remove(&name.name);
                self.index.delete_port_partition(&name.name);
            }
            Kind::Cidr => {
                self.cidrs.remove(&name.name);
                self.index.delete_service_cidr(&name.name);
            }
            Kind::Pod => self.index.delete_pod(&name.namespace, &name.name),
        }
    }

    /// Deletes what a list does not have, but for static Services, which the API server does not
    /// know.
    pub(super) fn keep_listed(&mut self, kind: Kind, names: &HashSet<Name>) {
        for key in self.known(kind) {
            if is_static(&key.namespace) {
                continue;
            }
            let name = Name::new(kind, &key);
            if !names.contains(&name) {
                self.delete(&name);
            }
        }
    }

    fn known(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Service => self.index.service_names(),
            Kind::Slice => self.index.slice_names(),
            Kind::Node => Vec::new(),
            Kind::Pod => self.index.pod_names(),
            Kind::Partition => self
                .partitions
                .keys()
                .map(|name| ObjectKey::new("", name))
                .collect(),
            Kind::Cidr => self
                .cidrs
                .iter()
                .map(|name| ObjectKey::new("", name))
                .collect(),
        }
    }

    /// Says whether they are others than before.
    pub(super) fn set_addresses(&mut self, addresses: Vec<IpAddr>) -> bool {
        let changed = self.addresses != addresses;
        self.addresses.clone_from(&addresses);
        self.index.set_addresses(addresses);
        changed
    }

    /// An index of these Services alone, whatever else is known already.
    pub(super) fn index_of(&self, objects: Vec<Object>) -> Index {
        let mut index = Index::new(self.settings.clone());
        index.set_addresses(self.addresses.clone());
        self.node.iter().for_each(|node| index.apply_node(node));
        self.partitions
            .values()
            .for_each(|partition| index.apply_port_partition(partition));
        for object in objects {
            match object {
                Object::Service(service) => index.apply_service(&service),
                Object::Slice(slice) => index.apply_slice(&slice),
                Object::Node(_) | Object::Cidr(_) | Object::Pod(_) | Object::Partition(_) => {}
            }
        }
        index.take();
        index
    }
}
