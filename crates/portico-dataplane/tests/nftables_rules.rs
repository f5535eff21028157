//! The nftables dataplane on the kernel: what is accepted, listed, read back and repaired.

mod support;

use portico_dataplane::nftables::Nftables;
use portico_dataplane::{Dataplane, Report};
use portico_model::table::*;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use support::Namespace;

/// A namespace with the dataplane in it.
struct Host {
    namespace: Namespace,
    nft: Arc<Mutex<Nftables>>,
}

impl Host {
    fn new() -> Host {
        let namespace = Namespace::new();
        let nft = namespace.run(|| Nftables::open().unwrap());
        Host { namespace, nft: Arc::new(Mutex::new(nft)) }
    }

    fn replace(&self, table: &ForwardingTable) -> Report {
        self.nft.lock().unwrap().replace(table).unwrap()
    }

    fn apply(&self, rules: &NodeRules, changes: &[Change]) -> Report {
        self.nft.lock().unwrap().apply(rules, changes).unwrap()
    }

    fn list(&self) -> String {
        self.namespace.sh("nft list ruleset")
    }
}

fn rules() -> NodeRules {
    NodeRules {
        local_pods: PerFamily {
            v4: LocalPods::Sources(vec!["10.244.0.0/16".parse().unwrap()]),
            v6: LocalPods::InterfacePrefix(Arc::from("veth")),
        },
        node_ports: PerFamily {
            v4: NodePortAddresses::Listed(vec!["172.30.0.11".parse().unwrap()]),
            v6: NodePortAddresses::AllLocal { loopback: false },
        },
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap(), "fd00:96::/112".parse().unwrap()],
        masquerade_mark: 0x4000,
    }
}

fn key(name: &str, family: Family) -> PortKey {
    let service = ServiceName { namespace: Arc::from("default"), name: Arc::from(name) };
    PortKey { service, port: Arc::from("http"), protocol: Protocol::Tcp, family }
}

fn address(family: Family, v4: &str, last: u16) -> IpAddr {
    match family {
        Family::V4 => format!("{v4}.{last}").parse().unwrap(),
        Family::V6 => format!("fd00:{}::{last:x}", v4.split('.').nth(1).unwrap()).parse().unwrap(),
    }
}

fn endpoints(family: Family, range: std::ops::Range<u16>) -> Arc<[Endpoint]> {
    range.map(|n| Endpoint { address: address(family, "10.244.1", n), port: 8080, local: n < 3 }).collect()
}

fn frontend(kind: FrontendKind, address: Option<IpAddr>, port: u16, masquerade: Masquerade) -> Frontend {
    Frontend { kind, address, port, inside: Outcome::Cluster, outside: Outcome::Cluster, masquerade, sources: None }
}

/// Every kind of element, in both families.
fn everything() -> ForwardingTable {
    let mut table = ForwardingTable { rules: rules(), ..ForwardingTable::default() };
    for family in Family::BOTH {
        let vip = |n| Some(address(family, "10.96.0", n));
        let mut add = |name: &str, port: ServicePort| table.ports.insert(key(name, family), Arc::new(port));
        let cluster = frontend(FrontendKind::ClusterIp, vip(10), 80, Masquerade::UnlessPod);
        let source: ipnet::IpNet = if family == Family::V4 { "192.168.0.0/16" } else { "fd00:1::/33" }.parse().unwrap();
        let local = Frontend {
            outside: Outcome::Local,
            sources: Some(Arc::from([source])),
            ..frontend(FrontendKind::LoadBalancerIp, vip(200), 80, Masquerade::OnlyNode)
        };
        let node_port =
            Frontend { address: None, kind: FrontendKind::NodePort, port: 30080, sources: None, ..local.clone() };
        let both = ServicePort {
            frontends: vec![cluster.clone(), local.clone(), node_port.clone()],
            cluster: endpoints(family, 1..11),
            local: endpoints(family, 1..3),
            ..ServicePort::default()
        };
        add("web", both.clone());
        let sticky = Frontend { address: vip(11), ..cluster.clone() };
        let sticky_local = Frontend { address: vip(201), ..local.clone() };
        add("sticky", ServicePort { frontends: vec![sticky, sticky_local], affinity: Some(10_800), ..both.clone() });
        let refuse = |f: &Frontend, n| Frontend {
            address: f.address.and(vip(n)),
            port: f.port + 1,
            inside: Outcome::Reject,
            outside: Outcome::Reject,
            sources: None,
            ..f.clone()
        };
        add(
            "empty",
            ServicePort { frontends: vec![refuse(&cluster, 12), refuse(&node_port, 0)], ..ServicePort::default() },
        );
        let elsewhere =
            |f: &Frontend| Frontend { outside: Outcome::Drop, port: f.port + 2, sources: None, ..f.clone() };
        add(
            "elsewhere",
            ServicePort {
                frontends: vec![elsewhere(&local), elsewhere(&node_port)],
                cluster: endpoints(family, 5..6),
                ..ServicePort::default()
            },
        );
        let plain = frontend(FrontendKind::ExternalIp, vip(77), 443, Masquerade::Never);
        add("plain", ServicePort { frontends: vec![plain], ..both });
    }
    table
}

#[test]
fn everything_is_accepted_listed_and_found_again() {
    let host = Host::new();
    let first = host.replace(&everything());
    assert!(first.operations > 100 && first.bytes > 5000, "{first:?}");
    assert_eq!(first.drift, Vec::<String>::new());
    let listed = host.list();
    if std::env::var_os("SHOW").is_some() {
        println!("{listed}");
    }
    for text in ["table ip portico", "table ip6 portico", "comment \"default/web:http\"", "masquerade fully-random"] {
        assert!(listed.contains(text), "no {text}");
    }
    let second = host.replace(&everything());
    assert_eq!(second, Report::default());
    let restarted = Host { nft: Arc::new(Mutex::new(host.namespace.run(|| Nftables::open().unwrap()))), ..host };
    assert_eq!(restarted.replace(&everything()), Report::default());
}
