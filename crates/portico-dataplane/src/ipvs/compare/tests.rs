use super::super::fake::Fake;
use super::super::plan::Operation;
use super::super::{Dataplane, Ipvs, Kernel};
use super::*;
use crate::testing;
use portico_model::table::Protocol;
use std::net::SocketAddr;

const WEB: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

fn table() -> ForwardingTable {
    testing::table(vec![testing::port("web", 1, &[1, 2])])
}

/// Another program changes the kernel without the daemon's knowledge.
fn after(happening: &[Operation]) -> Differences {
    let mut kernel = Fake::new(&["127.0.0.1", "172.30.0.11"]);
    let open = |kernel: &Fake| Ipvs::new(kernel.clone(), "rr".into(), Vec::new());
    open(&kernel).replace(&table()).unwrap();
    kernel.send(happening).unwrap();
    kernel.state().done.clear();
    let told = open(&kernel).compare(&table(), &testing::web()).unwrap();
    assert!(kernel.state().done.is_empty(), "looking changes nothing");
    told
}

#[test]
fn what_nobody_touched_agrees() {
    assert_eq!(after(&[]), Differences::default());
}

#[test]
fn what_is_missing_is_named() {
    let at = At {
        address: WEB,
        port: 80,
        protocol: Protocol::Tcp,
    };
    let endpoint: SocketAddr = "10.244.0.2:8080".parse().unwrap();
    let told = after(&[Operation::DeleteDestination(at, endpoint)]);
    assert_eq!(
        told.of_frontend,
        ["virtual server 10.96.0.1:80/tcp lacks endpoint 10.244.0.2:8080"]
    );
    let told = after(&[Operation::Unbind(WEB)]);
    assert_eq!(told.of_frontend, ["kube-ipvs0 lacks the address 10.96.0.1"]);
    let told = after(&[Operation::DeleteServer(at)]);
    assert!(
        told.of_frontend
            .contains(&"virtual server 10.96.0.1:80/tcp is missing".to_owned()),
        "{told:?}"
    );
}
