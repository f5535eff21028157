//! Nodes and Services that are tried.

use portico_providers::{Family, HealthCheck, Node, Port, Protocol, Request, ServiceRef};

pub(crate) fn node(number: u8) -> Node {
    let v6 = format!("fd20::ffff:{number}").parse().unwrap();
    Node {
        name: format!("node-{number}"),
        provider_id: format!("openstack:///c0ffee{number:02}-0000-4000-8000-000000000000"),
        addresses: vec![[10, 20, 255, number].into(), v6],
        ..Node::default()
    }
}

/// A Service with two ports.
pub(crate) fn service(name: &str, annotations: &[(&str, &str)]) -> Request {
    let port = |name: &str, protocol, port, node_port| Port {
        name: name.to_owned(),
        protocol,
        port,
        node_port,
        app_protocol: None,
    };
    Request {
        cluster: "conformance".to_owned(),
        service: ServiceRef {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
        },
        balancer_name: format!("a{name}"),
        annotations: annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        families: vec![Family::V4],
        ports: vec![
            port("http", Protocol::Tcp, 80, 30080),
            port("dns", Protocol::Udp, 53, 30053),
        ],
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".to_owned(),
        }),
        nodes: vec![node(1), node(2)],
        ..Request::default()
    }
}
