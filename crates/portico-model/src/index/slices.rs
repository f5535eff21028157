//! What is kept of an EndpointSlice, and the endpoints that the slices of a Service give one of its
//! ports.

use super::names::Names;
use super::parse::Complaints;
use crate::objects::{
    EndpointSlice, HEADLESS, Hints, Named, SERVICE_NAME, SliceEndpoint, SlicePort,
};
use crate::table::{Endpoint, Family, Protocol};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const NO_ZONES: u16 = u16::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SliceRecord {
    pub name: Arc<str>,
    ports: Box<[(Arc<str>, Protocol, u16)]>,
    endpoints: Endpoints,
    /// The distinct lists of zones that endpoints of this slice are meant for.
    zones: Box<[Zones]>,
    /// The nodes of the endpoints, each once; empty unless addresses are announced.
    places: Box<[Place]>,
}

type Zones = Box<[Box<str>]>;

/// There are more of these than of anything else, so the small addresses take little space.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Endpoints {
    V4(Box<[EndpointRecord<Ipv4Addr>]>),
    V6(Box<[EndpointRecord<Ipv6Addr>]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndpointRecord<A> {
    address: A,
    /// Which of [`SliceRecord::zones`].
    zones: u16,
    condition: Condition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub local: bool,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    /// It is meant for certain nodes.
    pub node_hints: bool,
    /// This node is one of them.
    pub hinted_here: bool,
}

/// A node that has endpoints; an empty name stands for none, since endpoints need not be on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    node: Arc<str>,
    /// How many are ready.
    ready: u32,
    /// How many end and still serve.
    fallback: u32,
}

impl Condition {
    /// It gets connections, if only for want of a better one.
    pub(super) fn is_usable(self) -> bool {
        self.ready || self.is_fallback()
    }

    /// It ends, and serves until then.
    pub(super) fn is_fallback(self) -> bool {
        self.serving && self.terminating
    }
}

/// An endpoint of a service port, with what the choice of the pools needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub endpoint: Endpoint,
    pub condition: Condition,
    pub zones: &'a [Box<str>],
}

/// The Service that a slice belongs to, if any proxied one.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<&str> {
    let labels = &slice.metadata.labels;
    let service = labels
        .get(SERVICE_NAME)
        .filter(|service| !service.is_empty())?;
    (!labels.contains_key(HEADLESS)).then_some(service)
}

impl SliceRecord {
    /// `None` for a slice of names instead of addresses.
    pub(super) fn read(
        slice: &EndpointSlice,
        node: &str,
        names: &mut Names,
        complaints: &mut Complaints<'_>,
    ) -> Option<Self> {
        let mut zones = Vec::new();
        let endpoints = match Family::named(&slice.address_type)? {
            Family::V4 => Endpoints::V4(read_endpoints(
                slice,
                node,
                &mut zones,
                complaints,
                |address| match address {
                    IpAddr::V4(address) => Some(address),
                    IpAddr::V6(_) => None,
                },
            )),
            Family::V6 => Endpoints::V6(read_endpoints(
                slice,
                node,
                &mut zones,
                complaints,
                |address| match address {
                    IpAddr::V4(_) => None,
                    IpAddr::V6(address) => Some(address),
                },
            )),
        };
        let ports = slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| slice_port(port, names, complaints))
            .collect();
        let name = slice.metadata.name.as_str().into();
        Some(Self {
            name,
            ports,
            endpoints,
            zones: zones.into(),
            places: Box::default(),
        })
    }

    /// The same, with the nodes of its endpoints.
    pub(super) fn with_places(self, slice: &EndpointSlice, names: &mut Names) -> Self {
        let mut places: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for endpoint in slice.endpoints.iter().flatten() {
            let condition = condition(endpoint, "");
            if condition.is_usable() {
                let node = endpoint.node_name.as_deref().unwrap_or_default();
                let (ready, fallback) = places.entry(node).or_default();
                *(if condition.ready { ready } else { fallback }) += 1;
            }
        }
        let places = places.into_iter().map(|(node, (ready, fallback))| Place {
            node: names.get(node),
            ready,
            fallback,
        });
        Self {
            places: places.collect(),
            ..self
        }
    }

    fn is_served(&self) -> bool {
        match &self.endpoints {
            Endpoints::V4(records) => records.iter().any(|record| record.condition.is_usable()),
            Endpoints::V6(records) => records.iter().any(|record| record.condition.is_usable()),
        }
    }

    fn family(&self) -> Family {
        match self.endpoints {
            Endpoints::V4(_) => Family::V4,
            Endpoints::V6(_) => Family::V6,
        }
    }

    fn add_candidates<'a>(&'a self, port: u16, all: &mut Vec<Candidate<'a>>) {
        match &self.endpoints {
            Endpoints::V4(records) => {
                all.extend(records.iter().map(|record| self.candidate(record, port)))
            }
            Endpoints::V6(records) => {
                all.extend(records.iter().map(|record| self.candidate(record, port)))
            }
        }
    }

    fn candidate<A: Copy + Into<IpAddr>>(
        &self,
        record: &EndpointRecord<A>,
        port: u16,
    ) -> Candidate<'_> {
        Candidate {
            endpoint: Endpoint {
                address: record.address.into(),
                port,
                local: record.condition.local,
            },
            condition: record.condition,
            zones: self
                .zones
                .get(usize::from(record.zones))
                .map_or(&[], |zones| zones),
        }
    }
}

