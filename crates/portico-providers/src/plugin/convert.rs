//! From what the controller says to what goes over the socket, and back.

use std::net::IpAddr;

use super::messages as wire;
use crate::conformance::{Can, Support};
use crate::{
    Abilities, Balancer, Endpoint, Family, HealthCheck, Host, Ingress, IpMode, Node, Port,
    Protocol, Request, ServiceRef,
};

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Malformed {
    field: &'static str,
    problem: String,
}

fn malformed(field: &'static str, problem: impl Into<String>) -> Malformed {
    Malformed {
        field,
        problem: problem.into(),
    }
}

impl From<&Request> for wire::Request {
    fn from(request: &Request) -> Self {
        let service = &request.service;
        Self {
            cluster: request.cluster.clone(),
            service: Some(wire::Service {
                namespace: service.namespace.clone(),
                name: service.name.clone(),
                uid: service.uid.clone(),
            }),
            balancer_name: request.balancer_name.clone(),
            class: request.class.clone(),
            labels: request.labels.clone(),
            annotations: request.annotations.clone(),
            requested_ip: request.requested_ip.clone(),
            families: request
                .families
                .iter()
                .map(|family| wire::Family::from(*family).into())
                .collect(),
            require_all_families: request.require_all_families,
            ports: request.ports.iter().map(wire::Port::from).collect(),
            local: request.local,
            selector: request.selector.clone(),
            affinity_seconds: request.affinity,
            source_ranges: request
                .source_ranges
                .iter()
                .map(ToString::to_string)
                .collect(),
            health_check: request
                .health_check
                .as_ref()
                .map(|check| wire::HealthCheck {
                    port: check.port.into(),
                    path: check.path.clone(),
                }),
            nodes: request.nodes.iter().map(wire::Node::from).collect(),
            endpoints: request.endpoints.iter().map(wire::Endpoint::from).collect(),
            ingress: request.ingress.iter().map(wire::Ingress::from).collect(),
        }
    }
}

impl TryFrom<wire::Request> for Request {
    type Error = Malformed;

    fn try_from(request: wire::Request) -> Result<Self, Malformed> {
        let families = request
            .families()
            .map(Family::try_from)
            .collect::<Result<_, _>>()?;
        let service = request
            .service
            .ok_or_else(|| malformed("service", "is missing"))?;
        let range = |text: &String| {
            text.parse()
                .map_err(|_| malformed("source_ranges", format!("{text} is no range")))
        };
        let health_check = match request.health_check {
            Some(check) => Some(HealthCheck {
                port: port_number("health_check", check.port)?,
                path: check.path,
            }),
            None => None,
        };
        Ok(Self {
            cluster: request.cluster,
            service: ServiceRef {
                namespace: service.namespace,
                name: service.name,
                uid: service.uid,
            },
            balancer_name: request.balancer_name,
            class: request.class,
            labels: request.labels,
            annotations: request.annotations,
            requested_ip: request.requested_ip,
            families,
            require_all_families: request.require_all_families,
            ports: request
                .ports
                .into_iter()
                .map(Port::try_from)
                .collect::<Result<_, _>>()?,
            local: request.local,
            selector: request.selector,
            affinity: request.affinity_seconds,
            source_ranges: request
                .source_ranges
                .iter()
                .map(range)
                .collect::<Result<_, _>>()?,
            health_check,
            nodes: request
                .nodes
                .into_iter()
                .map(Node::try_from)
                .collect::<Result<_, _>>()?,
            endpoints: request
                .endpoints
                .into_iter()
                .map(Endpoint::try_from)
                .collect::<Result<_, _>>()?,
            ingress: request
                .ingress
                .into_iter()
                .map(Ingress::try_from)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn port_number(field: &'static str, port: u32) -> Result<u16, Malformed> {
    u16::try_from(port).map_err(|_| malformed(field, format!("{port} is no port")))
}

fn address(field: &'static str, text: &str) -> Result<IpAddr, Malformed> {
    text.parse()
        .map_err(|_| malformed(field, format!("{text:?} is no address")))
}

impl From<Family> for wire::Family {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Ipv4,
            Family::V6 => Self::Ipv6,
        }
    }
}

impl TryFrom<wire::Family> for Family {
    type Error = Malformed;

    fn try_from(family: wire::Family) -> Result<Self, Malformed> {
        match family {
            wire::Family::Ipv4 => Ok(Self::V4),
            wire::Family::Ipv6 => Ok(Self::V6),
            wire::Family::Unspecified => Err(malformed("families", "one is not known")),
        }
    }
}

impl From<Protocol> for wire::Protocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
            Protocol::Sctp => Self::Sctp,
        }
    }
}

