//! One packet for each rule, and every packet on any table.

use super::*;
use crate::edge::EdgeNode;
use crate::key::ObjectKey;
use crate::table::{NodeRules, PerFamily, Ports};
use proptest::prelude::*;
use serde_json::json;

const POD: &str = "10.244.0.7";
const CLIENT: &str = "198.51.100.10";
const NODE: &str = "172.30.0.11";

fn endpoint(address: &str, local: bool) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        port: 8080,
        local,
    }
}

fn here() -> Endpoint {
    endpoint("10.244.0.1", true)
}

fn there() -> Endpoint {
    endpoint("10.244.1.1", false)
}

fn frontend(kind: FrontendKind, address: Option<&str>, port: u16) -> Frontend {
    let (inside, masquerade) = match kind {
        FrontendKind::ClusterIp => (Outcome::Cluster, Masquerade::UnlessPod),
        _ => (Outcome::Cluster, Masquerade::Always),
    };
    let address = address.map(|address| address.parse().unwrap());
    Frontend {
        kind,
        address,
        port,
        inside,
        outside: inside,
        masquerade,
        sources: None,
    }
}

fn local_policy(frontend: Frontend, outside: Outcome) -> Frontend {
    Frontend {
        outside,
        masquerade: Masquerade::OnlyNode,
        ..frontend
    }
}

fn key(name: &str) -> PortKey {
    let service = ObjectKey::new("default", name);
    PortKey {
        service,
        port: "".into(),
        protocol: Protocol::Tcp,
        family: Family::V4,
    }
}

fn port(frontends: Vec<Frontend>) -> Arc<ServicePort> {
    let cluster = [here(), there()].into();
    Arc::new(ServicePort {
        frontends,
        cluster,
        local: [here()].into(),
        ..ServicePort::default()
    })
}

fn rules() -> NodeRules {
    NodeRules {
        local_pods: PerFamily {
            v4: LocalPods::Sources(vec!["10.244.0.0/16".parse().unwrap()]),
            v6: LocalPods::Unknown,
        },
        node_ports: PerFamily {
            v4: NodePortAddresses::Listed(vec![NODE.parse().unwrap()]),
            ..PerFamily::default()
        },
        service_cidrs: vec!["10.96.0.0/16".parse().unwrap()],
        masquerade_mark: 0x4000,
        ..NodeRules::default()
    }
}

fn table() -> ForwardingTable {
    use FrontendKind::{ClusterIp, ExternalIp, LoadBalancerIp, NodePort};
    let guarded = |address| Frontend {
        sources: Some(["198.51.100.0/24".parse::<IpNet>().unwrap()].into()),
        ..frontend(LoadBalancerIp, Some(address), 80)
    };
    let rejecting = |f: Frontend| Frontend {
        inside: Outcome::Reject,
        outside: Outcome::Reject,
        ..f
    };
    let ports = Ports::from([
        (
            key("web"),
            port(vec![
                frontend(ClusterIp, Some("10.96.0.1"), 80),
                frontend(ExternalIp, Some("192.0.2.1"), 80),
                guarded("203.0.113.1"),
                frontend(NodePort, None, 30000),
            ]),
        ),
        (
            key("local"),
            port(vec![
                frontend(ClusterIp, Some("10.96.0.2"), 80),
                local_policy(frontend(ExternalIp, Some("192.0.2.2"), 80), Outcome::Local),
                local_policy(frontend(ExternalIp, Some("192.0.2.3"), 80), Outcome::Drop),
            ]),
        ),
        (
            key("empty"),
            port(vec![
                rejecting(frontend(ClusterIp, Some("10.96.0.3"), 80)),
                rejecting(guarded("203.0.113.3")),
            ]),
        ),
    ]);
    ForwardingTable::new(rules(), ports)
}

fn packet(source: &str, destination: &str) -> Packet {
    let destination: std::net::SocketAddr = destination.parse().unwrap();
    let origin = if source == NODE {
        Origin::Node
    } else {
        Origin::Interface("eth0".into())
    };
    Packet {
        origin,
        source: source.parse().unwrap(),
        source_port: None,
        destination: destination.ip(),
        port: destination.port(),
        protocol: Protocol::Tcp,
        local: [NODE.parse().unwrap(), "172.31.0.11".parse().unwrap()].into(),
    }
}

