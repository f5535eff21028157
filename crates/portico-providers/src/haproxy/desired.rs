//! What a Service asks of HAProxy: its request, with annotations understood, cut down to what can
//! stand in a configuration. Whatever people may write freely ends here: it becomes a number, an
//! address, a choice, or a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use portico_model::duration;
use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::{Family, Host, Node, Port, Protocol, ProviderError, Request};

const ANNOTATION_PROXY: &str = "portico.dev/proxy-protocol";
const ANNOTATION_TARGETS: &str = "portico.dev/targets";
const ANNOTATION_IDLE: &str = "portico.dev/idle-timeout";
const ANNOTATION_BALANCE: &str = "portico.dev/balance";
const ANNOTATION_ADDRESSES: &str = "portico.dev/addresses";

/// Where HAProxy sends connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Targets {
    /// To the node ports of nodes, which forward them.
    Nodes,
    /// To endpoints, for a HAProxy that reaches them.
    Endpoints,
}

impl Targets {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "nodes" => Some(Self::Nodes),
            "endpoints" => Some(Self::Endpoints),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ProxyProtocol {
    V1,
    V2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Balance {
    LeastConnections,
    RoundRobin,
    Random,
}

/// How a server is asked for its health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Check {
    /// `GET /healthz` at this port.
    Healthz(u16),
    /// Whether it takes a connection.
    Connect,
}

/// Everything about the ports of a Service but addresses and servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Options {
    pub proxy: Option<ProxyProtocol>,
    pub balance: Balance,
    /// Seconds for which a client stays at its server.
    pub affinity: Option<u32>,
    pub source_ranges: BTreeSet<IpNet>,
    pub idle: Duration,
    pub check: Check,
}

/// Ports, with the addresses of the servers of each.
pub(super) type Ports = BTreeMap<u16, BTreeSet<SocketAddr>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// At least one, the first before the others.
    pub families: Vec<Family>,
    pub require_all: bool,
    /// Addresses that were asked for.
    pub explicit: Vec<IpAddr>,
    /// What the status says.
    pub current: Vec<IpAddr>,
    pub options: Options,
    pub ports: Ports,
}

impl Desired {
    pub(super) fn new(request: &Request, settings: &Settings) -> Result<Self, ProviderError> {
        let service = &request.service;
        for name in [&service.namespace, &service.name, &service.uid] {
            check_name(name)?;
        }
        let annotations = Annotations(&request.annotations);
        let targets = annotations.get(ANNOTATION_TARGETS, Targets::parse, "nodes or endpoints")?;
        let targets = targets.unwrap_or(settings.targets);
        let families = if request.families.is_empty() {
            vec![Family::V4]
        } else {
            request.families.clone()
        };
        Ok(Self {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            uid: service.uid.clone(),
            explicit: explicit(request, &annotations)?,
            current: request
                .ingress
                .iter()
                .filter_map(|ingress| ip(&ingress.host))
                .collect(),
            require_all: request.require_all_families,
            options: options(request, settings, targets, &annotations)?,
            ports: ports(request, targets, &families)?,
            families,
        })
    }
}

fn ip(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Ip(address) => Some(*address),
        Host::Name(_) => None,
    }
}

/// Names of objects stand in names of sections. Those of Kubernetes are fit for it.
fn check_name(name: &str) -> Result<(), ProviderError> {
    let fit = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
    match !name.is_empty() && name.len() <= 253 && name.chars().all(fit) {
        true => Ok(()),
        false => Err(refused(
            "InvalidName",
            format!("{name:?} cannot stand in a configuration"),
        )),
    }
}

pub(super) fn refused(reason: &'static str, message: String) -> ProviderError {
    ProviderError::Refused { reason, message }
}

struct Annotations<'a>(&'a BTreeMap<String, String>);

impl Annotations<'_> {
    /// The value of an annotation, or that it is none of those that there are.
    fn get<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
        values: &str,
    ) -> Result<Option<T>, ProviderError> {
        let Some(text) = self
            .0
            .get(name)
            .map(|text| text.trim())
            .filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        let wrong = || {
            refused(
                "InvalidAnnotation",
                format!("annotation {name}: {text:?} is not {values}"),
            )
        };
        parse(text).map(Some).ok_or_else(wrong)
    }
}