impl TryFrom<wire::Protocol> for Protocol {
    type Error = Malformed;

    fn try_from(protocol: wire::Protocol) -> Result<Self, Malformed> {
        match protocol {
            wire::Protocol::Tcp => Ok(Self::Tcp),
            wire::Protocol::Udp => Ok(Self::Udp),
            wire::Protocol::Sctp => Ok(Self::Sctp),
            wire::Protocol::Unspecified => Err(malformed("protocol", "is not known")),
        }
    }
}

impl From<&Port> for wire::Port {
    fn from(port: &Port) -> Self {
        Self {
            name: port.name.clone(),
            protocol: wire::Protocol::from(port.protocol).into(),
            port: port.port.into(),
            node_port: port.node_port.into(),
            app_protocol: port.app_protocol.clone(),
        }
    }
}

impl TryFrom<wire::Port> for Port {
    type Error = Malformed;

    fn try_from(port: wire::Port) -> Result<Self, Malformed> {
        Ok(Self {
            protocol: port.protocol().try_into()?,
            port: port_number("ports", port.port)?,
            node_port: port_number("ports", port.node_port)?,
            name: port.name,
            app_protocol: port.app_protocol,
        })
    }
}

impl From<&Node> for wire::Node {
    fn from(node: &Node) -> Self {
        Self {
            name: node.name.clone(),
            provider_id: node.provider_id.clone(),
            zone: node.zone.clone(),
            addresses: node.addresses.iter().map(ToString::to_string).collect(),
            version: node.version.clone(),
        }
    }
}

impl TryFrom<wire::Node> for Node {
    type Error = Malformed;

    fn try_from(node: wire::Node) -> Result<Self, Malformed> {
        let addresses = node
            .addresses
            .iter()
            .map(|text| address("nodes", text))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            name: node.name,
            provider_id: node.provider_id,
            zone: node.zone,
            addresses,
            version: node.version,
        })
    }
}

impl From<&Endpoint> for wire::Endpoint {
    fn from(endpoint: &Endpoint) -> Self {
        Self {
            address: endpoint.address.to_string(),
            port_name: endpoint.port_name.clone(),
            protocol: wire::Protocol::from(endpoint.protocol).into(),
            port: endpoint.port.into(),
            node: endpoint.node.clone(),
        }
    }
}

impl TryFrom<wire::Endpoint> for Endpoint {
    type Error = Malformed;

    fn try_from(endpoint: wire::Endpoint) -> Result<Self, Malformed> {
        Ok(Self {
            address: address("endpoints", &endpoint.address)?,
            protocol: endpoint.protocol().try_into()?,
            port: port_number("endpoints", endpoint.port)?,
            port_name: endpoint.port_name,
            node: endpoint.node,
        })
    }
}

impl From<&Ingress> for wire::Ingress {
    fn from(ingress: &Ingress) -> Self {
        let (ip, hostname) = match &ingress.host {
            Host::Ip(address) => (address.to_string(), String::new()),
            Host::Name(name) => (String::new(), name.clone()),
        };
        let mode = match ingress.mode {
            IpMode::Vip => wire::IpMode::Vip,
            IpMode::Proxy => wire::IpMode::Proxy,
        };
        Self {
            ip,
            hostname,
            mode: mode.into(),
        }
    }
}

impl TryFrom<wire::Ingress> for Ingress {
    type Error = Malformed;