/// What became of a packet, in few letters: `forward` with the pool and an `M` if masqueraded.
fn short(explanation: &Explanation) -> String {
    match &explanation.verdict {
        Verdict::Node { .. } => "node".into(),
        Verdict::Forward { candidates, .. } => {
            let pool = if candidates.len() == 1 {
                "local"
            } else {
                "cluster"
            };
            let all = candidates.iter().all(|candidate| candidate.masquerade);
            let none = candidates.iter().all(|candidate| !candidate.masquerade);
            format!(
                "{pool} {}",
                if all {
                    "M"
                } else if none {
                    "-"
                } else {
                    "mixed"
                }
            )
        }
        Verdict::Reject => "reject".into(),
        Verdict::Drop => "drop".into(),
        Verdict::NotOurs { .. } => "not ours".into(),
    }
}

#[test]
fn verdicts() {
    for (rule, source, destination, wanted, reason) in [
        (
            "cluster IP from a pod",
            POD,
            "10.96.0.1:80",
            "cluster -",
            "10.244.0.7 is in 10.244.0.0/16: taken for a pod",
        ),
        (
            "cluster IP from outside",
            CLIENT,
            "10.96.0.1:80",
            "cluster M",
            "since it is not a pod's",
        ),
        (
            "cluster IP from the node",
            NODE,
            "10.96.0.1:80",
            "cluster M",
            "it is the node's own",
        ),
        (
            "hairpin",
            "10.244.0.1",
            "10.96.0.1:80",
            "cluster mixed",
            "10.244.0.1 would reach itself",
        ),
        (
            "hairpin of a pod elsewhere",
            "10.244.1.1",
            "10.96.0.1:80",
            "cluster mixed",
            "10.244.1.1 would reach itself",
        ),
        (
            "external IP",
            CLIENT,
            "192.0.2.1:80",
            "cluster M",
            "an external IP of default/web",
        ),
        (
            "external IP from a pod",
            POD,
            "192.0.2.1:80",
            "cluster M",
            "so that answers come back this way",
        ),
        (
            "Local policy from outside",
            CLIENT,
            "192.0.2.2:80",
            "local -",
            "as the Local policy wants it",
        ),
        (
            "Local policy from a pod",
            POD,
            "192.0.2.2:80",
            "cluster -",
            "does not hold for packets of this node",
        ),
        (
            "Local policy from the node",
            NODE,
            "192.0.2.2:80",
            "cluster M",
            "since it may be the frontend's own",
        ),
        (
            "Local policy without endpoint",
            CLIENT,
            "192.0.2.3:80",
            "drop",
            "no endpoint on this node",
        ),
        (
            "Local policy without endpoint, from a pod",
            POD,
            "192.0.2.3:80",
            "cluster -",
            "any endpoint",
        ),
        (
            "source allowed",
            CLIENT,
            "203.0.113.1:80",
            "cluster M",
            "198.51.100.10 is in 198.51.100.0/24",
        ),
        (
            "source denied",
            "192.0.2.99",
            "203.0.113.1:80",
            "drop",
            "in none of the source ranges (198.51.100.0/24)",
        ),
        (
            "source denied, a pod",
            POD,
            "203.0.113.1:80",
            "drop",
            "in none of the source ranges",
        ),
        (
            "source denied, the node",
            NODE,
            "203.0.113.1:80",
            "drop",
            "in none of the source ranges",
        ),
        (
            "source denied comes before no endpoint",
            POD,
            "203.0.113.3:80",
            "drop",
            "in none of the source ranges",
        ),
        (
            "no endpoint, source allowed",
            CLIENT,
            "203.0.113.3:80",
            "reject",
            "no endpoint anywhere",
        ),
        (
            "no endpoint",
            POD,
            "10.96.0.3:80",
            "reject",
            "no endpoint anywhere",
        ),
        (
            "undefined port of a cluster IP",
            POD,
            "10.96.0.1:81",
            "reject",
            "10.96.0.1 is the cluster IP of default/web",
        ),
        (
            "unallocated cluster IP",
            POD,
            "10.96.9.9:80",
            "drop",
            "is in 10.96.0.0/16, where cluster IPs come from",
        ),
        (
            "undefined port of an external IP",
            CLIENT,
            "192.0.2.1:81",
            "not ours",
            "no Service answers on 192.0.2.1:81/tcp",
        ),
        (
            "node port",
            CLIENT,
            "172.30.0.11:30000",
            "cluster M",
            "172.30.0.11 is listed for node ports",
        ),
        (
            "node port on another address",
            CLIENT,
            "172.31.0.11:30000",
            "not ours",
            "a node port of default/web, but not on 172.31.0.11",
        ),
        (
            "another node's port",
            CLIENT,
            "172.30.0.12:30000",
            "not ours",
            "but not on 172.30.0.12",
        ),
        (
            "an ordinary packet",
            POD,
            "8.8.8.8:53",
            "not ours",
            "no Service answers on 8.8.8.8:53/tcp",
        ),
        (
            "two families",
            POD,
            "[fd00::1]:80",
            "not ours",
            "different address families",
        ),
    ] {
        let explanation = explain(&table(), &packet(source, destination));
        let text = explanation.to_string();
        assert_eq!(short(&explanation), wanted, "{rule}\n{text}");
        assert!(text.contains(reason), "{rule}: {reason:?}\n{text}");
        let forwarded = matches!(explanation.verdict, Verdict::Forward { .. });
        assert!(!forwarded || explanation.frontend.is_some(), "{rule}");
    }
}