fn read_endpoints<A>(
    slice: &EndpointSlice,
    node: &str,
    zones: &mut Vec<Zones>,
    complaints: &mut Complaints<'_>,
    of_family: impl Fn(IpAddr) -> Option<A>,
) -> Box<[EndpointRecord<A>]> {
    let read = |endpoint: &SliceEndpoint| {
        let address =
            complaints.address_where(endpoint.addresses.first()?, &of_family, "endpoint")?;
        let zones = position(zones, endpoint.hints.as_ref());
        Some(EndpointRecord {
            address,
            zones,
            condition: condition(endpoint, node),
        })
    };
    slice.endpoints.iter().flatten().filter_map(read).collect()
}

/// The endpoints of one port, sorted, each once. Slices are given in the order of their names.
pub(super) fn candidates<'a>(
    slices: &'a [SliceRecord],
    family: Family,
    name: &str,
    protocol: Protocol,
) -> Vec<Candidate<'a>> {
    let mut all = Vec::new();
    for slice in slices.iter().filter(|slice| slice.family() == family) {
        for (_, _, number) in slice
            .ports
            .iter()
            .filter(|(n, p, _)| &**n == name && *p == protocol)
        {
            slice.add_candidates(*number, &mut all);
        }
    }
    once(all)
}

/// How many endpoints are ready on this node, counting an address with several ports once.
pub(super) fn ready_here(slices: &[SliceRecord], family: Family) -> u32 {
    let of_family = slices.iter().filter(|slice| slice.family() == family);
    let mut ports: Vec<_> = of_family
        .flat_map(|slice| &slice.ports)
        .map(|(name, protocol, _)| (&**name, *protocol))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    let of_port = |(name, protocol)| candidates(slices, family, name, protocol);
    let all = ports.into_iter().flat_map(of_port);
    let ready = all.filter(|candidate| candidate.condition.local && candidate.condition.ready);
    let mut addresses: Vec<IpAddr> = ready.map(|candidate| candidate.endpoint.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    u32::try_from(addresses.len()).unwrap_or(u32::MAX)
}

/// Whether there is an endpoint at all.
pub(super) fn served(slices: &[SliceRecord], family: Family) -> bool {
    slices
        .iter()
        .any(|slice| slice.family() == family && slice.is_served())
}

/// The nodes with a ready endpoint, sorted; where none is ready, those with one that ends and still
/// serves.
pub(super) fn places(slices: &[SliceRecord], family: Family) -> Box<[Arc<str>]> {
    let of_family = slices.iter().filter(|slice| slice.family() == family);
    let all: Vec<&Place> = of_family
        .flat_map(|slice| &slice.places)
        .filter(|place| !place.node.is_empty())
        .collect();
    let any_ready = all.iter().any(|place| place.ready > 0);
    let mut nodes: Vec<Arc<str>> = all
        .iter()
        .filter(|place| (place.ready > 0) == any_ready)
        .map(|place| place.node.clone())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.into()
}

/// How many endpoints of a port each node has, sorted by the nodes' names: those that are ready, or
/// where none is, those that end and still serve. `None` where one of them is on no node.
pub(super) fn weights(
    slices: &[SliceRecord],
    family: Family,
    name: &str,
    protocol: Protocol,
) -> Option<Vec<(Arc<str>, u32)>> {
    let has_port = |slice: &&SliceRecord| {
        let mut ports = slice.ports.iter();
        slice.family() == family && ports.any(|(n, p, _)| &**n == name && *p == protocol)
    };
    let of_port = || {
        slices
            .iter()
            .filter(has_port)
            .flat_map(|slice| &slice.places)
    };
    let any_ready = of_port().any(|place| place.ready > 0);
    let mut weights: BTreeMap<&Arc<str>, u32> = BTreeMap::new();
    for place in of_port() {
        let weight = if any_ready {
            place.ready
        } else {
            place.fallback
        };
        if weight > 0 {
            *weights.entry(&place.node).or_default() += weight;
        }
    }
    let on_nodes = weights.keys().all(|node| !node.is_empty());
    let listed = weights
        .into_iter()
        .map(|(node, weight)| (Arc::clone(node), weight));
    on_nodes.then(|| listed.collect())
}

/// An endpoint is in two slices while it moves from one to the other, and one address belongs to
/// two pods when it is used again while the first pod ends: the one that is not ending counts,
/// otherwise the first.
fn once(mut all: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    all.sort_by_key(|candidate| (candidate.endpoint.address, candidate.endpoint.port));
    all.dedup_by(|later, kept| {
        let same = (later.endpoint.address, later.endpoint.port)
            == (kept.endpoint.address, kept.endpoint.port);
        if same && !later.condition.terminating {
            *kept = *later;
        }
        same
    });
    all
}

fn slice_port(
    port: &SlicePort,
    names: &mut Names,
    complaints: &mut Complaints<'_>,
) -> Option<(Arc<str>, Protocol, u16)> {
    let name = port.name.as_deref().unwrap_or_default();
    let protocol = complaints.protocol(port.protocol.as_deref().unwrap_or_default())?;
    match port.port {
        Some(number) if number != 0 => Some((names.get(name), protocol, number)),
        _ => {
            complaints.add(format!("port {name:?} has no valid number; it is left out"));
            None
        }
    }
}

fn condition(endpoint: &SliceEndpoint, node: &str) -> Condition {
    let hinted = endpoint
        .hints
        .as_ref()
        .and_then(|hints| hints.for_nodes.as_deref())
        .unwrap_or_default();
    Condition {
        local: !node.is_empty() && endpoint.node_name.as_deref() == Some(node),
        ready: endpoint.conditions.ready.unwrap_or(true),
        serving: endpoint.conditions.serving.unwrap_or(true),
        terminating: endpoint.conditions.terminating.unwrap_or(false),
        node_hints: !hinted.is_empty(),
        hinted_here: hinted.iter().any(|hint| hint.name == node),
    }
}

/// Where the endpoint's list of zones is among those of the slice; it is added if it is new.
fn position(known: &mut Vec<Zones>, hints: Option<&Hints>) -> u16 {
    let wanted: &[Named] = hints
        .and_then(|hints| hints.for_zones.as_deref())
        .unwrap_or_default();
    if wanted.is_empty() {
        return NO_ZONES;
    }
    let equal = |zones: &Zones| {
        zones
            .iter()
            .map(|zone| &**zone)
            .eq(wanted.iter().map(|zone| zone.name.as_str()))
    };
    let position = known.iter().position(equal).unwrap_or_else(|| {
        known.push(
            wanted
                .iter()
                .map(|zone| zone.name.as_str().into())
                .collect(),
        );
        known.len() - 1
    });
    u16::try_from(position).unwrap_or(NO_ZONES)
}
