//! A Service as the controller sees it: whose it is, what is wanted of a load balancer, what its
//! status says.

use portico_view::key_of;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use portico_model::partitions::{self, NODE_PORT_ADDRESSES, PORT_PARTITION};
use portico_model::pools::AddressRange;
use portico_model::report::NodePortReach;

use super::conditions::Present;
use crate::provider::{
    Family, HealthCheck, Host, Ingress, IpMode, Node, Port, Protocol, Request, ServiceRef,
};
use portico_model::key::ObjectKey;

/// Set before the first call of a provider, removed after the last.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Services with this label are forwarded by another proxy than the nodes' own.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Which Services are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ownership {
    provider: String,
    /// `--load-balancer-class`: only Services of this class, if it is given.
    class: Option<String>,
    /// Beside [`FINALIZER`], which other controllers use and remove too: says whose the load
    /// balancer is. It is the class that the controller serves.
    pub finalizer: String,
}

impl Ownership {
    pub(super) fn new(provider: &str, class: Option<String>) -> Self {
        let kind = provider.split(':').next().unwrap_or_default();
        let finalizer = class
            .clone()
            .unwrap_or_else(|| format!("portico.dev/{kind}"));
        Self {
            provider: kind.to_owned(),
            class,
            finalizer,
        }
    }

    fn is_ours(&self, class: Option<&str>) -> bool {
        match (&self.class, class) {
            (Some(ours), class) => class == Some(ours),
            (None, None) => true,
            (None, Some(class)) => class.strip_prefix("portico.dev/") == Some(&self.provider),
        }
    }
}

/// What the controller has to do with a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It gets a load balancer.
    Wanted,
    /// It had one from us, and is to have none.
    CleanUp,
    /// The same, and another controller makes the load balancer now: what it writes is left alone.
    HandOver,
    NotOurs,
}

/// What of the cluster goes into a request.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub cluster: String,
    pub node_healthz_port: u16,
    /// Whether addresses are written with their `ipMode`.
    pub load_balancer_ip_mode: bool,
    pub ownership: Ownership,
    /// Nobody is to have a load balancer from this controller any more.
    pub release: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    pub key: ObjectKey,
    pub version: u64,
    pub resource_version: String,
    pub generation: Option<i64>,
    pub claim: Claim,
    pub deleting: bool,
    /// Both finalizers are there.
    pub held: bool,
    pub other_proxy: bool,
    /// What providers are told, but for nodes, endpoints and ingress. One that is equal needs no
    /// call.
    pub request: Arc<Request>,
    /// Where its node ports answer.
    pub selection: Selection,
    /// What the status says.
    pub ingress: Vec<Ingress>,
    /// An address in the status has no `ipMode`. API servers that know the field fill it in, so
    /// this one drops it.
    drops_ip_mode: bool,
    pub conditions: Present,
}

/// What a Service says of the addresses of its node ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Selection {
    pub partition: Option<Arc<str>>,
    within: Option<Vec<AddressRange>>,
}

impl Selection {
    fn of(metadata: &ObjectMeta) -> Self {
        let annotation = |key: &str| {
            let value = metadata.annotations.as_ref()?.get(key)?.trim();
            (!value.is_empty()).then_some(value)
        };
        Self {
            partition: annotation(PORT_PARTITION).map(Arc::from),
            // What cannot be read selects no address, as on the nodes.
            within: annotation(NODE_PORT_ADDRESSES)
                .map(|text| partitions::ranges(text).unwrap_or_default()),
        }
    }

    /// The node with those of its addresses on which the Service's node ports answer, if there are
    /// any.
    pub(super) fn of_node(&self, node: &Node, reach: Option<&NodePortReach>) -> Option<Node> {
        let in_partition = |address: IpAddr| match (&self.partition, reach) {
            (None, reach) => reach.is_none_or(|reach| reach.partition_of(address).is_none()),
            (Some(_), None) => false,
            (Some(partition), Some(reach)) => reach.answers_at(address, Some(partition)),
        };
        let is_within = |address: IpAddr| {
            let within = self.within.as_ref();
            within.is_none_or(|ranges| ranges.iter().any(|range| range.contains(address)))
        };
        let mut node = node.clone();
        let had = node.addresses.len();
        node.addresses
            .retain(|address| in_partition(*address) && is_within(*address));
        let all_are_its = *self == Self::default() && node.addresses.len() == had;
        (all_are_its || !node.addresses.is_empty()).then_some(node)
    }

    /// It follows from the partition alone.
    pub(super) fn selects_no_addresses(&self) -> bool {
        self.within.is_none()
    }
}

impl Facts {
    pub(super) fn of(service: &Service, surroundings: &Surroundings) -> Self {
        let (metadata, spec) = (&service.metadata, service.spec.clone().unwrap_or_default());
        let ours = &surroundings.ownership;
        let has = |finalizer: &str| {
            metadata
                .finalizers
                .iter()
                .flatten()
                .any(|name| name == finalizer)
        };
        let deleting = metadata.deletion_timestamp.is_some();
        let released = surroundings.release && !deleting;
        // What only has the shared finalizer may be held by another controller, which goes on.
        let shared = has(FINALIZER) && !released;
        let ends = deleting || released;
        let claim = claim(&spec, ends, shared, has(&ours.finalizer), ours);
        let labels = metadata.labels.as_ref();
        Self {
            key: key_of(metadata),
            version: version(metadata),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            generation: metadata.generation,
            claim,
            deleting,
            held: has(FINALIZER) && has(&ours.finalizer),
            other_proxy: labels.is_some_and(|labels| labels.contains_key(OTHER_PROXY)),
            request: Arc::new(request(service, spec, surroundings)),
            selection: Selection::of(metadata),
            ingress: ingress(service),
            drops_ip_mode: points(service)
                .any(|point| point.ip.is_some() && point.ip_mode.is_none()),
            conditions: Present::of(service),
        }
    }