#[test]
fn a_load_balancer_that_proxies_is_not_ours() {
    let settings = crate::index::Settings {
        node_name: "here".into(),
        own_address: None,
        detect_local: crate::index::DetectLocal::NodeCidr,
        node_ports: crate::index::NodePortSetting::Primary,
        masquerade_all: false,
        masquerade_mark: 0x4000,
        external_ips: true,
        load_balancer_ip_mode: true,
    };
    let mut index = crate::index::Index::new(settings);
    let service = json!({"metadata": {"namespace": "default", "name": "web"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1", "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "Proxy"}]}}});
    index.apply_service(&serde_json::from_value(service).unwrap());
    index.take();
    let explanation = explain(index.table(), &packet(POD, "203.0.113.1:80"));
    let why = "203.0.113.1:80/tcp is a load balancer of default/web that makes connections of its \
               own (ipMode: Proxy)";
    assert_eq!(explanation.verdict, Verdict::NotOurs { why: why.into() });
    index.delete_service("default", "web");
    index.take();
    let explanation = explain(index.table(), &packet(POD, "203.0.113.1:80"));
    assert_eq!(
        explanation.verdict,
        Verdict::NotOurs {
            why: "no Service answers on 203.0.113.1:80/tcp".into()
        }
    );
}

#[test]
fn the_protocol_is_part_of_the_frontend() {
    let packet = Packet {
        protocol: Protocol::Udp,
        ..packet(POD, "10.96.0.1:80")
    };
    assert_eq!(explain(&table(), &packet).verdict, Verdict::Reject);
}

#[test]
fn an_endpoint_in_the_nodes_own_network_sees_who_comes_in() {
    let node = ServicePort {
        frontends: vec![frontend(FrontendKind::NodePort, None, 30000)],
        cluster: [endpoint(NODE, true), there()].into(),
        ..ServicePort::default()
    };
    let table = ForwardingTable::new(rules(), Ports::from([(key("web"), Arc::new(node))]));
    for (source, wanted) in [
        (CLIENT, [false, true]),
        (POD, [false, true]),
        (NODE, [true, true]),
    ] {
        let Verdict::Forward { mut candidates, .. } =
            explain(&table, &packet(source, "172.30.0.11:30000")).verdict
        else {
            panic!("{source}");
        };
        candidates.sort_by_key(|candidate| !candidate.endpoint.local);
        assert_eq!(
            candidates.iter().map(|c| c.masquerade).collect::<Vec<_>>(),
            wanted,
            "{source}"
        );
    }
}

#[test]
fn a_cluster_ip_that_the_node_has_itself_is_the_nodes_for_those_who_come_in() {
    let mut packet = packet(POD, "10.96.0.1:81");
    packet.local = [packet.destination].into();
    assert_eq!(short(&explain(&table(), &packet)), "not ours");
    packet.origin = Origin::Node;
    assert_eq!(short(&explain(&table(), &packet)), "reject");
}

#[test]
fn node_ports_on_all_addresses() {
    for (rule, loopback, destination, wanted) in [
        (
            "any address of the node",
            false,
            "172.31.0.11:30000",
            "cluster M",
        ),
        (
            "an address of somebody else",
            false,
            "172.31.0.12:30000",
            "not ours",
        ),
        ("loopback", true, "127.0.0.1:30000", "cluster M"),
        ("loopback not wanted", false, "127.0.0.1:30000", "not ours"),
    ] {
        let mut table = table();
        table.rules.node_ports.v4 = NodePortAddresses::AllLocal { loopback };
        assert_eq!(
            short(&explain(&table, &packet(NODE, destination))),
            wanted,
            "{rule}"
        );
    }
}

