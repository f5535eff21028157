//! What a Service wants of the cloud: a request becomes resources, or a refusal that says why.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::config::Place;
use super::names::{self, Names};
use super::resources::{Allowed, Firewall, HttpHealthCheck, name_of};
use crate::{Family, Node, Port, Protocol, ProviderError, Request};

/// `cloud.google.com/network-tier`: `Premium` (default) or `Standard`.
pub(super) const TIER: &str = "cloud.google.com/network-tier";
/// `Internal` load balancers are another kind, which this provider does not make.
pub(super) const KIND: &[&str] = &[
    "networking.gke.io/load-balancer-type",
    "cloud.google.com/load-balancer-type",
];
/// `enabled`: another controller makes the load balancer.
pub(super) const ELSEWHERE: &str = "cloud.google.com/l4-rbs";
/// Nodes before this version have no healthz, or a wrong one (seed of the design: 1.7.0 had
/// faults).
const FIRST_WITH_HEALTHZ: (u32, u32, u32) = (1, 7, 2);

/// Seconds and numbers of health checks.
const INTERVAL: u32 = 8;
const TIMEOUT: u32 = 1;
const HEALTHY: u32 = 1;
const UNHEALTHY: u32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InstanceRef {
    pub zone: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub names: Names,
    pub description: String,
    pub protocol: Protocol,
    /// As a forwarding rule has it: all from the first to the last.
    pub port_range: String,
    pub tier: &'static str,
    pub affinity: &'static str,
    pub requested: Option<Ipv4Addr>,
    pub instances: BTreeSet<InstanceRef>,
    pub check: Check,
    /// But for the address, which is known later.
    pub firewall: Firewall,
    service: Request,
}

/// What tells the cloud whether a node is fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Some node does not say what it runs, as one that has just come: none is attached, and one
    /// that is stays.
    Skip,
    /// Some node has no healthz to ask: the pool has no check, so that the node gets traffic.
    Without,
    /// The check of all Services with policy `Cluster`.
    Shared(HttpHealthCheck, Firewall),
    /// The check of this Service, which has policy `Local`.
    Own(HttpHealthCheck, Firewall),
}

impl Wanted {
    pub(super) fn new(
        request: &Request,
        place: &Place,
        tags: Vec<String>,
    ) -> Result<Self, ProviderError> {
        let annotation = |name: &str| {
            request
                .annotations
                .get(name)
                .map_or("", |value| value.trim())
        };
        if annotation(ELSEWHERE) == "enabled" {
            return Err(ProviderError::Elsewhere);
        }
        if let Some(name) = KIND
            .iter()
            .find(|name| annotation(name).eq_ignore_ascii_case("internal"))
        {
            let text =
                format!("internal load balancers are not made here: remove the annotation {name}");
            return Err(refused("InternalNotSupported", text));
        }
        check_families(request)?;
        let protocol = protocol(&request.ports)?;
        let names = Names::new(&request.balancer_name, &place.cluster_id);
        let firewall = Firewall {
            name: names.firewall.clone(),
            network: place.network.clone(),
            source_ranges: source_ranges(&request.source_ranges)?,
            target_tags: tags,
            allowed: vec![Allowed {
                protocol: protocol.to_string().to_lowercase(),
                ports: merge(request.ports.iter().map(|port| port.port)),
            }],
            ..Firewall::default()
        };
        Ok(Self {
            description: names::of_service(request),
            protocol,
            port_range: port_range(&request.ports),
            tier: tier(annotation(TIER))?,
            affinity: if request.affinity.is_some() {
                "CLIENT_IP"
            } else {
                "NONE"
            },
            requested: request.requested_ip.as_deref().map(requested).transpose()?,
            instances: request.nodes.iter().filter_map(instance).collect(),
            check: check(request, place, &names, &firewall)?,
            firewall,
            names,
            service: request.clone(),
        })
    }

