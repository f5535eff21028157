//! The Endpoints object of a Service, for clients that do not read slices: one family, ready and
//! not ready addresses, at most a thousand of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use portico_model::table::Family;

use super::{
    ANNOTATION_OVER_CAPACITY, ENDPOINTS_MANAGER, LABEL_ENDPOINTS_MANAGED_BY, PodFacts, Snapshot,
    plan::set_trigger_time,
    wanted::{
        self, Port, addresses_of, families, pod_reference, published_hostname, resolve_ports,
    },
};

/// More than this many addresses make an object that is too expensive to send around.
pub const MAX_ADDRESSES: usize = 1000;

/// What to do about the Endpoints of a Service.
#[derive(Debug, Default, PartialEq)]
pub enum EndpointsPlan {
    /// They are as they should be, or not this controller's.
    #[default]
    Keep,
    /// Create these.
    Create(Box<Endpoints>),
    /// Replace them by these.
    Update(Box<Endpoints>),
    /// Delete these.
    Delete(Box<Endpoints>),
}

/// Plans the Endpoints of a Service. Only an object with this controller's label is removed; the
/// API server removes it with its Service in any case.
pub fn plan_endpoints(snapshot: &Snapshot<'_>, trigger_time: Option<Timestamp>) -> EndpointsPlan {
    let Some(service) = snapshot.service else {
        let own = snapshot
            .endpoints
            .filter(|current| is_managed(&current.metadata));
        return own.map_or(EndpointsPlan::Keep, |current| {
            EndpointsPlan::Delete(Box::new(current.clone()))
        });
    };
    if wanted::selector(service).is_none() {
        return EndpointsPlan::Keep;
    }
    let wanted = Wanted::new(service, &snapshot.pods);
    let ours = snapshot
        .endpoints
        .is_some_and(|current| is_managed(&current.metadata));
    // Without a Pod there is nothing to say, and what another program wrote meanwhile stands.
    if wanted.subsets.is_empty() && !ours {
        return EndpointsPlan::Keep;
    }
    match snapshot.endpoints {
        Some(current) if wanted.is_met_by(current) => EndpointsPlan::Keep,
        Some(current) => EndpointsPlan::Update(Box::new(
            wanted.written_to(current.metadata.clone(), trigger_time),
        )),
        None if service.metadata.deletion_timestamp.is_some() => EndpointsPlan::Keep,
        None => EndpointsPlan::Create(Box::new(wanted.written_to(
            ObjectMeta {
                name: service.metadata.name.clone(),
                namespace: service.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            trigger_time,
        ))),
    }
}

fn is_managed(meta: &ObjectMeta) -> bool {
    meta.labels
        .iter()
        .flatten()
        .any(|(key, value)| key == LABEL_ENDPOINTS_MANAGED_BY && value == ENDPOINTS_MANAGER)
}

struct Wanted {
    subsets: Vec<EndpointSubset>,
    labels: BTreeMap<String, String>,
    over_capacity: bool,
}

impl Wanted {
    fn new(service: &Service, pods: &[&PodFacts]) -> Self {
        let mut labels = wanted::copied_labels(service, &[LABEL_ENDPOINTS_MANAGED_BY]);
        labels.insert(LABEL_ENDPOINTS_MANAGED_BY.into(), ENDPOINTS_MANAGER.into());
        let mut subsets = repack(pods.iter().flat_map(|pod| pod_subsets(service, pod)));
        let over_capacity = truncate(&mut subsets, MAX_ADDRESSES);
        Self {
            subsets,
            labels,
            over_capacity,
        }
    }

    /// Another writer may have packed the same addresses in another order.
    fn is_met_by(&self, current: &Endpoints) -> bool {
        let subsets = current.subsets.clone().unwrap_or_default();
        let annotations = current.metadata.annotations.as_ref();
        let marked = annotations
            .is_some_and(|annotations| annotations.contains_key(ANNOTATION_OVER_CAPACITY));
        current.metadata.labels.as_ref() == Some(&self.labels)
            && marked == self.over_capacity
            && (subsets == self.subsets || repack(subsets) == self.subsets)
    }

    fn written_to(self, mut metadata: ObjectMeta, trigger_time: Option<Timestamp>) -> Endpoints {
        metadata.labels = Some(self.labels);
        let annotations = metadata.annotations.get_or_insert_default();
        match self.over_capacity {
            true => annotations.insert(ANNOTATION_OVER_CAPACITY.into(), "truncated".into()),
            false => annotations.remove(ANNOTATION_OVER_CAPACITY),
        };
        set_trigger_time(&mut metadata, trigger_time);
        Endpoints {
            metadata,
            subsets: Some(self.subsets).filter(|subsets| !subsets.is_empty()),
        }
    }
}

/// One subset per port of the Pod; a headless Service may have no ports at all.
fn pod_subsets(service: &Service, pod: &PodFacts) -> Vec<EndpointSubset> {
    let publish_not_ready = wanted::publishes_not_ready(service);
    let published = !pod.finished && (publish_not_ready || !pod.terminating);
    let Some(address) = endpoint_address(service, pod).filter(|_| published) else {
        return Vec::new();
    };
    let ready = publish_not_ready || pod.ready;
    let portless =
        wanted::spec(service).is_none_or(|spec| spec.ports.iter().flatten().next().is_none());
    if portless {
        let headless = wanted::is_headless(service);
        return headless
            .then(|| subset(vec![address], ready, Vec::new()))
            .into_iter()
            .collect();
    }
    let ports = resolve_ports(service, pod);
    ports
        .iter()
        .map(|port| subset(vec![address.clone()], ready, vec![endpoint_port(port)]))
        .collect()
}

/// The address of the Service's first family; without `ipFamilies`, of the only one it can have, or
/// of the Pod's first.
fn endpoint_address(service: &Service, pod: &PodFacts) -> Option<EndpointAddress> {
    let listed = wanted::spec(service).and_then(|spec| spec.ip_families.as_ref()?.first());
    let family = match (listed.map(String::as_str), families(service)) {
        (Some("IPv6"), _) => Family::V6,
        (Some(_), _) => Family::V4,
        (None, families) if families.len() == 1 => families.first().copied()?,
        (None, _) => Family::of(*pod.ips.first()?),
    };
    Some(EndpointAddress {
        ip: addresses_of(pod, family).next()?.to_string(),
        hostname: published_hostname(service, pod),
        node_name: pod.node.clone(),
        target_ref: Some(pod_reference(pod)),
    })
}

fn endpoint_port(port: &Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone()).filter(|name| !name.is_empty()),
        protocol: Some(port.protocol.clone()),
        port: port.port.unwrap_or_default(),
        app_protocol: port.app_protocol.clone(),
    }
}

