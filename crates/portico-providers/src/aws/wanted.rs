//! What a Service wants of its balancer, in the vendor's terms; or why it cannot have it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::{IpNet, Ipv4Net};

use super::annotations::{Annotations, CROSS_ZONE, Kind};
use super::auth::hash;
use super::groups::{Origin, Rule, Traffic, WantedGroups};
use super::subnets::CLUSTER_TAG;
use crate::{Family, Port, Protocol, ProviderError, Request};

/// The vendor's bounds of a balancer.
const MOST_LISTENERS: [(Kind, usize); 2] = [(Kind::Network, 50), (Kind::Classic, 100)];
const SERVICE_TAG: &str = "kubernetes.io/service-name";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub kind: Kind,
    pub name: String,
    pub internal: bool,
    pub tags: BTreeMap<String, String>,
    pub groups: WantedGroups,
    pub listeners: Vec<Listener>,
    pub check: Check,
    pub instances: BTreeSet<String>,
    /// Attributes of the balancer that are not as the vendor has them by default.
    pub settings: BTreeMap<String, String>,
    /// The same of target groups.
    pub target_settings: BTreeMap<String, String>,
    pub proxy_protocol: bool,
    /// Ids or names of subnets, if the Service names them.
    pub subnets: Vec<String>,
    /// Elastic addresses, one for each subnet.
    pub addresses: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listener {
    pub port: u16,
    /// `TCP`, `UDP` or `TCP_UDP`
    pub protocol: &'static str,
    pub node_port: u16,
    /// The name of its target group.
    pub target_group: String,
}

/// An HTTP request to each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Check {
    pub port: u16,
    pub path: String,
    pub interval: u32,
    pub timeout: u32,
    pub healthy: u32,
    pub unhealthy: u32,
}

/// Names of what belongs to a Service: all that is needed to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub balancer: String,
    pub group: String,
    /// The prefix of the names of target groups, which have room for 32 characters.
    pub targets: String,
    /// The tag that says that something is the cluster's, with `owned` as value.
    pub cluster_tag: String,
}

impl Names {
    /// `cluster` as tags have it.
    pub(super) fn of(request: &Request, cluster: &str) -> Self {
        let balancer = request.balancer_name.clone();
        let targets = format!(
            "k8s-{}-",
            &hash(format!("{cluster} {balancer}").as_bytes())[..16]
        );
        Self {
            group: format!("k8s-elb-{balancer}"),
            balancer,
            targets,
            cluster_tag: format!("{CLUSTER_TAG}{cluster}"),
        }
    }

    pub(super) fn is_owned(&self, tags: &BTreeMap<String, String>) -> bool {
        tags.get(&self.cluster_tag)
            .is_some_and(|value| value == "owned")
    }

    /// The name of a target group: all that cannot be changed later is in it, so that another one
    /// is made when that changes.
    fn target_group(&self, protocol: &str, node_port: u16, check: &Check) -> String {
        let text = format!("{protocol} {node_port} {}", check.interval);
        format!("{}{}", self.targets, &hash(text.as_bytes())[..11])
    }
}

/// Whether tags are of something that belongs to a Service.
pub(super) fn is_of_service(tags: &BTreeMap<String, String>) -> bool {
    tags.contains_key(SERVICE_TAG)
}

pub(super) fn refused<T>(
    reason: &'static str,
    message: impl Into<String>,
) -> Result<T, ProviderError> {
    Err(ProviderError::Refused {
        reason,
        message: message.into(),
    })
}

impl Wanted {
    pub(super) fn of(request: &Request, kind: Kind, names: &Names) -> Result<Self, ProviderError> {
        let annotations = Annotations::of(request)?;
        possible(request, kind)?;
        let Some(health) = &request.health_check else {
            return refused(
                "NoHealthCheckPort",
                "there is no port on which nodes could be asked for their health",
            );
        };
        let check = Check {
            port: health.port,
            path: health.path.clone(),
            ..annotations.check
        };
        let listeners = listeners(&request.ports, names, &check)?;
        let most = MOST_LISTENERS
            .iter()
            .find(|(of, _)| *of == kind)
            .map_or(0, |(_, most)| *most);
        if listeners.len() > most {
            return refused(
                "TooManyPorts",
                format!(
                    "a {} load balancer has at most {most} listeners",
                    kind.word()
                ),
            );
        }
        let mut settings = annotations.settings;
        if kind == Kind::Network {
            settings.retain(|name, _| name == CROSS_ZONE);
        } else if !annotations.addresses.is_empty() {
            return refused(
                "BadAnnotation",
                "elastic addresses are for network load balancers: use type nlb",
            );
        }
        let mut tags = annotations.tags;
        tags.insert(names.cluster_tag.clone(), "owned".to_owned());
        tags.insert(SERVICE_TAG.to_owned(), request.service.to_string());
        let mut target_settings = BTreeMap::new();
        if annotations.proxy_protocol && kind == Kind::Network {
            target_settings.insert("proxy_protocol_v2.enabled".to_owned(), "true".to_owned());
        }
        if request.affinity.is_some() {
            target_settings.insert("stickiness.enabled".to_owned(), "true".to_owned());
            target_settings.insert("stickiness.type".to_owned(), "source_ip".to_owned());
        }
        Ok(Self {
            kind,
            name: names.balancer.clone(),
            internal: annotations.internal,
            groups: WantedGroups {
                name: names.group.clone(),
                tags: tags.clone(),
                inbound: inbound(request, &listeners),
                on_nodes: on_nodes(&listeners, &check),
            },
            tags,
            listeners,
            check,
            instances: instances(request),
            settings,
            target_settings,
            proxy_protocol: annotations.proxy_protocol,
            subnets: annotations.subnets,
            addresses: annotations.addresses,
        })
    }
}

