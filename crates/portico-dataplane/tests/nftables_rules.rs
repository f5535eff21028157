//! The nftables dataplane on the kernel: what is accepted, listed, read back and repaired.

#![expect(clippy::unwrap_used, reason = "tests")]

use portico_dataplane::netlink::{Messages, Socket};
use portico_dataplane::nftables::{Nftables, Table};
use portico_dataplane::{Dataplane, Report};
use portico_model::key::ObjectKey;
use portico_model::table::*;
use portico_testbed::Testbed;
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;

/// A namespace with the dataplane in it.
struct Host {
    host: portico_testbed::Host,
    nft: Nftables,
    _bed: Testbed,
}

impl Host {
    fn new() -> Self {
        let bed = Testbed::new().unwrap();
        let host = bed.host("node").unwrap();
        Self {
            nft: host.enter(|| Nftables::open(Table::NODE).unwrap()),
            host,
            _bed: bed,
        }
    }

    fn restart(&mut self) {
        self.nft = self.host.enter(|| Nftables::open(Table::NODE).unwrap());
    }

    fn replace(&mut self, table: &ForwardingTable) -> Report {
        self.nft.replace(table).unwrap()
    }

    fn apply(&mut self, rules: &NodeRules, changes: &[Change]) -> Report {
        self.nft.apply(rules, changes).unwrap()
    }

    fn nft(&self, command: &str) -> String {
        let mut nft = Command::new("nft");
        nft.arg(command);
        self.host.run(nft, "").unwrap()
    }

    fn list(&self) -> String {
        self.nft("list ruleset")
    }

    /// In an order that does not depend on which table, chain or element was made first.
    fn sorted(&self) -> Vec<String> {
        let bare = |line: &str| {
            line.trim()
                .trim_start_matches("elements = { ")
                .trim_end_matches([',', ' ', '}'])
                .to_owned()
        };
        let mut lines: Vec<String> = self.list().lines().map(bare).collect();
        lines.sort();
        lines
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
        service_cidrs: vec![
            "10.96.0.0/12".parse().unwrap(),
            "fd00:96::/112".parse().unwrap(),
        ],
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    }
}

fn key(name: &str, family: Family) -> PortKey {
    let service = ObjectKey::new("default", name);
    PortKey {
        service,
        port: Arc::from("http"),
        protocol: Protocol::Tcp,
        family,
    }
}

fn address(family: Family, v4: &str, last: u16) -> IpAddr {
    match family {
        Family::V4 => format!("{v4}.{last}").parse().unwrap(),
        Family::V6 => format!("fd00:{}::{last:x}", v4.split('.').nth(1).unwrap())
            .parse()
            .unwrap(),
    }
}

fn endpoints(family: Family, range: std::ops::Range<u16>) -> Arc<[Endpoint]> {
    range
        .map(|n| Endpoint {
            address: address(family, "10.244.1", n),
            port: 8080,
            local: n < 3,
        })
        .collect()
}

fn frontend(
    kind: FrontendKind,
    address: Option<IpAddr>,
    port: u16,
    masquerade: Masquerade,
) -> Frontend {
    Frontend {
        kind,
        address,
        port,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade,
        sources: None,
    }
}

/// Every kind of element, in both families.
fn everything() -> ForwardingTable {
    let mut table = ForwardingTable {
        rules: rules(),
        ..ForwardingTable::default()
    };
    for family in Family::BOTH {
        let vip = |n| Some(address(family, "10.96.0", n));
        let mut add =
            |name: &str, port: ServicePort| table.ports.insert(key(name, family), Arc::new(port));
        let cluster = frontend(FrontendKind::ClusterIp, vip(10), 80, Masquerade::UnlessPod);
        let source: ipnet::IpNet = if family == Family::V4 {
            "192.168.0.0/16"
        } else {
            "fd00:1::/33"
        }
        .parse()
        .unwrap();
        let local = Frontend {
            outside: Outcome::Local,
            sources: Some(Arc::from([source])),
            ..frontend(
                FrontendKind::LoadBalancerIp,
                vip(200),
                80,
                Masquerade::OnlyNode,
            )
        };
        let node_port = Frontend {
            address: None,
            kind: FrontendKind::NodePort,
            port: 30080,
            sources: None,
            ..local.clone()
        };
        let both = ServicePort {
            frontends: vec![cluster.clone(), local.clone(), node_port.clone()],
            cluster: endpoints(family, 1..11),
            local: endpoints(family, 1..3),
            ..ServicePort::default()
        };
        add("web", both.clone());
        let sticky = Frontend {
            address: vip(11),
            ..cluster.clone()
        };
        let sticky_local = Frontend {
            address: vip(201),
            ..local.clone()
        };
        add(
            "sticky",
            ServicePort {
                frontends: vec![sticky, sticky_local],
                affinity: Some(10_800),
                ..both.clone()
            },
        );
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
            ServicePort {
                frontends: vec![refuse(&cluster, 12), refuse(&node_port, 0)],
                ..ServicePort::default()
            },
        );
        let elsewhere = |f: &Frontend| Frontend {
            outside: Outcome::Drop,
            port: f.port + 2,
            sources: None,
            ..f.clone()
        };
        add(
            "elsewhere",
            ServicePort {
                frontends: vec![elsewhere(&local), elsewhere(&node_port)],
                cluster: endpoints(family, 5..6),
                ..ServicePort::default()
            },
        );
        let plain = frontend(FrontendKind::ExternalIp, vip(77), 443, Masquerade::Never);
        add(
            "plain",
            ServicePort {
                frontends: vec![plain],
                ..both
            },
        );
    }
    table
}

