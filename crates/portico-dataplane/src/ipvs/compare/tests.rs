use super::super::fake::Fake;
use super::super::plan::Operation;
use super::super::{Dataplane, Ipvs, Kernel};
use super::*;
use portico_model::table::{
    Endpoint, Frontend, FrontendKind, Masquerade, NodeRules, Outcome, PortKey, Protocol, ServiceName,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

const WEB: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

fn table() -> ForwardingTable {
    let service = ServiceName { namespace: "default".into(), name: "web".into() };
    let key = PortKey { service, port: "".into(), protocol: Protocol::Tcp, family: Family::V4 };
    let frontend = Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some(WEB),
        port: 80,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::UnlessPod,
        sources: None,
    };
    let cluster = [1, 2].map(|last| Endpoint { address: [10, 244, 0, last].into(), port: 8080, local: false });
    let port = ServicePort { frontends: vec![frontend], cluster: cluster.into(), ..ServicePort::default() };
    let rules = NodeRules { masquerade_mark: 0x4000, ..NodeRules::default() };
    ForwardingTable::new(rules, BTreeMap::from([(key, Arc::new(port))]))
}

/// Somebody does something to the kernel, behind the daemon's back.
fn after(happening: &[Operation]) -> Differences {
    let mut kernel = Fake::new(&["127.0.0.1", "172.30.0.11"]);
    let open = |kernel: &Fake| Ipvs::new(kernel.clone(), "rr".into(), Vec::new());
    open(&kernel).replace(&table()).unwrap();
    kernel.send(happening).unwrap();
    kernel.state().done.clear();
    let frontend = FrontendKey { family: Family::V4, address: Some(WEB), port: 80, protocol: Protocol::Tcp };
    let told = open(&kernel).compare(&table(), &frontend).unwrap();
    assert!(kernel.state().done.is_empty(), "looking changes nothing");
    told
}

#[test]
fn what_nobody_touched_agrees() {
    assert_eq!(after(&[]), Differences::default());
}

#[test]
fn what_is_missing_is_named() {
    let at = At { address: WEB, port: 80, protocol: Protocol::Tcp };
    let endpoint: SocketAddr = "10.244.0.2:8080".parse().unwrap();
    let told = after(&[Operation::DeleteDestination(at, endpoint)]);
    assert_eq!(told.of_frontend, ["virtual server 10.96.0.1:80/tcp lacks endpoint 10.244.0.2:8080"]);
    let told = after(&[Operation::Unbind(WEB)]);
    assert_eq!(told.of_frontend, ["kube-ipvs0 lacks the address 10.96.0.1"]);
    let told = after(&[Operation::DeleteServer(at)]);
    assert!(told.of_frontend.contains(&"virtual server 10.96.0.1:80/tcp is missing".to_owned()), "{told:?}");
}
