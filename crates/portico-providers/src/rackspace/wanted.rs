//! What a Service wants: a load balancer for each port, or a refusal that says why. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::api::{
    HealthMonitor, LoadBalancer, Meta, NewItem, NewLoadBalancer, NewNode, NewVirtualIp,
    SessionPersistence, Settings,
};
use super::config::Config;
use crate::{Family, Node, Port, Protocol, ProviderError, Request};

/// `true`: an address of ServiceNet, which only machines of the region reach.
pub(super) const INTERNAL: &str = "service.beta.kubernetes.io/rackspace-internal-load-balancer";
pub(super) const ALGORITHM: &str = "service.beta.kubernetes.io/rackspace-load-balancer-algorithm";
pub(super) const TIMEOUT: &str = "service.beta.kubernetes.io/rackspace-load-balancer-timeout";

/// Those that need no weights.
const ALGORITHMS: [&str; 3] = ["RANDOM", "ROUND_ROBIN", "LEAST_CONNECTIONS"];
/// The vendor's default and bound, in seconds.
const IDLE: u16 = 30;
const LONGEST_IDLE: u16 = 120;
/// Letters of a name, and of a value in metadata.
const LONGEST_NAME: usize = 128;
const LONGEST_VALUE: usize = 256;
pub(super) const MOST_ITEMS: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The kind of addresses: `PUBLIC` or `SERVICENET`.
    pub kind: &'static str,
    /// In order of protocol and port, without addresses: they share those.
    pub balancers: Vec<NewLoadBalancer>,
    /// Bounds of nodes in each.
    pub most_nodes: usize,
}

impl Wanted {
    pub(super) fn new(request: &Request, config: &Config) -> Result<Self, ProviderError> {
        let internal = annotation(request, INTERNAL, "true or false")?.unwrap_or(false);
        let kind = if internal { "SERVICENET" } else { "PUBLIC" };
        let only_v6 = request.families == [Family::V6];
        if internal
            && (only_v6 || request.require_all_families && request.families.contains(&Family::V6))
        {
            let message =
                format!("ServiceNet has no IPv6: use IPv4, or take the annotation {INTERNAL} away");
            return Err(refused("NoIPv6", message));
        }
        let settings = settings(request)?;
        let mut balancers = Vec::new();
        for port in &request.ports {
            balancers.push(balancer(request, config, &settings, port)?);
        }
        // The vendor takes UDP beside TCP on one port, but not always TCP beside UDP.
        balancers.sort_by_key(|balancer| (balancer.protocol, balancer.port));
        Ok(Self {
            kind,
            balancers,
            most_nodes: config.node_limit,
        })
    }

    /// Addresses that have to be created.
    pub(super) fn new_addresses(&self, request: &Request) -> Vec<NewVirtualIp> {
        let ip_version = match request.families[..] {
            _ if self.kind == "SERVICENET" => None,
            [Family::V6] => Some("IPV6"),
            [_] => Some("IPV4"),
            _ => None,
        };
        vec![NewVirtualIp::New {
            kind: self.kind,
            ip_version,
        }]
    }
}

/// The first word is what they are found by; the rest is for people.
fn name(request: &Request) -> String {
    cut(
        format!("{} {}", request.balancer_name, request.service),
        LONGEST_NAME,
    )
}

pub(super) fn is_owned(balancer: &LoadBalancer, balancer_name: &str) -> bool {
    balancer.name.split(' ').next() == Some(balancer_name)
}

fn balancer(
    request: &Request,
    config: &Config,
    settings: &Settings,
    port: &Port,
) -> Result<NewLoadBalancer, ProviderError> {
    let protocol = match port.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => {
            let message = format!("port {}: the cloud has TCP and UDP, and no SCTP", port.port);
            return Err(refused("ProtocolNotSupported", message));
        }
    };
    if port.node_port == 0 {
        let message = format!(
            "port {} has no node port to send to: allow allocateLoadBalancerNodePorts",
            port.port
        );
        return Err(refused("NoNodePort", message));
    }
    let nodes = nodes(request, port);
    if nodes.len() > config.node_limit {
        let message = format!(
            "there are {} nodes, and the cloud takes {} in a load balancer: label others with \
             node.kubernetes.io/exclude-from-external-load-balancers, or have the vendor raise \
             the limit and set node-limit",
            nodes.len(),
            config.node_limit
        );
        return Err(refused("TooManyNodes", message));
    }
    Ok(NewLoadBalancer {
        name: name(request),
        protocol,
        port: port.port,
        settings: settings.clone(),
        virtual_ips: Vec::new(),
        nodes,
        health_monitor: (port.protocol == Protocol::Tcp).then(monitor),
        session_persistence: request.affinity.map(|_| SessionPersistence {
            persistence_type: "SOURCE_IP".to_owned(),
        }),
        access_list: access_list(request)?,
        metadata: metadata(request),
    })
}

