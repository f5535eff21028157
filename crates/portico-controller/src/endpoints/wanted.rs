//! What the endpoints of a Service should be: from the Service, its Pods and the zones of their
//! nodes. Where they go, and what has to be written for that, is the business of `plan`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, Service, ServicePort, ServiceSpec},
        discovery::v1::{
            Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use portico_model::table::Family;

use super::{LABEL_HEADLESS, PodFacts, pod::parse_ip};

/// Node name to zone, for every node there is.
pub(super) type Zones = BTreeMap<String, Option<String>>;

/// A port of an endpoint, resolved for one Pod; absent and default values are the same value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub name: String,
    pub protocol: String,
    pub port: Option<i32>,
    pub app_protocol: Option<String>,
}

impl Port {
    pub(super) fn of(port: &EndpointPort) -> Self {
        Self {
            name: port.name.clone().unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            port: port.port,
            app_protocol: port.app_protocol.clone(),
        }
    }

    pub(super) fn to_endpoint_port(&self) -> EndpointPort {
        EndpointPort {
            name: Some(self.name.clone()),
            protocol: Some(self.protocol.clone()),
            port: self.port,
            app_protocol: self.app_protocol.clone(),
        }
    }
}

/// What makes two endpoints the same one, whatever their conditions and topology.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndpointId {
    addresses: Vec<String>,
    hostname: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

impl EndpointId {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let mut addresses = endpoint.addresses.clone();
        addresses.sort_unstable();
        let target = endpoint.target_ref.as_ref();
        Self {
            addresses,
            hostname: endpoint.hostname.clone(),
            namespace: target.and_then(|target| target.namespace.clone()),
            name: target.and_then(|target| target.name.clone()),
        }
    }
}

/// The endpoints that share one set of ports. May be empty: Pods were selected, none can be
/// published.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// In the order of the Service.
    pub ports: Vec<Port>,
    pub endpoints: BTreeMap<EndpointId, Endpoint>,
}

/// Groups by their sorted ports.
pub(super) type Groups = BTreeMap<Vec<Port>, Group>;

/// Sorted ports: the key of a group, and of the slices that can hold its endpoints.
pub(super) fn port_set(mut ports: Vec<Port>) -> Vec<Port> {
    ports.sort_unstable();
    ports
}

/// The wanted endpoints of one family.
pub(super) fn groups(
    service: &Service,
    pods: &[&PodFacts],
    zones: &Zones,
    family: Family,
) -> Groups {
    let mut groups = Groups::new();
    for pod in pods
        .iter()
        .filter(|pod| !pod.finished && !pod.ips.is_empty())
    {
        let ports = resolve_ports(service, pod);
        let group = groups.entry(port_set(ports.clone())).or_default();
        group.ports = ports;
        if let Some(endpoint) = endpoint(service, pod, zones, family) {
            group.endpoints.insert(EndpointId::of(&endpoint), endpoint);
        }
    }
    groups
}

fn endpoint(service: &Service, pod: &PodFacts, zones: &Zones, family: Family) -> Option<Endpoint> {
    let addresses: Vec<String> = addresses_of(pod, family).map(|ip| ip.to_string()).collect();
    let publish_not_ready = publishes_not_ready(service);
    let node = pod.node.as_deref().and_then(|node| zones.get(node));
    // A Pod on a node that does not exist is about to be removed, unless the Service asks for every
    // Pod there is.
    if addresses.is_empty() || (node.is_none() && !publish_not_ready) {
        return None;
    }
    let ready = publish_not_ready || (pod.ready && !pod.terminating);
    let zone = node.cloned().flatten();
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(pod.ready),
            terminating: Some(pod.terminating),
        }),
        hints: if ready {
            hints(service, zone.as_deref(), pod.node.as_deref())
        } else {
            None
        },
        hostname: published_hostname(service, pod),
        node_name: pod.node.clone(),
        target_ref: Some(pod_reference(pod)),
        zone,
        ..Endpoint::default()
    })
}

pub(super) fn addresses_of(pod: &PodFacts, family: Family) -> impl Iterator<Item = &IpAddr> {
    pod.ips.iter().filter(move |ip| Family::of(**ip) == family)
}