fn possible(request: &Request, kind: Kind) -> Result<(), ProviderError> {
    let has = |protocol| request.ports.iter().any(|port| port.protocol == protocol);
    if request.requested_ip.is_some() {
        return refused(
            "AddressNotSupported",
            "spec.loadBalancerIP: the cloud chooses addresses itself, remove it",
        );
    }
    if !request.families.contains(&Family::V4)
        || (request.require_all_families && request.families.len() > 1)
    {
        return refused(
            "FamilyNotSupported",
            "load balancers have IPv4 addresses only: use ipFamilies [IPv4]",
        );
    }
    if has(Protocol::Sctp) || (kind == Kind::Classic && has(Protocol::Udp)) {
        let protocols = if kind == Kind::Classic {
            "TCP"
        } else {
            "TCP and UDP"
        };
        return refused(
            "ProtocolNotSupported",
            format!("a {} load balancer knows only {protocols}", kind.word()),
        );
    }
    if kind == Kind::Classic && request.affinity.is_some() {
        return refused(
            "AffinityNotSupported",
            "a classic load balancer has no affinity of clients: use None, or type nlb",
        );
    }
    Ok(())
}

/// One for each port; TCP and UDP on the same one are one listener, if they go to the same node
/// port.
fn listeners(ports: &[Port], names: &Names, check: &Check) -> Result<Vec<Listener>, ProviderError> {
    let mut by_port: BTreeMap<u16, (&'static str, u16)> = BTreeMap::new();
    // Without a node port there is nothing to send to.
    for port in ports.iter().filter(|port| port.node_port > 0) {
        let protocol = if port.protocol == Protocol::Udp {
            "UDP"
        } else {
            "TCP"
        };
        match by_port.insert(port.port, (protocol, port.node_port)) {
            None => {}
            Some((_, node_port)) if node_port == port.node_port => {
                _ = by_port.insert(port.port, ("TCP_UDP", node_port))
            }
            Some(_) => {
                let message =
                    "TCP and UDP on the same port need the same nodePort: give both of them it";
                return refused(
                    "ProtocolNotSupported",
                    format!("port {}: {message}", port.port),
                );
            }
        }
    }
    let listener = |(port, (protocol, node_port))| {
        let target_group = names.target_group(protocol, node_port, check);
        Listener {
            port,
            protocol,
            node_port,
            target_group,
        }
    };
    Ok(by_port.into_iter().map(listener).collect())
}

fn traffic(protocol: &str) -> Vec<Traffic> {
    match protocol {
        "UDP" => vec![Traffic::Udp],
        "TCP_UDP" => vec![Traffic::Tcp, Traffic::Udp],
        _ => vec![Traffic::Tcp],
    }
}

/// Clients reach the ports of the Service, and may say that a packet was too big.
fn inbound(request: &Request, listeners: &[Listener]) -> BTreeSet<Rule> {
    let v4 = |range: &IpNet| match range {
        IpNet::V4(range) => Some(range.trunc()),
        IpNet::V6(_) => None,
    };
    let ranges: Vec<Ipv4Net> = match request.source_ranges.is_empty() {
        true => vec![Ipv4Net::default()],
        false => request.source_ranges.iter().filter_map(v4).collect(),
    };
    let mut rules = BTreeSet::new();
    for range in ranges {
        let source = Origin::Range(range);
        rules.insert(Rule {
            protocol: Traffic::Icmp,
            from: 3,
            to: 4,
            source: source.clone(),
        });
        for listener in listeners {
            let port = listener.port.into();
            let rule = |protocol| Rule {
                protocol,
                from: port,
                to: port,
                source: source.clone(),
            };
            rules.extend(traffic(listener.protocol).into_iter().map(rule));
        }
    }
    rules
}

/// The rules by which only the balancer reaches node ports and the health check's port.
fn on_nodes(listeners: &[Listener], check: &Check) -> BTreeSet<Rule> {
    let rule = |protocol, port: u16| Rule {
        protocol,
        from: port.into(),
        to: port.into(),
        source: Origin::Balancer,
    };
    let ports = listeners.iter().flat_map(|it| {
        traffic(it.protocol)
            .into_iter()
            .map(|what| rule(what, it.node_port))
    });
    ports.chain([rule(Traffic::Tcp, check.port)]).collect()
}

/// Nodes that are no instances cannot be targets.
pub(super) fn instances(request: &Request) -> BTreeSet<String> {
    let id = |id: &str| {
        id.strip_prefix("aws://")?
            .rsplit('/')
            .next()
            .map(str::to_owned)
    };
    let ids = request
        .nodes
        .iter()
        .filter_map(|node| id(&node.provider_id));
    ids.filter(|id| id.starts_with("i-")).collect()
}

#[cfg(test)]
mod tests;
