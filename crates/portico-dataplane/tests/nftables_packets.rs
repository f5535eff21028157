//! The nftables dataplane on the kernel, with packets: node1 of a small cluster forwards.

#![expect(clippy::unwrap_used, reason = "tests")]

use portico_dataplane::Dataplane;
use portico_dataplane::early_packets::{Answer, EarlyPacket, EarlyPacketQueue, Queue};
use portico_dataplane::nftables::{Nftables, Table, way_to_wait};
use portico_model::key::ObjectKey;
use portico_model::table::*;
use portico_testbed::Ask as _;
use portico_testbed::cluster::{POD_RANGES, SERVICE_RANGES, extra_sources};
use portico_testbed::{Cluster, Failure, Flow, Protocol as Over};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

struct Lab {
    cluster: Cluster,
    nft: Nftables,
    table: ForwardingTable,
}

impl Lab {
    fn new(rules: impl FnOnce(&mut NodeRules)) -> Self {
        Self::with(Cluster::new().unwrap(), None, rules)
    }

    fn with(
        cluster: Cluster,
        early_packets: Option<Queue>,
        rules: impl FnOnce(&mut NodeRules),
    ) -> Self {
        let open = || {
            Nftables::open(Table {
                early_packets,
                ..Table::NODE
            })
            .unwrap()
        };
        let nft = cluster.host("node1").unwrap().enter(open);
        let mut table = ForwardingTable {
            rules: node_rules(),
            ..ForwardingTable::default()
        };
        rules(&mut table.rules);
        Self {
            cluster,
            nft,
            table,
        }
    }

    fn add(&mut self, name: &str, protocol: Protocol, port: impl Fn(Family) -> ServicePort) {
        for family in Family::BOTH {
            self.table
                .ports
                .insert(key(name, protocol, family), Arc::new(port(family)));
        }
    }

    fn install(&mut self) {
        self.nft.replace(&self.table).unwrap();
    }

    fn endpoints(&self, family: Family, pods: &[&str]) -> Arc<[Endpoint]> {
        let which = if family == Family::V4 { "ip" } else { "ip6" };
        let endpoint = |pod: &&str| Endpoint {
            address: self.cluster.addresses.of(pod, which).unwrap(),
            port: 8080,
            local: pod.starts_with("pod1"),
        };
        let mut endpoints: Vec<Endpoint> = pods.iter().map(endpoint).collect();
        endpoints.sort();
        endpoints.into()
    }

    /// Whether exactly these answer, and see exactly these addresses: asks often enough to see who
    /// should not, and until all have been seen who should.
    async fn check(
        &self,
        from: &str,
        over: Over,
        to: SocketAddr,
        what: &str,
    ) -> Result<(), String> {
        let host = self.cluster.host(from).unwrap();
        let (expected, mut seen) = (expected(what), BTreeSet::new());
        // A refused TCP connection over IPv6 notices it with its second packet.
        let patience = Duration::from_millis(if what == "timeout" { 300 } else { 3000 });
        for round in 0..100 {
            let mark = from.starts_with("client").then_some(1);
            match host
                .ask(&Flow {
                    mark,
                    patience,
                    ..Flow::new(over, to)
                })
                .await
            {
                Ok(answer) => {
                    let saw = self
                        .cluster
                        .addresses
                        .owner(answer.seen.source.ip())
                        .unwrap_or("?");
                    seen.insert(format!("{} sees {saw}", answer.seen.host));
                }
                // A locally dropped packet is told to who sends it.
                Err(Failure::Unreachable) if from == "node1" && what == "timeout" => return Ok(()),
                Err(failure) => drop(seen.insert(failure.to_string())),
            }
            let is_failure = seen.iter().any(|result| !result.contains("sees"));
            if seen == expected && (is_failure || round > 12) {
                return Ok(());
            } else if !seen.is_subset(&expected) {
                break;
            }
        }
        Err(format!("{from} to {to} {over:?}: {seen:?}, not {what}"))
    }
}