    fn try_from(ingress: wire::Ingress) -> Result<Self, Malformed> {
        let mode = match wire::IpMode::try_from(ingress.mode) {
            Ok(wire::IpMode::Vip) => IpMode::Vip,
            Ok(wire::IpMode::Proxy) => IpMode::Proxy,
            Err(_) => {
                return Err(malformed(
                    "ingress",
                    format!("mode {} is not known", ingress.mode),
                ));
            }
        };
        let host = match (ingress.ip.as_str(), ingress.hostname.as_str()) {
            ("", "") => return Err(malformed("ingress", "there is neither ip nor hostname")),
            (ip, "") => Host::Ip(address("ingress", ip)?),
            ("", _) => Host::Name(ingress.hostname),
            _ => {
                return Err(malformed(
                    "ingress",
                    "there are both ip and hostname: make two of them",
                ));
            }
        };
        Ok(Self { host, mode })
    }
}

impl From<&Balancer> for wire::Balancer {
    fn from(balancer: &Balancer) -> Self {
        let ingress = balancer.ingress.iter().map(wire::Ingress::from).collect();
        Self {
            ingress,
            pending: balancer.pending.clone().unwrap_or_default(),
        }
    }
}

impl TryFrom<wire::Balancer> for Balancer {
    type Error = Malformed;

    fn try_from(balancer: wire::Balancer) -> Result<Self, Malformed> {
        let pending = Some(balancer.pending).filter(|pending| !pending.is_empty());
        if balancer.ingress.is_empty() && pending.is_none() {
            return Err(malformed(
                "ingress",
                "there is none, and nothing is pending",
            ));
        }
        let ingress = balancer
            .ingress
            .into_iter()
            .map(Ingress::try_from)
            .collect::<Result<_, _>>()?;
        Ok(Self { ingress, pending })
    }
}

impl From<Abilities> for wire::Abilities {
    fn from(abilities: Abilities) -> Self {
        Self {
            uses_nodes: abilities.uses_nodes,
            uses_endpoints: abilities.uses_endpoints,
            announced_by_nodes: abilities.announced_by_nodes,
            needs_health_check_port: abilities.needs_health_check_port,
        }
    }
}

impl From<wire::Abilities> for Abilities {
    fn from(abilities: wire::Abilities) -> Self {
        Self {
            uses_nodes: abilities.uses_nodes,
            uses_endpoints: abilities.uses_endpoints,
            announced_by_nodes: abilities.announced_by_nodes,
            needs_health_check_port: abilities.needs_health_check_port,
        }
    }
}

impl From<&Can> for wire::Features {
    fn from(can: &Can) -> Self {
        let number = |support: &Support| -> i32 {
            let support = match support {
                Support::Full => wire::Support::Full,
                Support::Ignored => wire::Support::Ignored,
                Support::Refused => wire::Support::Refused,
                Support::Untested(_) => wire::Support::Unspecified,
            };
            support.into()
        };
        Self {
            local: number(&can.local),
            source_ranges: number(&can.source_ranges),
            affinity: number(&can.affinity),
            udp: number(&can.udp),
            mixed_protocols: number(&can.mixed_protocols),
            ipv6: number(&can.ipv6),
            dual_stack: number(&can.dual_stack),
            node_ports: number(&can.node_ports),
        }
    }
}

impl From<wire::Features> for Can {
    fn from(features: wire::Features) -> Self {
        let support = |support: wire::Support| match support {
            wire::Support::Full => Support::Full,
            wire::Support::Ignored => Support::Ignored,
            wire::Support::Refused => Support::Refused,
            wire::Support::Unspecified => {
                Support::Untested("the plugin does not say what it does about it".to_owned())
            }
        };
        Self {
            local: support(features.local()),
            source_ranges: support(features.source_ranges()),
            affinity: support(features.affinity()),
            udp: support(features.udp()),
            mixed_protocols: support(features.mixed_protocols()),
            ipv6: support(features.ipv6()),
            dual_stack: support(features.dual_stack()),
            node_ports: support(features.node_ports()),
        }
    }
}
