//! The Services that a provider is tried with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Case;
use crate::{Endpoint, Family, HealthCheck, Port, Protocol, Request, ServiceRef};
use portico_controller::balancers::balancer_name;

/// Where nodes answer for themselves.
const NODE_HEALTH: u16 = 10256;
/// Where nodes answer for one Service.
const SERVICE_HEALTH: u16 = 32000;

/// The Service of a number, on the first two nodes. Its ports are of no other number.
pub(super) fn service(case: &Case, number: u16) -> Request {
    let uid = uid(number, 0);
    let request = Request {
        balancer_name: balancer_name(&uid),
        service: ServiceRef {
            namespace: "default".to_owned(),
            name: format!("conformance-{number}"),
            uid,
        },
        families: vec![Family::V4],
        ports: vec![port("http", Protocol::Tcp, 8000 + number, 30_000 + number)],
        health_check: health_check(NODE_HEALTH),
        ..case.template.clone()
    };
    on_nodes(case, request, 2)
}

/// The same, created again after it was deleted.
pub(super) fn recreated(case: &Case, number: u16) -> Request {
    let mut request = service(case, number);
    request.service.uid = uid(number, 1);
    request.balancer_name = balancer_name(&request.service.uid);
    request
}

fn uid(number: u16, life: u16) -> String {
    format!("c0f0{number:04x}-{life:04x}-4000-8000-000000000000")
}

pub(super) fn on_nodes(case: &Case, request: Request, count: usize) -> Request {
    let nodes = case.nodes.iter().take(count).cloned().collect();
    with_endpoints(Request { nodes, ..request })
}

pub(super) fn with_port(request: Request, name: &str, protocol: Protocol) -> Request {
    let number = request
        .ports
        .iter()
        .map(|port| port.port)
        .max()
        .unwrap_or(8000)
        + 100;
    let mut ports = request.ports.clone();
    ports.push(port(name, protocol, number, number + 22_000));
    with_endpoints(Request { ports, ..request })
}

pub(super) fn with_other_node_port(mut request: Request) -> Request {
    request
        .ports
        .iter_mut()
        .for_each(|port| port.node_port += 200);
    request
}

pub(super) fn only_udp(mut request: Request) -> Request {
    request
        .ports
        .iter_mut()
        .for_each(|port| (port.name, port.protocol) = ("dns".to_owned(), Protocol::Udp));
    with_endpoints(request)
}

pub(super) fn local(request: Request) -> Request {
    Request {
        local: true,
        health_check: health_check(SERVICE_HEALTH),
        ..request
    }
}

pub(super) fn from(request: Request, ranges: &[&str]) -> Request {
    Request {
        source_ranges: ranges
            .iter()
            .filter_map(|range| range.parse().ok())
            .collect(),
        ..request
    }
}

pub(super) fn sticky(request: Request, seconds: u32) -> Request {
    Request {
        affinity: Some(seconds),
        ..request
    }
}

pub(super) fn in_families(request: Request, families: &[Family]) -> Request {
    with_endpoints(Request {
        families: families.to_vec(),
        ..request
    })
}

fn port(name: &str, protocol: Protocol, port: u16, node_port: u16) -> Port {
    Port {
        name: name.to_owned(),
        protocol,
        port,
        node_port,
        app_protocol: None,
    }
}

fn health_check(port: u16) -> Option<HealthCheck> {
    Some(HealthCheck {
        port,
        path: "/healthz".to_owned(),
    })
}

/// One endpoint of every port on every node.
fn with_endpoints(mut request: Request) -> Request {
    let (v6, nodes) = (
        request.families.first() == Some(&Family::V6),
        request.nodes.iter().zip(1..),
    );
    let endpoint = |port: &Port, node: &str, number: u16| Endpoint {
        address: match v6 {
            true => IpAddr::V6(Ipv6Addr::new(0xfd00, 0x10, 0x244, number, 0, 0, 0, 2)),
            false => IpAddr::V4(Ipv4Addr::from(0x0af4_0002 + (u32::from(number) << 8))),
        },
        port_name: port.name.clone(),
        protocol: port.protocol,
        port: port.port,
        node: Some(node.to_owned()),
    };
    let all = nodes.flat_map(|(node, number)| {
        request
            .ports
            .iter()
            .map(move |port| endpoint(port, &node.name, number))
    });
    let mut endpoints: Vec<Endpoint> = all.collect();
    endpoints.sort();
    request.endpoints = endpoints;
    request
}
