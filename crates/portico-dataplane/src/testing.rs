//! A Service or two, for tests of what differs.

use portico_model::key::ObjectKey;
use portico_model::table::{
    Endpoint, Family, ForwardingTable, Frontend, FrontendKey, FrontendKind, Masquerade, NodeRules,
    Outcome, PortKey, Ports, Protocol, ServicePort,
};
use std::sync::Arc;

/// `10.96.0.LAST:80`, served by `10.244.0.N:8080`.
pub(crate) fn port(name: &str, last: u8, endpoints: &[u8]) -> (PortKey, Arc<ServicePort>) {
    let service = ObjectKey::new("default", name);
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

/// A table with these ports alone.
pub(crate) fn table(ports: Vec<(PortKey, Arc<ServicePort>)>) -> ForwardingTable {
    let rules = NodeRules {
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    };
    ForwardingTable::new(rules, Ports::from_iter(ports))
}

/// The frontend of the port with the address `10.96.0.1`.
pub(crate) fn web() -> FrontendKey {
    let address = Some([10, 96, 0, 1].into());
    FrontendKey {
        family: Family::V4,
        address,
        port: 80,
        protocol: Protocol::Tcp,
    }
}

/// Names that no Kubernetes lets in, as an API server that is not what it should be could send
/// them, and what of them must not come into a rule.
pub(crate) fn hostile_names() -> Vec<String> {
    [
        "a\" -j ACCEPT",
        "a\n-A INPUT -j ACCEPT",
        "a\0b",
        "a\\\" -j ACCEPT",
        "a'; nft flush ruleset; '",
        "a\u{1b}[2Jb",
        "a\u{2028}b",
        "-j ACCEPT",
        "COMMIT",
        &"n".repeat(300),
        &"\u{e9}".repeat(300),
    ]
    .map(ToOwned::to_owned)
    .into()
}

/// A port whose Service, namespace and port have this name, in every kind of frontend.
pub(crate) fn hostile(name: &str, last: u8) -> (PortKey, Arc<ServicePort>) {
    let (mut key, served) = port("web", last, &[1, 2]);
    key.service = ObjectKey::new(name, name);
    key.port = name.into();
    let mut served = (*served).clone();
    let first = served.frontends[0].clone();
    for (kind, address) in [
        (FrontendKind::ExternalIp, Some([192, 0, 2, last].into())),
        (
            FrontendKind::LoadBalancerIp,
            Some([203, 0, 113, last].into()),
        ),
        (FrontendKind::NodePort, None),
    ] {
        served.frontends.push(Frontend {
            kind,
            address,
            port: if address.is_some() {
                80
            } else {
                30000 + u16::from(last)
            },
            masquerade: Masquerade::Always,
            sources: (kind == FrontendKind::LoadBalancerIp)
                .then(|| ["198.51.100.0/24".parse().unwrap()].into()),
            ..first.clone()
        });
    }
    served.health_check = Some(32000 + u16::from(last));
    (key, Arc::new(served))
}