/// For people, and for their scripts.
fn metadata(request: &Request) -> Vec<Meta> {
    let pairs = [
        ("kubernetes-cluster", request.cluster.clone()),
        ("kubernetes-service", request.service.to_string()),
    ];
    let filled = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    filled
        .map(|(key, value)| Meta {
            key,
            value: cut(value, LONGEST_VALUE),
        })
        .collect()
}

/// The cloud asks nodes at the port that they serve and nowhere else: not at their healthz, nor at
/// a health-check node port.
fn monitor() -> HealthMonitor {
    HealthMonitor {
        kind: "CONNECT".to_owned(),
        delay: 5,
        timeout: 3,
        attempts_before_deactivation: 2,
    }
}

/// Under `Local` only those that have an endpoint, since the cloud cannot ask them. Sorted, each
/// address once.
fn nodes(request: &Request, port: &Port) -> Vec<NewNode> {
    let serving: BTreeSet<&str> = request
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.port_name == port.name && endpoint.protocol == port.protocol)
        .filter_map(|endpoint| endpoint.node.as_deref())
        .collect();
    let wanted = request
        .nodes
        .iter()
        .filter(|node| !request.local || serving.contains(node.name.as_str()));
    let addresses: BTreeSet<IpAddr> = wanted.filter_map(|node| address(node, request)).collect();
    addresses
        .into_iter()
        .map(|address| node(&address.to_string(), port.node_port))
        .collect()
}

/// The first of the Service's first family: node ports listen on the families that it has.
fn address(node: &Node, request: &Request) -> Option<IpAddr> {
    let family = request.families.first().copied().unwrap_or(Family::V4);
    node.addresses
        .iter()
        .copied()
        .find(|address| Family::of(*address) == family)
}

/// A node in the form in which all are compared.
pub(super) fn node(address: &str, port: u16) -> NewNode {
    let address = address
        .parse::<IpAddr>()
        .map_or_else(|_| address.to_owned(), |parsed| parsed.to_string());
    NewNode {
        address,
        port,
        condition: "ENABLED",
    }
}

/// The same for network items.
pub(super) fn item(address: &str, kind: &str) -> NewItem {
    let network = IpNet::from_str(address).or_else(|_| address.parse::<IpAddr>().map(IpNet::from));
    let address = network.map_or_else(
        |_| address.to_owned(),
        |network| network.trunc().to_string(),
    );
    NewItem {
        address,
        kind: kind.to_owned(),
    }
}

/// What is allowed wins over what is denied, and each network is there once.
fn access_list(request: &Request) -> Result<Vec<NewItem>, ProviderError> {
    let mut items = BTreeSet::new();
    for family in request
        .families
        .iter()
        .filter(|_| !request.source_ranges.is_empty())
    {
        let ranges = request
            .source_ranges
            .iter()
            .filter(|range| Family::of(range.addr()) == *family);
        let ranges: Vec<&IpNet> = ranges.collect();
        if ranges.iter().any(|range| range.prefix_len() == 0) {
            continue;
        }
        items.extend(
            ranges
                .into_iter()
                .map(|range| item(&range.to_string(), "ALLOW")),
        );
        items.insert(item(
            if *family == Family::V4 {
                "0.0.0.0/0"
            } else {
                "::/0"
            },
            "DENY",
        ));
    }
    if items.len() > MOST_ITEMS {
        let message = format!(
            "loadBalancerSourceRanges make {} items of an access list, and the cloud takes \
             {MOST_ITEMS}: join some",
            items.len()
        );
        return Err(refused("TooManySourceRanges", message));
    }
    Ok(items.into_iter().collect())
}

fn settings(request: &Request) -> Result<Settings, ProviderError> {
    let choices = ALGORITHMS.join(", ");
    let algorithm = annotation::<String>(request, ALGORITHM, &choices)?
        .unwrap_or_else(|| ALGORITHMS[0].to_owned());
    if !ALGORITHMS.contains(&algorithm.as_str()) {
        return Err(bad_annotation(ALGORITHM, &algorithm, &choices));
    }
    let seconds = format!("a number of seconds from 1 to {LONGEST_IDLE}");
    let timeout = annotation(request, TIMEOUT, &seconds)?.unwrap_or(IDLE);
    match (1..=LONGEST_IDLE).contains(&timeout) {
        true => Ok(Settings { algorithm, timeout }),
        false => Err(bad_annotation(TIMEOUT, &timeout.to_string(), &seconds)),
    }
}

fn annotation<T: FromStr>(
    request: &Request,
    name: &str,
    choices: &str,
) -> Result<Option<T>, ProviderError> {
    let parse = |value: &String| {
        value
            .parse()
            .map_err(|_| bad_annotation(name, value, choices))
    };
    request.annotations.get(name).map(parse).transpose()
}

fn bad_annotation(name: &str, value: &str, choices: &str) -> ProviderError {
    refused(
        "BadAnnotation",
        format!("annotation {name}: {value:?} is not {choices}"),
    )
}

pub(super) fn refused(reason: &'static str, message: String) -> ProviderError {
    ProviderError::Refused { reason, message }
}

fn cut(text: String, most: usize) -> String {
    text.chars().take(most).collect()
}

#[cfg(test)]
mod tests;