#[test]
fn everything_is_accepted_listed_and_found_again() {
    let mut host = Host::new();
    let first = host.replace(&everything());
    assert!(first.operations > 100 && first.bytes > 5000, "{first:?}");
    assert_eq!(first.drift, Vec::<String>::new());
    let listed = host.list();
    if std::env::var_os("SHOW").is_some() {
        println!("{listed}");
    }
    for text in [
        "table ip portico",
        "table ip6 portico",
        "comment \"default/web:http\"",
        "masquerade fully-random",
    ] {
        assert!(listed.contains(text), "no {text}");
    }
    let second = host.replace(&everything());
    assert_eq!(second, Report::default());
    host.restart();
    assert_eq!(host.replace(&everything()), Report::default());
}

#[test]
fn what_somebody_broke_is_told_and_repaired() {
    let cases: [(&str, &str); 12] = [
        ("flush ruleset", "table ip portico is missing"),
        ("delete table ip portico", "table ip portico is missing"),
        (
            "flush table ip portico",
            "ip: rules of chain services differ",
        ),
        (
            "flush chain ip portico pick-10",
            "ip: rules of chain pick-10 differ",
        ),
        (
            "insert rule ip portico services drop",
            "ip: rules of chain services differ",
        ),
        (
            "delete element ip portico endpoints { 0:a . 0x3 }",
            "ip: 1 elements of endpoints differ",
        ),
        (
            "flush map ip portico frontends",
            "ip: 6 elements of frontends differ",
        ),
        (
            "add element ip portico cluster-ips { 10.9.9.9 }",
            "ip: 1 elements of cluster-ips differ",
        ),
        (
            "add chain ip portico other; add rule ip portico services goto other",
            "ip: chain other is not ours",
        ),
        (
            "add set ip portico more { type ipv4_addr; }",
            "ip: set more is not ours",
        ),
        (
            "add table ip portico { flags dormant; }",
            "table ip portico is not active",
        ),
        (
            "flush map ip portico classes; flush chain ip portico pick-1; delete chain ip portico \
             pick-1",
            "ip: chain pick-1 is missing",
        ),
    ];
    let mut host = Host::new();
    host.replace(&everything());
    let right = host.sorted();
    for (break_it, expected) in cases {
        host.nft(break_it);
        assert_ne!(host.sorted(), right, "{break_it}");
        let report = host.replace(&everything());
        assert!(
            report.drift.iter().any(|said| said == expected),
            "{break_it}: {:?}",
            report.drift
        );
        assert_eq!(host.sorted(), right, "{break_it}");
        assert_eq!(host.replace(&everything()), Report::default(), "{break_it}");
    }
}

#[test]
fn chains_and_sets_of_another_version_are_rebuilt_in_place() {
    let mut host = Host::new();
    host.nft(
        "add table ip portico; add chain ip portico nat-prerouting { type filter hook prerouting priority 7; };
        add map ip portico endpoints { type ipv4_addr : ipv4_addr; };
        add rule ip portico nat-prerouting ip daddr set ip daddr map @endpoints;
        add chain ip portico a; add chain ip portico b; add rule ip portico a goto b; add rule ip portico nat-prerouting jump a;
        add map ip portico m { type ipv4_addr : verdict; elements = { 10.1.1.1 : goto b }; }",
    );
    assert_eq!(
        host.replace(&everything()).drift,
        Vec::<String>::new(),
        "nothing of ours was there"
    );
    let mut fresh = Host::new();
    fresh.replace(&everything());
    assert_eq!(host.sorted(), fresh.sorted());
}