fn node_rules() -> NodeRules {
    let networks = |text: &str| {
        text.split(',')
            .map(|network| network.parse().unwrap())
            .collect::<Vec<_>>()
    };
    let of = |v4: &str, v6: &str| PerFamily {
        v4: NodePortAddresses::Listed(vec![v4.parse().unwrap()]),
        v6: NodePortAddresses::Listed(vec![v6.parse().unwrap()]),
    };
    let pods = || LocalPods::Sources(networks(POD_RANGES));
    NodeRules {
        local_pods: PerFamily {
            v4: pods(),
            v6: pods(),
        },
        node_ports: of("172.30.0.11", "fd00:30::11"),
        service_cidrs: networks(SERVICE_RANGES),
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    }
}

fn key(name: &str, protocol: Protocol, family: Family) -> PortKey {
    let service = ObjectKey::new("default", name);
    PortKey {
        service,
        port: Arc::from(""),
        protocol,
        family,
    }
}

fn vip(family: Family, last: u8) -> IpAddr {
    match family {
        Family::V4 => [10, 96, 0, last].into(),
        Family::V6 => format!("fd00:10:96::{last:x}").parse().unwrap(),
    }
}

/// Not in the range of cluster IPs.
fn lb_ip(family: Family, last: u8) -> IpAddr {
    match family {
        Family::V4 => [192, 0, 2, last].into(),
        Family::V6 => format!("2001:db8:2::{last:x}").parse().unwrap(),
    }
}

fn cluster_ip(family: Family, last: u8) -> Frontend {
    Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some(vip(family, last)),
        port: 80,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::UnlessPod,
        sources: None,
    }
}

fn external(family: Family, last: u8) -> Frontend {
    let address = Some(lb_ip(family, last));
    Frontend {
        kind: FrontendKind::LoadBalancerIp,
        address,
        masquerade: Masquerade::Always,
        ..cluster_ip(family, last)
    }
}

fn external_local(family: Family, last: u8, outside: Outcome) -> Frontend {
    Frontend {
        outside,
        masquerade: Masquerade::OnlyNode,
        ..external(family, last)
    }
}

fn node_port(frontend: &Frontend, port: u16) -> Frontend {
    Frontend {
        kind: FrontendKind::NodePort,
        address: None,
        port,
        sources: None,
        ..frontend.clone()
    }
}

fn at(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 80)
}

fn expected(what: &str) -> BTreeSet<String> {
    what.split(", ").map(str::to_owned).collect()
}

const PODS: [&str; 3] = ["pod1-1", "pod1-2", "pod2-1"];