    /// The firewall for traffic to an address.
    pub(super) fn firewall_for(&self, address: &str) -> Firewall {
        Firewall {
            description: names::of_firewall(&self.service, address),
            destination_ranges: vec![format!("{address}/32")],
            ..self.firewall.clone()
        }
    }
}

pub(super) fn refused(reason: &'static str, message: impl Into<String>) -> ProviderError {
    ProviderError::Refused {
        reason,
        message: message.into(),
    }
}

fn check_families(request: &Request) -> Result<(), ProviderError> {
    let only_v6 = !request.families.is_empty() && !request.families.contains(&Family::V4);
    if only_v6 || (request.require_all_families && request.families.contains(&Family::V6)) {
        let text = "load balancers with target pools have IPv4 addresses only: use ipFamilies: [IPv4] and \
                    ipFamilyPolicy: SingleStack or PreferDualStack";
        return Err(refused("IPv6NotSupported", text));
    }
    Ok(())
}

fn protocol(ports: &[Port]) -> Result<Protocol, ProviderError> {
    let protocols: BTreeSet<Protocol> = ports.iter().map(|port| port.protocol).collect();
    match Vec::from_iter(protocols).as_slice() {
        [Protocol::Sctp] => Err(refused(
            "ProtocolNotSupported",
            "the cloud's load balancers do not carry SCTP",
        )),
        [one] => Ok(*one),
        [] => Err(refused("NoPorts", "a load balancer needs a port")),
        _ => Err(refused(
            "LoadBalancerMixedProtocolNotSupported",
            "a load balancer has one protocol: use a Service for TCP and another for UDP, with \
             the same loadBalancerIP",
        )),
    }
}

fn port_range(ports: &[Port]) -> String {
    let numbers = || ports.iter().map(|port| port.port);
    format!(
        "{}-{}",
        numbers().min().unwrap_or_default(),
        numbers().max().unwrap_or_default()
    )
}

/// Ports as a firewall names them: neighbours as one, since there may be a hundred entries at most.
fn merge(ports: impl Iterator<Item = u16>) -> Vec<String> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for port in ports.collect::<BTreeSet<u16>>() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == port => *last = port,
            _ => ranges.push((port, port)),
        }
    }
    let name = |(first, last): (u16, u16)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    ranges.into_iter().map(name).collect()
}

fn source_ranges(ranges: &[IpNet]) -> Result<Vec<String>, ProviderError> {
    if ranges.is_empty() {
        return Ok(vec!["0.0.0.0/0".to_owned()]);
    }
    let v4: BTreeSet<String> = ranges
        .iter()
        .filter(|range| range.addr().is_ipv4())
        .map(|range| range.trunc().to_string())
        .collect();
    // A firewall without ranges would let all clients in.
    match v4.is_empty() {
        true => Err(refused(
            "NoIPv4SourceRange",
            "loadBalancerSourceRanges has no IPv4 range, and the address is IPv4",
        )),
        false => Ok(Vec::from_iter(v4)),
    }
}

fn tier(annotation: &str) -> Result<&'static str, ProviderError> {
    match annotation.to_lowercase().as_str() {
        "" | "premium" => Ok("PREMIUM"),
        "standard" => Ok("STANDARD"),
        _ => Err(refused(
            "BadAnnotation",
            format!("{TIER}: {annotation:?} is neither Premium nor Standard"),
        )),
    }
}

fn requested(text: &str) -> Result<Ipv4Addr, ProviderError> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => Ok(address),
        _ => Err(refused(
            "BadAddress",
            format!("loadBalancerIP {text:?} is no IPv4 address"),
        )),
    }
}

/// `gce://project/zone/name`; a node that does not say so is an instance of its name in its zone.
pub(super) fn instance(node: &Node) -> Option<InstanceRef> {
    let parts: Vec<&str> = node
        .provider_id
        .strip_prefix("gce://")
        .unwrap_or_default()
        .split('/')
        .collect();
    let (zone, name) = match parts.as_slice() {
        [_project, zone, name] => (*zone, *name),
        _ => (node.zone.as_str(), node.name.as_str()),
    };
    let known = !zone.is_empty() && !name.is_empty();
    known.then(|| InstanceRef {
        zone: zone.to_owned(),
        name: name.to_owned(),
    })
}