#[test]
fn changes_of_single_ports_lead_to_what_a_restart_would_install() {
    let mut host = Host::new();
    let mut table = everything();
    host.replace(&table);
    let key = key("web", Family::V4);
    let mut change = |edit: &dyn Fn(&mut ServicePort), gone: bool| {
        let before = table.ports.get(&key).cloned();
        let mut port = before.as_deref().cloned().unwrap_or_default();
        edit(&mut port);
        let after = (!gone).then(|| Arc::new(port));
        match &after {
            Some(port) => table.ports.insert(key.clone(), port.clone()),
            None => table.ports.remove(&key),
        };
        let report = host.apply(
            &table.rules,
            &[Change {
                key: key.clone(),
                before,
                after,
            }],
        );
        host.list();
        assert_eq!(host.replace(&table), Report::default());
        host.restart();
        assert_eq!(host.replace(&table), Report::default());
        report
    };
    let moved = change(&|port| port.cluster = endpoints(Family::V4, 2..12), false);
    assert_eq!(
        moved.operations, 3,
        "one element in another's place, and the new one may reach itself"
    );
    change(&|port| port.cluster = endpoints(Family::V4, 2..6), false);
    change(&|port| port.affinity = Some(60), false);
    change(&|port| port.local = endpoints(Family::V4, 1..2), false);
    change(&|port| port.affinity = Some(61), false);
    change(&|port| port.frontends.truncate(1), false);
    change(&|port| port.affinity = None, false);
    change(&|_| (), true);
    change(
        &|port| *port = (**everything().ports.get(&key).unwrap()).clone(),
        false,
    );
}

/// The kernel takes a chain for each timeout that a Service ever had, up to a limit; then the chain
/// of one that nobody has any more goes.
#[test]
fn timeouts_without_end_leave_no_chain_behind_and_may_come_back() {
    let (mut host, mut table) = (Host::new(), everything());
    host.replace(&table);
    let key = key("sticky", Family::V4);
    for seconds in (1..=1030).chain([1, 2, 1]) {
        let before = table.ports.get(&key).cloned().unwrap();
        let after = Arc::new(ServicePort {
            affinity: Some(seconds),
            ..ServicePort::clone(&before)
        });
        table.ports.insert(key.clone(), after.clone());
        let change = Change {
            key: key.clone(),
            before: Some(before),
            after: Some(after),
        };
        host.apply(&table.rules, &[change]);
    }
    let chains = host
        .list()
        .lines()
        .filter(|line| line.contains("chain pick-"))
        .count();
    assert!(chains < 1100, "{chains}");
    host.restart();
    assert_eq!(host.replace(&table), Report::default());
}

#[test]
fn other_rules_of_the_node_replace_only_the_chains_that_they_change() {
    let mut host = Host::new();
    let mut table = everything();
    host.replace(&table);
    table.rules.node_ports.v4 = NodePortAddresses::AllLocal { loopback: true };
    table.rules.local_pods.v4 = LocalPods::Interface(Arc::from("cni0"));
    table.rules.service_cidrs.clear();
    let report = host.replace(&table);
    assert!(
        report.operations > 5 && report.drift.is_empty(),
        "{report:?}"
    );
    assert!(host.list().contains("iifname \"cni0\""));
    assert_eq!(host.replace(&table), Report::default());
    let other = rules();
    host.apply(&other, &[]);
    table.rules = other;
    assert_eq!(host.replace(&table), Report::default());
}

#[test]
fn removing_takes_our_tables_and_no_others() {
    let mut host = Host::new();
    host.nft("add table ip mine; add table ip kube-proxy; add table ip6 kube-proxy");
    host.replace(&everything());
    host.nft.remove().unwrap();
    host.nft.remove().unwrap();
    assert_eq!(
        host.list(),
        "table ip mine {\n}\ntable ip kube-proxy {\n}\ntable ip6 kube-proxy {\n}\n"
    );
    let removed = || portico_dataplane::nftables::remove_kube_proxy_nftables().unwrap();
    assert_eq!((host.host.enter(removed), host.host.enter(removed)), (2, 0));
    assert_eq!(host.list(), "table ip mine {\n}\n");
}

/// Also of a batch that is too large to be told of.
#[test]
fn the_watch_tells_others_from_us() {
    let mut host = Host::new();
    let watch = host.nft.watch().unwrap();
    let mut table = everything();
    let template = table.ports.get(&key("web", Family::V4)).unwrap().clone();
    for number in 0..1500 {
        let mut port = (*template).clone();
        port.frontends = vec![frontend(
            FrontendKind::ClusterIp,
            Some([10, 97, 7, 1].into()),
            number,
            Masquerade::Always,
        )];
        table
            .ports
            .insert(key(&format!("many-{number}"), Family::V4), Arc::new(port));
    }
    assert!(host.replace(&table).operations > 10_000);
    assert!(!watch.touched().unwrap());
    let rules = table.rules.clone();
    let key = key("many-0", Family::V4);
    let before = table.ports.remove(&key);
    host.apply(
        &rules,
        &[Change {
            key,
            before,
            after: None,
        }],
    );
    host.nft("add table ip other { chain portico { }; }");
    assert!(!watch.touched().unwrap());
    assert_eq!(host.replace(&table), Report::default());
    for disturbance in [
        "delete element ip portico cluster-ips { 10.97.7.1 }",
        "flush ruleset",
    ] {
        host.nft(disturbance);
        assert!(watch.touched().unwrap(), "{disturbance}");
        assert!(!host.replace(&table).drift.is_empty(), "{disturbance}");
        assert!(!watch.touched().unwrap(), "{disturbance}");
    }
}

