//! A Service or two, for tests of what differs.

use portico_model::table::{
    Endpoint, Family, ForwardingTable, Frontend, FrontendKey, FrontendKind, Masquerade, NodeRules,
    Outcome, PortKey, Ports, Protocol, ServiceName, ServicePort,
};
use std::sync::Arc;

/// `10.96.0.LAST:80`, served by `10.244.0.N:8080`.
pub fn port(name: &str, last: u8, endpoints: &[u8]) -> (PortKey, Arc<ServicePort>) {
    let service = ServiceName {
        namespace: "default".into(),
        name: name.into(),
    };
    let key = PortKey {
        service,
        port: "".into(),
        protocol: Protocol::Tcp,
        family: Family::V4,
    };
    let outcome = if endpoints.is_empty() {
        Outcome::Reject
    } else {
        Outcome::Cluster
    };
    let frontend = Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some([10, 96, 0, last].into()),
        port: 80,
        inside: outcome,
        outside: outcome,
        masquerade: Masquerade::UnlessPod,
        sources: None,
    };
    let endpoint = |last: &u8| Endpoint {
        address: [10, 244, 0, *last].into(),
        port: 8080,
        local: false,
    };
    let cluster = endpoints.iter().map(endpoint).collect();
    (
        key,
        Arc::new(ServicePort {
            frontends: vec![frontend],
            cluster,
            ..ServicePort::default()
        }),
    )
}

/// With these ports alone.
pub fn table(ports: Vec<(PortKey, Arc<ServicePort>)>) -> ForwardingTable {
    let rules = NodeRules {
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    };
    ForwardingTable::new(rules, Ports::from_iter(ports))
}

/// The frontend of the port with the address `10.96.0.1`.
pub fn web() -> FrontendKey {
    let address = Some([10, 96, 0, 1].into());
    FrontendKey {
        family: Family::V4,
        address,
        port: 80,
        protocol: Protocol::Tcp,
    }
}