    /// Whether the status says this, as far as the API server can say it.
    pub(super) fn shows(&self, ingress: &[Ingress]) -> bool {
        match self.drops_ip_mode {
            true => {
                let hosts = ingress.iter().map(|point| &point.host);
                self.ingress.iter().map(|point| &point.host).eq(hosts)
            }
            false => self.ingress == ingress,
        }
    }

    pub(super) fn uid(&self) -> &str {
        &self.request.service.uid
    }

    /// Is this the same version of the same Service, or a later one?
    pub(super) fn is_not_older(&self, metadata: &ObjectMeta) -> bool {
        metadata.uid.as_deref() == Some(self.uid()) && self.version >= version(metadata)
    }
}

fn version(metadata: &ObjectMeta) -> u64 {
    metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// A type that is not LoadBalancer has no class, so the own finalizer has to say whose the Service
/// was. `ends`: the Service is being deleted, or no Service is to keep its load balancer.
fn claim(spec: &ServiceSpec, ends: bool, shared: bool, own: bool, ours: &Ownership) -> Claim {
    let balanced = spec.type_.as_deref() == Some("LoadBalancer");
    let of_our_class = balanced && ours.is_ours(spec.load_balancer_class.as_deref());
    match () {
        () if of_our_class && !ends => Claim::Wanted,
        () if of_our_class && (own || shared) => Claim::CleanUp,
        () if own && balanced => Claim::HandOver,
        () if own => Claim::CleanUp,
        () => Claim::NotOurs,
    }
}

fn request(service: &Service, spec: ServiceSpec, surroundings: &Surroundings) -> Request {
    let metadata = &service.metadata;
    let uid = metadata.uid.clone().unwrap_or_default();
    let annotations = metadata.annotations.clone().unwrap_or_default();
    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    let health_check_port = spec
        .health_check_node_port
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0);
    let health_check_port = if local {
        health_check_port
    } else {
        Some(surroundings.node_healthz_port)
    };
    let ranges = spec.load_balancer_source_ranges.unwrap_or_default();
    let listed = annotations
        .get(SOURCE_RANGES)
        .map(String::as_str)
        .unwrap_or_default();
    let ranges: Vec<&str> = match ranges.is_empty() {
        true => listed.split(',').collect(),
        false => ranges.iter().map(String::as_str).collect(),
    };
    let sticky = spec.session_affinity.as_deref() == Some("ClientIP");
    let timeout = spec
        .session_affinity_config
        .and_then(|config| config.client_ip)
        .and_then(|client| client.timeout_seconds);
    Request {
        cluster: surroundings.cluster.clone(),
        balancer_name: balancer_name(&uid),
        service: ServiceRef {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid,
        },
        class: spec.load_balancer_class,
        labels: metadata.labels.clone().unwrap_or_default(),
        requested_ip: spec.load_balancer_ip.filter(|ip| !ip.is_empty()),
        families: spec
            .ip_families
            .iter()
            .flatten()
            .filter_map(|family| Family::named(family))
            .collect(),
        require_all_families: spec.ip_family_policy.as_deref() == Some("RequireDualStack"),
        ports: spec.ports.iter().flatten().filter_map(parse_port).collect(),
        local,
        selector: spec.selector.unwrap_or_default(),
        affinity: sticky.then(|| {
            timeout
                .and_then(|seconds| u32::try_from(seconds).ok())
                .unwrap_or(10_800)
        }),
        source_ranges: ranges
            .into_iter()
            .filter_map(|range| range.trim().parse().ok())
            .collect(),
        health_check: health_check_port.map(|port| HealthCheck {
            port,
            path: "/healthz".to_owned(),
        }),
        nodes: Vec::new(),
        endpoints: Vec::new(),
        ingress: Vec::new(),
        annotations,
    }
}

/// The name of a load balancer, as the cloud controllers of Kubernetes make it.
pub fn balancer_name(uid: &str) -> String {
    let letters = uid.chars().filter(|letter| *letter != '-');
    std::iter::once('a').chain(letters).take(32).collect()
}

pub(super) fn parse_protocol(text: Option<&str>) -> Protocol {
    text.and_then(Protocol::named).unwrap_or(Protocol::Tcp)
}

fn parse_port(port: &ServicePort) -> Option<Port> {
    Some(Port {
        name: port.name.clone().unwrap_or_default(),
        protocol: parse_protocol(port.protocol.as_deref()),
        port: u16::try_from(port.port).ok()?,
        node_port: port
            .node_port
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(0),
        app_protocol: port.app_protocol.clone(),
    })
}

fn points(service: &Service) -> impl Iterator<Item = &LoadBalancerIngress> {
    let balancer = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    balancer
        .and_then(|balancer| balancer.ingress.as_ref())
        .into_iter()
        .flatten()
}

fn ingress(service: &Service) -> Vec<Ingress> {
    points(service).filter_map(parse_ingress).collect()
}

fn parse_ingress(ingress: &LoadBalancerIngress) -> Option<Ingress> {
    let address = ingress
        .ip
        .as_deref()
        .and_then(|ip| ip.parse::<IpAddr>().ok())
        .map(Host::Ip);
    let name = || {
        ingress
            .hostname
            .clone()
            .filter(|name| !name.is_empty())
            .map(Host::Name)
    };
    let mode = if ingress.ip_mode.as_deref() == Some("Proxy") {
        IpMode::Proxy
    } else {
        IpMode::Vip
    };
    Some(Ingress {
        host: address.or_else(name)?,
        mode,
    })
}

#[cfg(test)]
mod tests;