fn subset(
    addresses: Vec<EndpointAddress>,
    ready: bool,
    ports: Vec<EndpointPort>,
) -> EndpointSubset {
    let (ready, not_ready) = if ready {
        (addresses, Vec::new())
    } else {
        (Vec::new(), addresses)
    };
    packed(ready, not_ready, ports)
}

fn packed(
    ready: Vec<EndpointAddress>,
    not_ready: Vec<EndpointAddress>,
    ports: Vec<EndpointPort>,
) -> EndpointSubset {
    EndpointSubset {
        addresses: Some(ready).filter(|list| !list.is_empty()),
        not_ready_addresses: Some(not_ready).filter(|list| !list.is_empty()),
        ports: Some(ports).filter(|list| !list.is_empty()),
    }
}

/// Address and Pod: host-network Pods share the one and not the other.
type AddressId = (String, Option<String>);
/// Name, protocol, number and application protocol; none for a Service without ports.
type PortId = Option<(String, String, i32, Option<String>)>;

/// The canonical form: addresses that serve the same ports with the same readiness share a subset.
fn repack(subsets: impl IntoIterator<Item = EndpointSubset>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressId, EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<PortId, BTreeMap<AddressId, bool>> = BTreeMap::new();
    for subset in subsets {
        let ports = port_ids(subset.ports.unwrap_or_default());
        let ready = subset
            .addresses
            .into_iter()
            .flatten()
            .map(|address| (address, true));
        let not_ready = subset
            .not_ready_addresses
            .into_iter()
            .flatten()
            .map(|address| (address, false));
        for (address, ready) in ready.chain(not_ready) {
            let id = address_id(&address);
            for port in &ports {
                let known = by_port
                    .entry(port.clone())
                    .or_default()
                    .entry(id.clone())
                    .or_insert(ready);
                *known &= ready;
            }
            addresses
                .entry(id)
                .or_insert_with(|| without_version(address));
        }
    }
    let mut by_addresses: BTreeMap<BTreeMap<AddressId, bool>, BTreeSet<PortId>> = BTreeMap::new();
    for (port, served_by) in by_port {
        by_addresses.entry(served_by).or_default().insert(port);
    }
    by_addresses
        .into_iter()
        .map(|(served_by, ports)| unpack(&addresses, served_by, ports))
        .collect()
}