#[test]
fn pods_told_by_interface() {
    let interface = |name: &str| Origin::Interface(name.into());
    for (rule, pods, origin, wanted) in [
        (
            "by the bridge",
            LocalPods::Interface("cni0".into()),
            interface("cni0"),
            "cluster -",
        ),
        (
            "by the bridge, another interface",
            LocalPods::Interface("cni0".into()),
            interface("cni01"),
            "cluster M",
        ),
        (
            "by prefix",
            LocalPods::InterfacePrefix("veth".into()),
            interface("veth12"),
            "cluster -",
        ),
        (
            "by prefix, another interface",
            LocalPods::InterfacePrefix("veth".into()),
            interface("eth0"),
            "cluster M",
        ),
        (
            "the node comes through none",
            LocalPods::Interface("cni0".into()),
            Origin::Node,
            "cluster M",
        ),
        (
            "by nothing",
            LocalPods::Unknown,
            interface("cni0"),
            "cluster M",
        ),
    ] {
        let mut table = table();
        table.rules.local_pods.v4 = pods;
        let packet = Packet {
            origin,
            ..packet(POD, "10.96.0.1:80")
        };
        assert_eq!(short(&explain(&table, &packet)), wanted, "{rule}");
    }
}

#[test]
fn affinity_is_named() {
    let sticky = ServicePort {
        affinity: Some(60),
        ..(*port(vec![frontend(
            FrontendKind::ClusterIp,
            Some("10.96.0.1"),
            80,
        )]))
        .clone()
    };
    let table = ForwardingTable::new(rules(), Ports::from([(key("web"), Arc::new(sticky))]));
    let explanation = explain(&table, &packet(POD, "10.96.0.1:80"));
    assert!(matches!(
        explanation.verdict,
        Verdict::Forward {
            affinity: Some(60),
            ..
        }
    ));
    assert!(
        explanation
            .to_string()
            .contains("until 60 s after its last connection")
    );
}

#[test]
fn it_reads_like_this() {
    let explanation = explain(&table(), &packet("10.244.0.1", "192.0.2.2:80"));
    assert_eq!(
        explanation.to_string(),
        "tcp 10.244.0.1 -> 192.0.2.2:80, through eth0
  192.0.2.2:80/tcp is an external IP of default/local
  10.244.0.1 is in 10.244.0.0/16: taken for a pod of this node
  the Local external policy does not hold for packets of this node and its pods
  any endpoint that this node uses may serve it
  the source address is kept, as the Local policy wants it
  10.244.0.1 would reach itself, which works only with its source address replaced
forwarded to one of
  10.244.0.1:8080 on this node, from the node's address
  10.244.1.1:8080, from the sender's address
"
    );
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    let known = [
        "10.96.0.1",
        "192.0.2.1",
        "192.0.2.2",
        "203.0.113.1",
        NODE,
        POD,
        "127.0.0.1",
        "fd00::1",
        "10.244.0.1",
    ];
    let known =
        proptest::sample::select(known.to_vec()).prop_map(|address| address.parse().unwrap());
    prop_oneof![3 => known, 1 => any::<IpAddr>()]
}

fn any_table() -> impl Strategy<Value = ForwardingTable> {
    let outcome = || {
        proptest::sample::select(vec![
            Outcome::Cluster,
            Outcome::Local,
            Outcome::Reject,
            Outcome::Drop,
        ])
    };
    let masquerade = vec![
        Masquerade::Always,
        Masquerade::UnlessPod,
        Masquerade::OnlyNode,
        Masquerade::Never,
    ];
    let kind = vec![
        FrontendKind::ClusterIp,
        FrontendKind::ExternalIp,
        FrontendKind::LoadBalancerIp,
        FrontendKind::NodePort,
    ];
    let frontend = (
        proptest::sample::select(kind),
        any::<Option<bool>>(),
        any_address(),
        outcome(),
        outcome(),
        proptest::sample::select(masquerade),
        0..3u16,
    )
        .prop_map(
            |(kind, sources, address, inside, outside, masquerade, port)| Frontend {
                kind,
                address: (kind != FrontendKind::NodePort).then_some(address),
                port,
                inside,
                outside,
                masquerade,
                sources: sources.map(|all| {
                    if all {
                        ["0.0.0.0/0".parse().unwrap()].into()
                    } else {
                        [].into()
                    }
                }),
            },
        );
    let port = proptest::collection::vec(frontend, 0..3).prop_map(|frontends| {
        Arc::new(ServicePort {
            frontends,
            cluster: [here(), there()].into(),
            ..ServicePort::default()
        })
    });
    proptest::collection::vec(port, 0..4).prop_map(|ports| {
        let keyed = ports
            .into_iter()
            .enumerate()
            .map(|(n, port)| (key(&n.to_string()), port));
        ForwardingTable::new(rules(), keyed.collect())
    })
}