fn check(
    request: &Request,
    place: &Place,
    names: &Names,
    traffic: &Firewall,
) -> Result<Check, ProviderError> {
    let Some(asked) = &request.health_check else {
        let text = "externalTrafficPolicy is Local, and the cloud has to know on which port nodes answer for the Service: set \
                    allocateLoadBalancerHCNodePort: true, or use externalTrafficPolicy: Cluster";
        return Err(refused("HealthCheckPortNeeded", text));
    };
    if !request.local {
        let of_nodes = || request.nodes.iter().map(has_healthz);
        if of_nodes().any(|answers| answers == Some(false)) {
            return Ok(Check::Without);
        }
        if of_nodes().any(|answers| answers.is_none()) {
            return Ok(Check::Skip);
        }
    }
    let (name, firewall, description) = match request.local {
        true => (
            &names.balancer,
            &names.own_firewall,
            names::of_service(request),
        ),
        false => (
            &names.shared_check,
            &names.shared_firewall,
            names::of_cluster(&place.cluster_id),
        ),
    };
    let check = HttpHealthCheck {
        name: name.clone(),
        description: description.clone(),
        port: asked.port,
        request_path: asked.path.clone(),
        check_interval_sec: INTERVAL,
        timeout_sec: TIMEOUT,
        healthy_threshold: HEALTHY,
        unhealthy_threshold: UNHEALTHY,
    };
    // Without a destination: one rule serves the checks of many addresses.
    let firewall = Firewall {
        name: firewall.clone(),
        description,
        network: place.network.clone(),
        source_ranges: place.checkers.iter().map(ToString::to_string).collect(),
        destination_ranges: Vec::new(),
        target_tags: traffic.target_tags.clone(),
        allowed: vec![Allowed {
            protocol: "tcp".to_owned(),
            ports: vec![asked.port.to_string()],
        }],
    };
    Ok(if request.local {
        Check::Own(check, firewall)
    } else {
        Check::Shared(check, firewall)
    })
}

/// `None`: its version is not known, or makes no sense.
fn has_healthz(node: &Node) -> Option<bool> {
    version(&node.version).map(|version| version >= FIRST_WITH_HEALTHZ)
}

/// `v1.36.4-gke.1` and the like.
fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
    let mut next = || {
        let text = numbers.next()?;
        let end = text
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(text.len());
        text[..end].parse().ok()
    };
    Some((next()?, next()?, next()?))
}

/// The tags of nodes: for each the longest tag of its instance that its name begins with, since
/// such a tag is on all nodes of its group. `Err` if a node has none.
pub(super) fn tags_of(
    instances: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<String>, ProviderError> {
    let tag = |(name, tags): (&String, &Vec<String>)| {
        let fitting = tags.iter().filter(|tag| name.starts_with(tag.as_str()));
        fitting
            .max_by_key(|tag| tag.len())
            .cloned()
            .ok_or_else(|| name.clone())
    };
    let tags = instances
        .iter()
        .map(tag)
        .collect::<Result<BTreeSet<String>, String>>();
    tags.map(Vec::from_iter).map_err(|name| {
        let text = format!(
            "instance {name} has no tag that its name begins with: set node-tags in the \
             cloud configuration"
        );
        refused("NodeTagsNeeded", text)
    })
}

impl InstanceRef {
    /// Reads the URL of a resource.
    pub(super) fn parse(link: &str) -> Option<Self> {
        let (rest, name) = link.split_once("/instances/")?;
        Some(Self {
            zone: name_of(rest).to_owned(),
            name: name.to_owned(),
        })
    }

    pub(super) fn link(&self, place: &Place) -> String {
        let Self { zone, name } = self;
        format!(
            "{}projects/{}/zones/{zone}/instances/{name}",
            place.endpoint, place.project
        )
    }
}

#[cfg(test)]
mod tests;