/// A Service of each kind, then who reaches whom, in both families, over TCP and UDP.
#[tokio::test(flavor = "multi_thread")]
async fn packets_go_where_the_table_says() {
    let mut lab = Lab::new(|_| ());
    let both = |family| {
        [
            lab.endpoints(family, &PODS),
            lab.endpoints(family, &PODS[..2]),
        ]
    };
    let ends = PerFamily {
        v4: both(Family::V4),
        v6: both(Family::V6),
    };
    let port = |family: Family, frontends: Vec<Frontend>| {
        let [cluster, local] = ends.get(family).clone();
        ServicePort {
            frontends,
            cluster,
            local,
            ..ServicePort::default()
        }
    };
    let remote = PerFamily {
        v4: lab.endpoints(Family::V4, &["pod2-1"]),
        v6: lab.endpoints(Family::V6, &["pod2-1"]),
    };
    let own = PerFamily {
        v4: lab.endpoints(Family::V4, &["pod1-1"]),
        v6: lab.endpoints(Family::V6, &["pod1-1"]),
    };
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        lab.add("web", protocol, |f| {
            let shared = external(f, 1);
            port(
                f,
                vec![cluster_ip(f, 1), node_port(&shared, 30_080), shared],
            )
        });
        lab.add("web-local", protocol, |f| {
            let shared = external_local(f, 2, Outcome::Local);
            port(
                f,
                vec![cluster_ip(f, 2), node_port(&shared, 30_081), shared],
            )
        });
        lab.add("elsewhere", protocol, |f| {
            let shared = external_local(f, 3, Outcome::Drop);
            let frontends = vec![node_port(&shared, 30_082), shared];
            ServicePort {
                frontends,
                cluster: remote.get(f).clone(),
                ..ServicePort::default()
            }
        });
        lab.add("here-only", protocol, |f| {
            let frontend = Frontend {
                inside: Outcome::Local,
                outside: Outcome::Local,
                ..cluster_ip(f, 4)
            };
            port(f, vec![frontend])
        });
        lab.add("empty", protocol, |f| {
            let refuse = |f: Frontend| Frontend {
                inside: Outcome::Reject,
                outside: Outcome::Reject,
                ..f
            };
            let frontends = vec![
                refuse(cluster_ip(f, 5)),
                refuse(external(f, 5)),
                refuse(node_port(&external(f, 5), 30_083)),
            ];
            ServicePort {
                frontends,
                ..ServicePort::default()
            }
        });
        lab.add("nobody-here", protocol, |f| {
            let frontends = vec![Frontend {
                inside: Outcome::Drop,
                outside: Outcome::Drop,
                ..cluster_ip(f, 6)
            }];
            ServicePort {
                frontends,
                ..ServicePort::default()
            }
        });
        lab.add("guarded", protocol, |f| {
            let sources: [ipnet::IpNet; 3] = match f {
                Family::V4 => ["198.51.100.8/29", "198.51.100.10/32", "10.244.1.0/24"],
                Family::V6 => [
                    "2001:db8:51::10/124",
                    "2001:db8:51::10/128",
                    "fd00:10:244:1::/64",
                ],
            }
            .map(|network| network.parse().unwrap());
            port(
                f,
                vec![Frontend {
                    sources: Some(Arc::from(sources)),
                    ..external(f, 7)
                }],
            )
        });
        lab.add("oneself", protocol, |f| ServicePort {
            frontends: vec![cluster_ip(f, 8)],
            cluster: own.get(f).clone(),
            ..ServicePort::default()
        });
        lab.add("plain", protocol, |f| {
            port(
                f,
                vec![Frontend {
                    masquerade: Masquerade::Never,
                    ..cluster_ip(f, 9)
                }],
            )
        });
    }
    lab.install();

    const ALL: &str = "pod1-1 sees {}, pod1-2 sees {}, pod2-1 sees {}";
    const HERE: &str = "pod1-1 sees {}, pod1-2 sees {}";
    let all = |who: &str| ALL.replace("{}", who);
    let here = |who: &str| HERE.replace("{}", who);
    let text = str::to_owned;
    let mut flows: Vec<(&str, u8, bool, u16, String)> = vec![
        // from, last byte of the address, is it a load balancer's, port, what happens
        ("pod1-3", 1, false, 80, all("pod1-3")),
        ("node1", 1, false, 80, all("node1")),
        ("client", 1, false, 80, all("node1")),
        ("client", 1, true, 80, all("node1")),
        ("pod1-3", 1, true, 80, all("node1")),
        ("client", 2, false, 80, all("node1")),
        ("client", 2, true, 80, here("client")),
        ("pod1-3", 2, true, 80, all("pod1-3")),
        ("node1", 2, true, 80, all("node1")),
        ("client", 3, true, 80, text("timeout")),
        ("pod1-3", 3, true, 80, text("pod2-1 sees pod1-3")),
        ("node1", 3, true, 80, text("pod2-1 sees node1")),
        ("pod1-3", 4, false, 80, here("pod1-3")),
        ("pod1-3", 5, false, 80, text("refused")),
        ("node1", 5, false, 80, text("refused")),
        ("client", 5, true, 80, text("refused")),
        ("node1", 5, true, 80, text("refused")),
        ("pod1-3", 6, false, 80, text("timeout")),
        ("client", 7, true, 80, all("node1")),
        ("pod1-3", 7, true, 80, all("node1")),
        ("client2", 7, true, 80, text("timeout")),
        ("node1", 7, true, 80, text("timeout")),
        ("pod1-1", 8, false, 80, text("pod1-1 sees node1")),
        ("pod1-2", 8, false, 80, text("pod1-1 sees pod1-2")),
        ("pod1-3", 1, false, 81, text("refused")),
        ("node1", 1, false, 81, text("refused")),
        ("pod1-3", 99, false, 80, text("timeout")),
        ("client", 99, false, 80, text("timeout")),
    ];
    // Address 0 stands for the node's own.
    flows.extend([
        ("client", 0, false, 30_080, all("node1")),
        ("pod1-3", 0, false, 30_080, all("node1")),
        ("node1", 0, false, 30_080, all("node1")),
        ("client", 0, false, 30_081, here("client")),
        ("pod1-3", 0, false, 30_081, all("pod1-3")),
        ("node1", 0, false, 30_081, all("node1")),
        ("client", 0, false, 30_082, text("timeout")),
        ("pod1-3", 0, false, 30_082, text("pod2-1 sees pod1-3")),
        ("client", 0, false, 30_083, text("refused")),
        ("node1", 0, false, 30_083, text("refused")),
    ]);
    let mut wrong = Vec::new();
    for family in Family::BOTH {
        for over in [Over::Tcp, Over::Udp] {
            for (from, last, is_lb, port, what) in &flows {
                let node = if family == Family::V4 {
                    "172.30.0.11"
                } else {
                    "fd00:30::11"
                };
                let address = match (last, is_lb) {
                    (0, _) => node.parse().unwrap(),
                    (last, true) => lb_ip(family, *last),
                    (last, false) => vip(family, *last),
                };
                wrong.extend(
                    lab.check(from, over, SocketAddr::new(address, *port), what)
                        .await
                        .err(),
                );
            }
            // Its own address, not masqueraded.
            wrong.extend(
                lab.check("node1", over, at(vip(family, 9)), &all("node1"))
                    .await
                    .err(),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Clients keep their endpoint over addresses and time, and lose it only with the endpoint.
#[tokio::test(flavor = "multi_thread")]
async fn affinity_lasts_as_long_as_the_endpoint() {
    let mut lab = Lab::new(|_| ());
    for family in Family::BOTH {
        let shared = external(family, 1);
        let local = external_local(family, 2, Outcome::Local);
        let port = ServicePort {
            frontends: vec![
                cluster_ip(family, 1),
                node_port(&shared, 30_080),
                shared,
                local,
            ],
            cluster: lab.endpoints(family, &PODS),
            local: lab.endpoints(family, &PODS[..2]),
            affinity: Some(600),
            ..ServicePort::default()
        };
        lab.table
            .ports
            .insert(key("sticky", Protocol::Tcp, family), Arc::new(port));
    }
    lab.install();
    for family in Family::BOTH {
        let node: IpAddr = if family == Family::V4 {
            "172.30.0.11"
        } else {
            "fd00:30::11"
        }
        .parse()
        .unwrap();
        let places = [
            at(lb_ip(family, 1)),
            at(vip(family, 1)),
            SocketAddr::new(node, 30_080),
        ];
        let sources: Vec<IpAddr> = extra_sources("client", family == Family::V6)
            .map(|source| source.parse().unwrap())
            .collect();
        let client = |source| Some(source);
        let mut had = Vec::new();
        for source in &sources {
            let mut seen = BTreeSet::new();
            for place in places {
                seen.append(&mut who(&lab, place, client(*source)).await);
            }
            assert_eq!(seen.len(), 1, "{source} stays with one");
            had.extend(seen.into_iter().map(|pod| (*source, pod)));
        }
        let used: BTreeSet<&str> = had.iter().map(|(_, pod)| pod.as_str()).collect();
        assert_eq!(used, BTreeSet::from(PODS), "32 clients use all endpoints");

        // A new process takes over, an endpoint goes and another comes: only the clients of the one
        // that went move.
        lab.nft = lab
            .cluster
            .host("node1")
            .unwrap()
            .enter(|| Nftables::open(Table::NODE).unwrap());
        assert_eq!(lab.nft.replace(&lab.table).unwrap().operations, 0);
        let key = key("sticky", Protocol::Tcp, family);
        let before = lab.table.ports.get(&key).unwrap().clone();
        let gone = lab.endpoints(family, &["pod1-2", "pod2-1"]);
        let after = Arc::new(ServicePort {
            cluster: gone,
            local: lab.endpoints(family, &["pod1-2"]),
            ..(*before).clone()
        });
        let change = Change {
            key: key.clone(),
            before: Some(before),
            after: Some(after.clone()),
        };
        lab.nft.apply(&lab.table.rules, &[change]).unwrap();
        for (source, pod) in &had {
            let now = who(&lab, places[0], client(*source)).await;
            assert_eq!(now.len(), 1, "{source} stays with its new one");
            match pod.as_str() {
                "pod1-1" => assert!(!now.contains("pod1-1")),
                pod => assert!(now.contains(pod), "{source} keeps {pod}, not {now:?}"),
            }
        }
        // Through the Local address only the endpoint of this node serves, whomever the client had.
        for source in sources.iter().take(8) {
            assert_eq!(
                who(&lab, at(lb_ip(family, 2)), client(*source)).await,
                BTreeSet::from(["pod1-2".to_owned()])
            );
        }
        lab.table.ports.insert(key, after);
    }
}

async fn who(lab: &Lab, to: SocketAddr, source: Option<IpAddr>) -> BTreeSet<String> {
    let host = lab.cluster.host("client").unwrap();
    let mut pods = BTreeSet::new();
    for _ in 0..4 {
        let answer = host
            .ask(&Flow {
                source,
                mark: Some(1),
                ..Flow::new(Over::Tcp, to)
            })
            .await;
        pods.insert(
            answer
                .map_err(|failure: Failure| format!("{to}: {failure}"))
                .unwrap()
                .seen
                .host,
        );
    }
    pods
}

/// Ways to tell pods, and node ports on every local address.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_told_by_interface_and_node_ports_are_on_all_addresses() {
    for (pods, loopback) in [
        (LocalPods::Interface(Arc::from("cni0")), false),
        (LocalPods::InterfacePrefix(Arc::from("cni")), true),
    ] {
        let mut lab = Lab::new(|rules| {
            rules.local_pods = PerFamily {
                v4: pods.clone(),
                v6: pods.clone(),
            };
            let all = NodePortAddresses::AllLocal { loopback };
            rules.node_ports = PerFamily {
                v4: all.clone(),
                v6: all,
            };
        });
        let family = Family::V4;
        lab.cluster
            .host("node1")
            .unwrap()
            .sysctl("net/ipv4/conf/all/route_localnet", "1")
            .unwrap();
        let frontends = vec![
            cluster_ip(family, 1),
            node_port(&external_local(family, 1, Outcome::Local), 30_080),
        ];
        let port = ServicePort {
            frontends,
            cluster: lab.endpoints(family, &["pod1-2", "pod2-1"]),
            local: lab.endpoints(family, &["pod1-2"]),
            ..ServicePort::default()
        };
        lab.table
            .ports
            .insert(key("web", Protocol::Tcp, family), Arc::new(port));
        lab.install();
        let node_port = |address: &str| SocketAddr::new(address.parse().unwrap(), 30_080);
        let all = |who: &str| "pod1-2 sees {}, pod2-1 sees {}".replace("{}", who);
        lab.check("pod1-3", Over::Tcp, at(vip(family, 1)), &all("pod1-3"))
            .await
            .unwrap();
        lab.check("client", Over::Tcp, at(vip(family, 1)), &all("node1"))
            .await
            .unwrap();
        for address in ["172.30.0.11", "172.31.0.11"] {
            lab.check(
                "client",
                Over::Tcp,
                node_port(address),
                "pod1-2 sees client",
            )
            .await
            .unwrap();
            lab.check("pod1-3", Over::Tcp, node_port(address), &all("pod1-3"))
                .await
                .unwrap();
        }
        let itself = if loopback {
            all("node1")
        } else {
            "refused".to_owned()
        };
        lab.check("node1", Over::Tcp, node_port("127.0.0.1"), &itself)
            .await
            .unwrap();
    }
}

/// The next packet that waits in the queue.
async fn early_packet(early_packets: &EarlyPacketQueue) -> EarlyPacket {
    let come = async {
        loop {
            if let Some(early_packet) = early_packets.early_packets().unwrap().pop() {
                return early_packet;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), come)
        .await
        .expect("nobody comes")
}

fn lab_with_doorstep() -> (Lab, EarlyPacketQueue) {
    let cluster = Cluster::new().unwrap();
    let open = || {
        (
            EarlyPacketQueue::open().unwrap(),
            way_to_wait()
                .unwrap()
                .expect("this kernel lets no packet wait"),
        )
    };
    let (early_packets, way) = cluster.host("node1").unwrap().enter(open);
    let queue = Queue {
        number: early_packets.number(),
        way,
    };
    let mut lab = Lab::with(cluster, Some(queue), |_| {});
    lab.install();
    (lab, early_packets)
}

#[tokio::test]
async fn who_comes_before_the_service_waits_for_it() {
    let (mut lab, early_packets) = lab_with_doorstep();
    for (number, from) in [(1, "node1"), (2, "pod1-1")] {
        for family in Family::BOTH {
            let to = SocketAddr::new(vip(family, number), 80);
            // A packet that is lost is sent again after a second.
            let flow = Flow {
                patience: Duration::from_millis(900),
                ..Flow::new(Over::Tcp, to)
            };
            let host = lab.cluster.host(from).unwrap().clone();
            let install = async {
                let early_packet = early_packet(&early_packets).await;
                assert_eq!(
                    (early_packet.to.address, early_packet.to.port),
                    (Some(to.ip()), 80)
                );
                let (frontends, cluster) = (
                    vec![cluster_ip(family, number)],
                    lab.endpoints(family, &["pod1-2"]),
                );
                let port = ServicePort {
                    frontends,
                    cluster,
                    ..ServicePort::default()
                };
                lab.table.ports.insert(
                    key(&format!("new-{number}"), Protocol::Tcp, family),
                    Arc::new(port),
                );
                lab.install();
                early_packets
                    .answer([(early_packet.id, Answer::Again)])
                    .unwrap();
            };
            let (answer, ()) = tokio::join!(host.ask(&flow), install);
            assert_eq!(answer.unwrap().seen.host, "pod1-2", "{from} to {to}");
        }
    }
}

#[tokio::test]
async fn who_waits_for_a_service_that_does_not_come_is_let_go() {
    let (lab, early_packets) = lab_with_doorstep();
    let host = lab.cluster.host("pod1-1").unwrap();
    let to = SocketAddr::new(vip(Family::V4, 9), 80);
    let flow = Flow {
        patience: Duration::from_millis(300),
        ..Flow::new(Over::Tcp, to)
    };
    let let_go = async {
        let early_packet = early_packet(&early_packets).await;
        early_packets
            .answer([(early_packet.id, Answer::On)])
            .unwrap();
    };
    let (answer, ()) = tokio::join!(host.ask(&flow), let_go);
    assert!(
        matches!(answer, Err(Failure::Timeout)),
        "dropped as without a queue: {answer:?}"
    );
    drop(early_packets);
    let answer = host.ask(&flow).await;
    assert!(
        matches!(answer, Err(Failure::Timeout)),
        "the same where nobody listens: {answer:?}"
    );
}