fn explicit(
    request: &Request,
    annotations: &Annotations<'_>,
) -> Result<Vec<IpAddr>, ProviderError> {
    let list = |text: &str| {
        text.split(',')
            .map(|address| address.trim().parse().ok())
            .collect::<Option<Vec<_>>>()
    };
    if let Some(addresses) = annotations.get(ANNOTATION_ADDRESSES, list, "a list of addresses")? {
        return Ok(addresses);
    }
    let Some(text) = &request.requested_ip else {
        return Ok(Vec::new());
    };
    let wrong = |_| {
        refused(
            "InvalidAddress",
            format!("spec.loadBalancerIP: {text:?} is no address"),
        )
    };
    text.parse().map(|address| vec![address]).map_err(wrong)
}

fn options(
    request: &Request,
    settings: &Settings,
    targets: Targets,
    annotations: &Annotations<'_>,
) -> Result<Options, ProviderError> {
    let idle = annotations.get(ANNOTATION_IDLE, parse_idle, "a time from 1s to 24h")?;
    let check = match (targets, &request.health_check) {
        (Targets::Nodes, Some(check)) => Check::Healthz(check.port),
        _ => Check::Connect,
    };
    Ok(Options {
        proxy: annotations.get(ANNOTATION_PROXY, parse_proxy, "v1 or v2")?,
        balance: annotations
            .get(
                ANNOTATION_BALANCE,
                parse_balance,
                "leastconn, roundrobin or random",
            )?
            .unwrap_or(Balance::LeastConnections),
        affinity: request.affinity,
        source_ranges: request.source_ranges.iter().map(IpNet::trunc).collect(),
        idle: idle.unwrap_or(settings.idle_timeout),
        check,
    })
}

fn parse_idle(text: &str) -> Option<Duration> {
    duration::parse(text).filter(|idle| (1..=86_400).contains(&idle.as_secs()))
}

fn parse_proxy(text: &str) -> Option<ProxyProtocol> {
    match text {
        "v1" => Some(ProxyProtocol::V1),
        "v2" => Some(ProxyProtocol::V2),
        _ => None,
    }
}

fn parse_balance(text: &str) -> Option<Balance> {
    match text {
        "leastconn" => Some(Balance::LeastConnections),
        "roundrobin" => Some(Balance::RoundRobin),
        "random" => Some(Balance::Random),
        _ => None,
    }
}

fn ports(request: &Request, targets: Targets, families: &[Family]) -> Result<Ports, ProviderError> {
    let mut ports = Ports::new();
    for port in &request.ports {
        if port.protocol != Protocol::Tcp {
            let message = format!(
                "port {}: HAProxy forwards TCP, not {}",
                port.port, port.protocol
            );
            return Err(refused("ProtocolNotSupported", message));
        }
        let servers = match targets {
            Targets::Nodes => on_nodes(request, port, families)?,
            Targets::Endpoints => endpoints(request, port).collect(),
        };
        ports.insert(port.port, servers);
    }
    Ok(ports)
}

fn on_nodes(
    request: &Request,
    port: &Port,
    families: &[Family],
) -> Result<BTreeSet<SocketAddr>, ProviderError> {
    if port.node_port == 0 {
        let message = format!(
            "port {} has no node port: allocate one (allocateLoadBalancerNodePorts) or use \
             {ANNOTATION_TARGETS}: endpoints",
            port.port
        );
        return Err(refused("NodePortNeeded", message));
    }
    let address = |node: &Node| {
        let of = |family: &Family| {
            node.addresses
                .iter()
                .find(|address| Family::of(**address) == *family)
        };
        families
            .iter()
            .find_map(of)
            .map(|address| SocketAddr::new(*address, port.node_port))
    };
    Ok(serving(request, port)
        .into_iter()
        .filter_map(address)
        .collect())
}

/// With `externalTrafficPolicy: Local` nodes without an endpoint drop what they get. Which ones
/// have some is known from the API sooner than by asking for their health; where no endpoint is
/// ready, health decides.
fn serving<'a>(request: &'a Request, port: &Port) -> Vec<&'a Node> {
    let have: BTreeSet<&str> = request
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.protocol == port.protocol && endpoint.port_name == port.name)
        .filter_map(|endpoint| endpoint.node.as_deref())
        .collect();
    let local: Vec<&Node> = request
        .nodes
        .iter()
        .filter(|node| have.contains(node.name.as_str()))
        .collect();
    if request.local && !local.is_empty() {
        local
    } else {
        request.nodes.iter().collect()
    }
}

fn endpoints<'a>(request: &'a Request, port: &'a Port) -> impl Iterator<Item = SocketAddr> + 'a {
    request
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.protocol == port.protocol && endpoint.port_name == port.name)
        .map(|endpoint| SocketAddr::new(endpoint.address, endpoint.port))
}

#[cfg(test)]
mod tests;
