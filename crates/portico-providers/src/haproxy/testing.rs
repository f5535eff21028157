//! Requests and settings to test with.

use super::desired::Desired;
use super::settings::Settings;
use super::table::Table;
use crate::{Endpoint, Family, HealthCheck, Node, Port, Protocol, Request, ServiceRef};

pub(super) fn settings() -> Settings {
    Settings::parse("addresses: [192.0.2.10, '2001:db8::10']").unwrap()
}

/// `shop/NAME` at port 80, on two nodes.
pub(super) fn request(name: &str) -> Request {
    let node = |name: &str, address: &str| Node {
        name: name.to_owned(),
        addresses: vec![address.parse().unwrap(), "fd00::7".parse().unwrap()],
        ..Node::default()
    };
    let service = ServiceRef {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    };
    Request {
        service,
        families: vec![Family::V4],
        ports: vec![port(80, 30080)],
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".to_owned(),
        }),
        nodes: vec![node("a", "10.0.0.1"), node("b", "10.0.0.2")],
        ..Request::default()
    }
}

pub(super) fn port(port: u16, node_port: u16) -> Port {
    Port {
        name: format!("p{port}"),
        protocol: Protocol::Tcp,
        port,
        node_port,
        app_protocol: None,
    }
}

pub(super) fn endpoint(address: &str, node: &str) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        port_name: "p80".to_owned(),
        protocol: Protocol::Tcp,
        port: 8080,
        node: Some(node.to_owned()),
    }
}

pub(super) fn table(requests: &[Request]) -> Table {
    let (settings, mut table) = (settings(), Table::default());
    for request in requests {
        table
            .ensure(Desired::new(request, &settings).unwrap(), &settings)
            .unwrap();
    }
    table
}