#[test]
fn a_set_that_is_full_is_made_larger_in_place() {
    let mut host = Host::new();
    let mut table = everything();
    host.replace(&table);
    let template = table.ports.get(&key("web", Family::V4)).unwrap().clone();
    let mut changes = Vec::new();
    for number in 0..1000u16 {
        let mut port = (*template).clone();
        let [high, low] = number.to_be_bytes();
        let cluster_ip = Some([10, 97, high, low].into());
        port.frontends = vec![frontend(
            FrontendKind::ClusterIp,
            cluster_ip,
            80,
            Masquerade::Always,
        )];
        port.cluster = (0..20)
            .map(|n| Endpoint {
                address: [10, 200 + n, high, low].into(),
                port: 80,
                local: false,
            })
            .collect();
        let (key, after) = (
            key(&format!("many-{number}"), Family::V4),
            Some(Arc::new(port)),
        );
        if let Some(port) = &after {
            table.ports.insert(key.clone(), port.clone());
        }
        changes.push(Change {
            key,
            before: None,
            after,
        });
    }
    let error = host.nft.apply(&table.rules, &changes).unwrap_err();
    assert!(error.to_string().contains("a set is full"), "{error}");
    let report = host.replace(&table);
    assert!(
        report
            .drift
            .contains(&"ip: set endpoints is too small".to_owned()),
        "{:?}",
        report.drift
    );
    assert_eq!(host.replace(&table), Report::default());
    host.restart();
    assert_eq!(host.replace(&table), Report::default());
}

/// Each has its own table; neither sees, repairs nor removes the other's.
#[test]
fn tables_of_other_names_are_left_alone() {
    let mut host = Host::new();
    let table = ForwardingTable {
        rules: rules(),
        ..ForwardingTable::default()
    };
    let mut other = host
        .host
        .enter(|| Nftables::open(Table::small("portico-other")).unwrap());
    host.replace(&table);
    assert!(!other.is_installed().unwrap());
    other.replace(&table).unwrap();
    assert_eq!(host.replace(&table), Report::default());
    let both = host.sorted();
    host.restart();
    assert_eq!(host.replace(&table), Report::default());
    assert_eq!(other.replace(&table).unwrap(), Report::default());
    assert_eq!(host.sorted(), both);
    other.remove().unwrap();
    assert!(host.list().contains("table ip portico {") && !host.list().contains("portico-other"));
    other.replace(&table).unwrap();
    host.nft.remove().unwrap();
    assert!(
        host.list().contains("table ip6 portico-other {") && !host.list().contains("portico {")
    );
    assert_eq!(other.replace(&table).unwrap(), Report::default());
}

/// A batch that adds and deletes tables of IPv4, and asks for an answer to the last of it.
fn batch(operations: &[(u8, &str)]) -> Messages {
    let mut batch = Messages::new();
    batch.message(0x10, 0, |m| m.raw(&[0, 0, 0, 10]));
    for (command, table) in operations {
        batch.netfilter(10, *command, 0, 2, |m| m.put_str(1, table));
    }
    batch.acknowledge_last();
    batch.message(0x11, 0, |m| m.raw(&[0, 0, 0, 10]));
    batch
}

#[test]
fn all_answers_to_a_batch_are_read_and_none_is_left_for_the_next() {
    const ADD: u8 = 0;
    const DELETE: u8 = 2;
    let bed = Testbed::new().unwrap();
    let host = bed.host("node").unwrap();
    let mut socket = host.enter(|| Socket::netfilter().unwrap());
    let mut send = |operations: &[(u8, &str)]| {
        let replies = socket.exchange_batch(&batch(operations)).unwrap();
        let refused: Vec<u32> = replies
            .refused
            .iter()
            .map(|refused| refused.sequence)
            .collect();
        (replies.acknowledged, refused)
    };
    for _ in 0..2 {
        assert_eq!(send(&[(ADD, "one"), (ADD, "two")]), (1, vec![]));
        assert_eq!(
            send(&[(DELETE, "none"), (DELETE, "neither"), (ADD, "three")]),
            (1, vec![2, 3])
        );
        assert_eq!(send(&[(ADD, "three"), (DELETE, "none")]), (0, vec![3]));
    }
}