proptest! {
    #[test]
    fn every_packet_has_an_explanation(table in any_table(), source in any_address(), destination in any_address(), port in 0..3u16, node: bool) {
        let origin = if node { Origin::Node } else { Origin::Interface("".into()) };
        let packet = Packet { origin, source, source_port: None, destination, port, protocol: Protocol::Tcp, local: [source].into() };
        let explanation = explain(&table, &packet);
        prop_assert!(explanation.to_string().lines().count() >= 2);
        let decided = !matches!(explanation.verdict, Verdict::NotOurs { .. });
        prop_assert!(!decided || !explanation.steps.is_empty());
    }
}

/// Two nodes beside this one: one is a neighbour, to the other there is no way.
fn with_edge(by_address: bool) -> ForwardingTable {
    let node = |name: &str, way| EdgeNode {
        name: name.into(),
        endpoints: 1,
        way,
    };
    let slots: Vec<u16> = (0..SLOTS).map(|slot| slot % 3).collect();
    let edge = Edge {
        addresses: ["203.0.113.1".parse().unwrap()].into(),
        by_address,
        nodes: [
            node("here", Way::Here),
            node("near", Way::Neighbour("172.30.0.12".parse().unwrap())),
            node("far", Way::None),
        ]
        .into(),
        slots: slots.into(),
    };
    let (own, other) = (endpoint("10.244.1.9", true), endpoint("10.244.2.9", false));
    let frontend = Frontend {
        kind: FrontendKind::LoadBalancerIp,
        address: Some("203.0.113.1".parse().unwrap()),
        port: 80,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::Always,
        sources: None,
    };
    let port = ServicePort {
        frontends: vec![frontend],
        cluster: [own, other].into(),
        local: [own].into(),
        edge: Some(Arc::new(edge)),
        ..ServicePort::default()
    };
    let key = PortKey {
        service: ObjectKey {
            namespace: "default".into(),
            name: "edge".into(),
        },
        port: "".into(),
        protocol: Protocol::Tcp,
        family: Family::V4,
    };
    let mut rules = rules();
    rules.edge.v4 = true;
    ForwardingTable::new(rules, Ports::from([(key, Arc::new(port))]))
}

#[test]
fn the_edge_names_slot_and_node() {
    let table = with_edge(false);
    let (mut seen, client) = (std::collections::BTreeSet::new(), "198.51.100.7");
    for source_port in 1000..1100 {
        let packet = Packet {
            source_port: Some(source_port),
            ..packet(client, "203.0.113.1:80")
        };
        let explanation = explain(&table, &packet);
        let slot = crate::edge::hash::slot(client.parse().unwrap(), Some(source_port));
        let step = format!("its slot, {slot} of 509, is ");
        assert!(explanation.to_string().contains(&step), "{explanation}");
        let wanted = match slot % 3 {
            0 => {
                assert!(
                    explanation
                        .to_string()
                        .contains("10.244.1.9:8080 on this node, from the sender's")
                );
                "forward"
            }
            1 => "sent to near (172.30.0.12) as it is",
            _ => "on no network of this node",
        };
        assert!(explanation.to_string().contains(wanted), "{explanation}");
        seen.insert(slot % 3);
    }
    assert_eq!(seen.len(), 3);
    let shares = explain(&table, &packet(client, "203.0.113.1:80")).to_string();
    assert!(shares.contains("here has 170 of 509 slots"), "{shares}");
}

#[test]
fn pods_and_the_node_itself_have_no_edge() {
    let table = with_edge(true);
    let outside = explain(&table, &packet("198.51.100.7", "203.0.113.1:80")).to_string();
    assert!(outside.contains("its slot, "), "{outside}");
    for inside in [POD, NODE] {
        let explanation = explain(&table, &packet(inside, "203.0.113.1:80")).to_string();
        assert!(!explanation.contains("slot"), "{explanation}");
    }
}