fn unpack(
    addresses: &BTreeMap<AddressId, EndpointAddress>,
    served_by: BTreeMap<AddressId, bool>,
    ports: BTreeSet<PortId>,
) -> EndpointSubset {
    let (ready, not_ready): (Vec<_>, Vec<_>) = served_by.into_iter().partition(|(_, ready)| *ready);
    let full = |ids: Vec<(AddressId, bool)>| {
        ids.iter()
            .filter_map(|(id, _)| addresses.get(id).cloned())
            .collect()
    };
    let ports = ports
        .into_iter()
        .flatten()
        .map(|(name, protocol, port, app_protocol)| EndpointPort {
            name: Some(name).filter(|name| !name.is_empty()),
            protocol: Some(protocol),
            port,
            app_protocol,
        });
    packed(full(ready), full(not_ready), ports.collect())
}

fn port_ids(ports: Vec<EndpointPort>) -> Vec<PortId> {
    if ports.is_empty() {
        return vec![None];
    }
    let id = |port: EndpointPort| {
        let protocol = port.protocol.unwrap_or_else(|| "TCP".into());
        Some((
            port.name.unwrap_or_default(),
            protocol,
            port.port,
            port.app_protocol,
        ))
    };
    ports.into_iter().map(id).collect()
}

fn address_id(address: &EndpointAddress) -> AddressId {
    (
        address.ip.clone(),
        address
            .target_ref
            .as_ref()
            .and_then(|target| target.uid.clone()),
    )
}

fn without_version(mut address: EndpointAddress) -> EndpointAddress {
    if let Some(target) = &mut address.target_ref {
        target.resource_version = None;
    }
    address
}

/// Cuts to `max` addresses: not ready ones go first, and each subset gives its share. True if
/// anything was cut.
fn truncate(subsets: &mut Vec<EndpointSubset>, max: usize) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let not_ready: usize = subsets
        .iter()
        .map(|subset| count(&subset.not_ready_addresses))
        .sum();
    if ready + not_ready <= max {
        return false;
    }
    if ready > max {
        subsets
            .iter_mut()
            .for_each(|subset| subset.not_ready_addresses = None);
        share(
            subsets.iter_mut().map(|subset| &mut subset.addresses),
            ready,
            max,
        );
    } else {
        share(
            subsets
                .iter_mut()
                .map(|subset| &mut subset.not_ready_addresses),
            not_ready,
            max - ready,
        );
    }
    // The API refuses a subset without addresses.
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    true
}

/// Leaves each list its part of `max`, rounded up; the last lists get what remains.
fn share<'a>(
    lists: impl Iterator<Item = &'a mut Option<Vec<EndpointAddress>>>,
    total: usize,
    max: usize,
) {
    let mut left = max;
    for list in lists {
        let Some(addresses) = list else { continue };
        addresses.truncate((addresses.len() * max).div_ceil(total.max(1)).min(left));
        left -= addresses.len();
        if addresses.is_empty() {
            *list = None;
        }
    }
}
