//! What an endpoint can depend on in a Pod, and nothing else: two Pods with equal facts give equal
//! endpoints, and a hundred thousand of them fit in memory.

use portico_view::key_of;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodCondition, PodStatus};

use super::ObjectKey;

/// What of a Pod decides about its endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The node that it runs on, if it is scheduled.
    pub node: Option<String>,
    /// `spec.hostname`, if it is set.
    pub hostname: Option<String>,
    /// `spec.subdomain`, if it is set.
    pub subdomain: Option<String>,
    /// At most one per family, in canonical form.
    pub ips: Vec<IpAddr>,
    /// Whether its condition `Ready` is True.
    pub ready: bool,
    /// When readiness last changed.
    pub ready_since: Option<Timestamp>,
    /// Whether it has a deletion timestamp.
    pub terminating: bool,
    /// Succeeded or failed: its containers will not run again.
    pub finished: bool,
    /// The ports of its containers that have names.
    pub ports: Vec<NamedPort>,
}

/// A port of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// The name of the port.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number of the port.
    pub port: i32,
}

impl PodFacts {
    /// The facts of a Pod.
    pub fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let ready = status.and_then(ready_condition);
        Self {
            key: key_of(&pod.metadata),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            node: spec.and_then(|spec| non_empty(&spec.node_name)),
            hostname: spec.and_then(|spec| non_empty(&spec.hostname)),
            subdomain: spec.and_then(|spec| non_empty(&spec.subdomain)),
            ips: status.map(addresses).unwrap_or_default(),
            ready: ready.is_some_and(|condition| condition.status == "True"),
            ready_since: ready
                .and_then(|condition| condition.last_transition_time.as_ref())
                .map(|time| time.0),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            finished: matches!(
                status.and_then(|status| status.phase.as_deref()),
                Some("Succeeded" | "Failed")
            ),
            ports: named_ports(pod),
        }
    }

    /// The container port that a named target port stands for; the protocol has to fit.
    pub fn named_port(&self, name: &str, protocol: &str) -> Option<i32> {
        self.ports
            .iter()
            .find(|port| port.name == name && port.protocol == protocol)
            .map(|port| port.port)
    }
}

fn non_empty(value: &Option<String>) -> Option<String> {
    value.clone().filter(|value| !value.is_empty())
}

fn ready_condition(status: &PodStatus) -> Option<&PodCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready")
}

/// `podIPs`, or `podIP` where a server does not keep the two in step.
fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let plural: Vec<IpAddr> = status
        .pod_ips
        .iter()
        .flatten()
        .filter_map(|entry| parse_ip(&entry.ip))
        .collect();
    if plural.is_empty() {
        status
            .pod_ip
            .as_deref()
            .and_then(parse_ip)
            .into_iter()
            .collect()
    } else {
        plural
    }
}

/// Accepts what old objects may hold: leading zeros in IPv4 octets, and IPv4 written as IPv6.
pub(super) fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.parse::<IpAddr>() {
        Ok(ip) => Some(ip.to_canonical()),
        Err(_) => parse_padded_ipv4(text).map(IpAddr::V4),
    }
}

fn parse_padded_ipv4(text: &str) -> Option<Ipv4Addr> {
    let octets: Vec<u8> = text.split('.').map(parse_octet).collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
}

fn parse_octet(octet: &str) -> Option<u8> {
    octet
        .parse()
        .ok()
        .filter(|_| octet.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Ports of the containers that keep running, in the order in which a name is looked up:
/// containers, then sidecars.
fn named_ports(pod: &Pod) -> Vec<NamedPort> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|it| it.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(container_ports)
        .filter_map(named_port)
        .collect()
}

fn container_ports(container: &Container) -> impl Iterator<Item = &ContainerPort> {
    container.ports.iter().flatten()
}

fn named_port(port: &ContainerPort) -> Option<NamedPort> {
    Some(NamedPort {
        name: non_empty(&port.name)?,
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
        port: port.container_port,
    })
}
