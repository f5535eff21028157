//! On which of the node's addresses the node ports of a Service answer, where it names a port
//! partition or addresses.

use super::parse::{Complaints, order_of_time};
use crate::objects::Service;
use crate::partitions::{self, NODE_PORT_ADDRESSES, PORT_PARTITION, PortPartition};
use crate::pools::{AddressRange, LabelSelector};
use crate::table::Family;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What a Service says of the addresses of its node ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    pub partition: Option<Arc<str>>,
    /// Of the addresses of its partition, these.
    pub within: Option<Box<[AddressRange]>>,
}

impl Selection {
    /// `None` where it says nothing, as most do.
    pub(super) fn read(service: &Service, complaints: &mut Complaints<'_>) -> Option<Box<Self>> {
        let annotation = |key: &str| {
            let value = service.metadata.annotations.get(key)?.trim();
            (!value.is_empty()).then_some(value)
        };
        let partition = annotation(PORT_PARTITION).map(Arc::from);
        let within = annotation(NODE_PORT_ADDRESSES).map(|text| match partitions::ranges(text) {
            Ok(ranges) => ranges.into(),
            // Who wanted fewer addresses does not get all of them by a slip of the pen.
            Err(problem) => {
                complaints.add(format!(
                    "annotation {NODE_PORT_ADDRESSES}: {problem}; its node ports answer nowhere"
                ));
                Box::default()
            }
        });
        let says_something = partition.is_some() || within.is_some();
        says_something.then(|| Box::new(Self { partition, within }))
    }
}

/// A port partition, as far as this node has to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// Orders like the time of creation.
    created: u64,
    /// `None` for all addresses.
    ranges: Option<Vec<AddressRange>>,
    nodes: Option<LabelSelector>,
}

impl Partition {
    pub(super) fn read(partition: &PortPartition, complaints: &mut Complaints<'_>) -> Self {
        let texts = &partition.spec.addresses;
        let read = |text: &String| match text.parse() {
            Ok(range) => Some(range),
            Err(problem) => {
                complaints.add(format!("address {text:?}: {problem}; it is left out"));
                None
            }
        };
        Self {
            created: order_of_time(partition.metadata.creation_timestamp.as_deref()),
            ranges: (!texts.is_empty()).then(|| texts.iter().filter_map(read).collect()),
            nodes: partition.spec.node_selector.clone(),
        }
    }

    pub(super) fn has_all_addresses(&self) -> bool {
        self.ranges.is_none()
    }

    pub(super) fn is_of_node(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.nodes.as_ref();
        selector.is_none_or(|selector| selector.matches(labels))
    }

    fn has(&self, address: IpAddr) -> bool {
        let ranges = self.ranges.as_ref();
        ranges.is_none_or(|ranges| ranges.iter().any(|range| range.contains(address)))
    }
}

/// The port partitions that there are.
#[derive(Debug, Default)]
pub(super) struct Partitions(BTreeMap<Arc<str>, Partition>);

impl Partitions {
    pub(super) fn insert(&mut self, name: &str, partition: Partition) {
        self.0.insert(name.into(), partition);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// Those with addresses of a node with these labels, in the order in which an address that
    /// several have is given away: the older first.
    pub(super) fn of_node(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Vec<(&Arc<str>, &Partition)> {
        let of_node = self
            .0
            .iter()
            .filter(|(_, partition)| partition.is_of_node(labels));
        let mut partitions: Vec<_> = of_node.collect();
        partitions.sort_by_key(|(name, partition)| (partition.created, *name));
        partitions
    }

    /// Who has which of these addresses, and what is in two partitions.
    pub(super) fn divide(
        &self,
        addresses: &[IpAddr],
        labels: &BTreeMap<String, String>,
    ) -> (Division, Vec<Overlap>) {
        let here = self.of_node(labels);
        let mut parts: BTreeMap<&Arc<str>, Vec<IpAddr>> = BTreeMap::new();
        let (mut shared, mut overlaps) = (Vec::new(), Vec::new());
        for &address in addresses {
            let usable = |partition: &Partition| !address.is_loopback() && partition.has(address);
            let mut owners = here.iter().filter(|(_, partition)| usable(partition));
            let Some((owner, _)) = owners.next() else {
                shared.push(address);
                continue;
            };
            parts.entry(owner).or_default().push(address);
            overlaps.extend(owners.map(|(other, _)| Overlap {
                address,
                owner: (*owner).clone(),
                other: (*other).clone(),
            }));
        }
        let of_name = |name: &Arc<str>| {
            let addresses = parts.remove(name).unwrap_or_default();
            (name.clone(), Arc::from(addresses))
        };
        let division = Division {
            shared: shared.into(),
            partitions: self.names().map(of_name).collect(),
        };
        (division, overlaps)
    }
}

/// An address that two partitions have. It is the owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    pub address: IpAddr,
    pub owner: Arc<str>,
    pub other: Arc<str>,
}

/// The addresses of this node on which node ports answer, by whose they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Division {
    /// Of Services that name no partition.
    pub shared: Arc<[IpAddr]>,
    /// Of all partitions that there are, also of those without an address here.
    pub partitions: BTreeMap<Arc<str>, Arc<[IpAddr]>>,
}

impl Division {
    /// `None` where the Service names a partition that does not exist.
    pub(super) fn addresses(&self, selection: &Selection, family: Family) -> Option<Vec<IpAddr>> {
        let all = match &selection.partition {
            Some(name) => self.partitions.get(name)?,
            None => &self.shared,
        };
        let selected = |address: &&IpAddr| {
            let within = selection.within.as_ref();
            Family::of(**address) == family
                && within.is_none_or(|ranges| ranges.iter().any(|range| range.contains(**address)))
        };
        Some(all.iter().filter(selected).copied().collect())
    }

    /// Whether it is the same for a Service as another division.
    pub(super) fn is_same_for(&self, selection: &Selection, other: &Self) -> bool {
        match &selection.partition {
            Some(name) => self.partitions.get(name) == other.partitions.get(name),
            None => self.shared == other.shared,
        }
    }
}