pub(super) fn pod_reference(pod: &PodFacts) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: Some(pod.key.namespace.to_string()),
        name: Some(pod.key.name.to_string()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

/// A Pod has its own name in DNS when its subdomain is the Service.
pub(super) fn published_hostname(service: &Service, pod: &PodFacts) -> Option<String> {
    let name = service.metadata.name.as_deref();
    pod.hostname
        .clone()
        .filter(|_| pod.subdomain.is_some() && pod.subdomain.as_deref() == name)
}

/// The hints that `trafficDistribution` asks for. The older annotation for topology-aware routing
/// takes its place, and its proportional hints are not computed.
fn hints(service: &Service, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let distribution = spec(service)?.traffic_distribution.as_deref()?;
    if topology_annotation_is_auto(service) {
        return None;
    }
    let node = match distribution {
        "PreferClose" | "PreferSameZone" => None,
        "PreferSameNode" => node,
        _ => return None,
    };
    let for_zones = zone.map(|name| vec![ForZone { name: name.into() }]);
    let for_nodes = node.map(|name| vec![ForNode { name: name.into() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints {
        for_nodes,
        for_zones,
    })
}

fn topology_annotation_is_auto(service: &Service) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    let of = |key: &str| annotations.and_then(|annotations| annotations.get(key));
    let mode = of("service.kubernetes.io/topology-aware-hints")
        .or_else(|| of("service.kubernetes.io/topology-mode"));
    matches!(mode.map(String::as_str), Some("Auto" | "auto"))
}

/// The ports of the Service as this Pod serves them; a named port that the Pod does not have is
/// left out.
pub(super) fn resolve_ports(service: &Service, pod: &PodFacts) -> Vec<Port> {
    let ports = spec(service).and_then(|spec| spec.ports.as_ref());
    ports
        .into_iter()
        .flatten()
        .filter_map(|port| resolve_port(port, pod))
        .collect()
}

fn resolve_port(port: &ServicePort, pod: &PodFacts) -> Option<Port> {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
    let number = match &port.target_port {
        None | Some(IntOrString::Int(0)) => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => pod.named_port(name, &protocol)?,
    };
    Some(Port {
        name: port.name.clone().unwrap_or_default(),
        protocol,
        port: Some(number),
        app_protocol: port.app_protocol.clone(),
    })
}

pub(super) fn spec(service: &Service) -> Option<&ServiceSpec> {
    service.spec.as_ref()
}

pub(super) fn publishes_not_ready(service: &Service) -> bool {
    spec(service)
        .and_then(|spec| spec.publish_not_ready_addresses)
        .unwrap_or(false)
}

/// The selector, for the Services that this controller serves.
pub(super) fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = spec(service).filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
    spec.selector
        .as_ref()
        .filter(|selector| !selector.is_empty())
}

fn cluster_ip(service: &Service) -> Option<&str> {
    let ip = spec(service)?.cluster_ip.as_deref();
    ip.filter(|ip| !ip.is_empty() && *ip != "None")
}

pub(super) fn is_headless(service: &Service) -> bool {
    cluster_ip(service).is_none()
}

/// The families a Service has endpoints in. Without `ipFamilies` (an old server): that of its
/// address, or both.
pub(super) fn families(service: &Service) -> BTreeSet<Family> {
    let listed = spec(service)
        .and_then(|spec| spec.ip_families.as_ref())
        .into_iter()
        .flatten();
    let families: BTreeSet<Family> = listed.filter_map(|name| Family::named(name)).collect();
    match (families.is_empty(), cluster_ip(service)) {
        (false, _) => families,
        (true, Some(ip)) => BTreeSet::from([parse_ip(ip).map_or(Family::V4, Family::of)]),
        (true, None) => BTreeSet::from([Family::V4, Family::V6]),
    }
}

/// The labels of the Service without `reserved`, and with the mark of a headless one.
pub(super) fn copied_labels(service: &Service, reserved: &[&str]) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| key != LABEL_HEADLESS && !reserved.contains(&key.as_str()));
    if is_headless(service) {
        labels.insert(LABEL_HEADLESS.into(), String::new());
    }
    labels
}
