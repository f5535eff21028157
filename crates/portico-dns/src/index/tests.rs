use super::*;
use crate::facts::Reach;
use crate::testing::{HEALTHZ, Rig, ips, name, node, service, slice};
use crate::zone::Families;
use portico_model::checks::Range;
use portico_model::report::{NodePortReach, NodeReport, PartitionAddresses};
use portico_view::fitness::Unfit;

fn public() -> Service {
    service(Reach::Public)
}

fn local() -> Service {
    Service {
        local: true,
        ..public()
    }
}

#[test]
fn what_each_kind_of_service_gives() {
    let balanced = service(Reach::Balanced);
    let addressed = Service {
        addresses: ips(&["192.0.2.1", "2001:db8::1"]),
        ..balanced.clone()
    };
    let named = Service {
        hosts: vec!["lb.example.net".to_owned()],
        ..balanced.clone()
    };
    let both = Service {
        hosts: vec!["lb.example.net".to_owned()],
        ..addressed.clone()
    };
    let four = Service {
        families: Families {
            v4: true,
            v6: false,
        },
        ..public()
    };
    let on_nodes = [
        "_http._tcp.web.shop.svc SRV 0 1 30080 n1.node.example.com.",
        "_http._tcp.web.shop.svc SRV 0 1 30080 n2.node.example.com.",
        "web.shop.svc A 10.0.0.1",
        "web.shop.svc A 10.0.0.2",
        "web.shop.svc AAAA fd00::1",
        "web.shop.svc AAAA fd00::2",
    ];
    let mut no_ports = balanced.clone();
    no_ports
        .ports
        .iter_mut()
        .for_each(|port| port.node_port = None);
    for (what, service, wanted) in [
        ("ClusterIP", service(Reach::Cluster), &[][..]),
        ("NodePort", public(), &on_nodes),
        ("a balancer to come", balanced, &on_nodes),
        ("a balancer to come without node ports", no_ports, &[]),
        (
            "a balancer's addresses",
            addressed,
            &[
                "_http._tcp.web.shop.svc SRV 0 1 80 web.shop.lb.example.com.",
                "web.shop.lb A 192.0.2.1",
                "web.shop.lb AAAA 2001:db8::1",
                "web.shop.svc A 192.0.2.1",
                "web.shop.svc AAAA 2001:db8::1",
            ],
        ),
        (
            "a balancer's name",
            named,
            &[
                "_http._tcp.web.shop.svc SRV 0 1 80 lb.example.net.",
                "web.shop.lb CNAME lb.example.net.",
                "web.shop.svc CNAME lb.example.net.",
            ],
        ),
        (
            "addresses and names",
            both,
            &[
                "_http._tcp.web.shop.svc SRV 0 1 80 lb.example.net.",
                "_http._tcp.web.shop.svc SRV 0 1 80 web.shop.lb.example.com.",
                "web.shop.lb A 192.0.2.1",
                "web.shop.lb AAAA 2001:db8::1",
                "web.shop.svc A 192.0.2.1",
                "web.shop.svc AAAA 2001:db8::1",
            ],
        ),
        ("one family", four, &on_nodes[..4]),
    ] {
        let mut rig = Rig::with_nodes();
        rig.index.set_service(name("shop/web"), Some(service));
        assert_eq!(rig.records("web.shop"), wanted, "{what}");
        rig.index.set_service(name("shop/web"), None);
        assert_eq!(rig.records("web.shop"), [""; 0], "{what}, deleted");
    }
}

#[test]
fn services_of_the_cluster_by_flag() {
    let mut rig = Rig::with(|settings| settings.cluster_services = true);
    rig.index
        .set_service(name("shop/web"), Some(service(Reach::Cluster)));
    let wanted = [
        "_http._tcp.web.shop.svc SRV 0 1 80 web.shop.svc.example.com.",
        "web.shop.svc A 10.96.0.1",
    ];
    assert_eq!(rig.records("web.shop"), wanted);
    rig.index.set_service(
        name("shop/web"),
        Some(Service {
            cluster_ips: vec![],
            ..service(Reach::Cluster)
        }),
    );
    assert_eq!(rig.records("web.shop"), [""; 0], "headless");
}

#[test]
fn external_addresses_of_nodes_go_first() {
    let mut rig = Rig::new();
    let addresses = vec![
        (AddressKind::Internal, "10.0.0.1".parse().unwrap()),
        (AddressKind::External, "192.0.2.7".parse().unwrap()),
        (AddressKind::Internal, "fd00::1".parse().unwrap()),
    ];
    rig.index.set_node(
        "n1",
        Some(Node {
            addresses,
            unfit: None,
        }),
    );
    assert_eq!(
        rig.records("n1.node"),
        ["n1.node A 192.0.2.7", "n1.node AAAA fd00::1"]
    );
    let probes = rig.index.take_probes();
    assert_eq!(
        probes.wanted,
        [format!("192.0.2.7:{HEALTHZ}").parse().unwrap()]
    );
}

/// What a node says of where its node ports answer, and of that in port partitions.
fn report(networks: &[&str], partitions: &[(&str, &[&str])]) -> Report {
    let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
    let partitions = partitions
        .iter()
        .map(|(name, addresses)| PartitionAddresses {
            name: name.to_string(),
            addresses: texts(addresses),
        });
    let told = NodeReport {
        node_ports: Some(texts(networks)),
        partitions: partitions.collect(),
        ..NodeReport::default()
    };
    Report {
        healthz_port: None,
        reach: NodePortReach::from(&told),
    }
}

#[test]
fn node_ports_of_a_partition_are_given_at_its_addresses_alone() {
    let in_left = |local| Service {
        partition: Some("left".into()),
        local,
        ..public()
    };
    let mut rig = Rig::new();
    for (node_name, shared, left) in [
        ("n1", "10.0.0.1", "10.0.9.1"),
        ("n2", "10.0.0.2", "10.0.9.2"),
    ] {
        rig.index.set_node(node_name, Some(node(&[shared, left])));
        let left = format!("{left}/32");
        rig.index.set_report(
            node_name,
            Some(report(&["10.0.0.0/8"], &[("left", &[&left])])),
        );
    }
    // It has no other address, and is given all the same.
    rig.index.set_node("n3", Some(node(&["10.0.9.3"])));
    rig.index.set_report(
        "n3",
        Some(report(&["10.0.0.0/8"], &[("left", &["10.0.9.3/32"])])),
    );
    let probes = rig.index.take_probes().wanted;
    assert_eq!(
        probes.len(),
        5,
        "each address that is given is probed: {probes:?}"
    );
    for probe in &probes {
        rig.health(&probe.to_string(), true);
    }
    rig.index
        .set_service(name("shop/web"), Some(in_left(false)));
    rig.index.set_service(name("shop/plain"), Some(public()));
    let web = [
        "_http._tcp.web.shop.svc SRV 0 1 30080 n1.left.partition.example.com.",
        "_http._tcp.web.shop.svc SRV 0 1 30080 n2.left.partition.example.com.",
        "_http._tcp.web.shop.svc SRV 0 1 30080 n3.left.partition.example.com.",
        "web.shop.svc A 10.0.9.1",
        "web.shop.svc A 10.0.9.2",
        "web.shop.svc A 10.0.9.3",
    ];
    assert_eq!(rig.records("web.shop"), web);
    assert_eq!(
        rig.records("n1.left.partition A"),
        ["n1.left.partition A 10.0.9.1"]
    );
    assert_eq!(
        rig.records("plain.shop.svc A"),
        ["plain.shop.svc A 10.0.0.1", "plain.shop.svc A 10.0.0.2"]
    );
    // What does not answer there is not given there.
    rig.health(&format!("10.0.9.2:{HEALTHZ}"), false);
    assert_eq!(rig.records("web.shop.svc A"), [web[3], web[5]]);
    assert_eq!(rig.records("plain.shop.svc A 10").len(), 2);
    rig.index.set_service(name("shop/web"), Some(in_left(true)));
    rig.index.set_slice(
        name("shop/web-1"),
        Some(slice("shop/web", "IPv4", &[("n1", 3)])),
    );
    assert_eq!(
        rig.records("web.shop"),
        [
            "_http._tcp.web.shop.svc SRV 0 3 30080 n1.left.partition.example.com.",
            web[3]
        ]
    );
    // No node has the partition any more.
    for node in ["n1", "n2", "n3"] {
        rig.index
            .set_report(node, Some(report(&["10.0.0.0/8"], &[])));
    }
    assert_eq!(rig.records("web.shop"), [""; 0]);
    assert_eq!(rig.records("partition"), [""; 0]);
    rig.index
        .set_service(name("shop/web"), Some(in_left(false)));
    assert_eq!(rig.records("web.shop"), [""; 0]);
}

#[test]
fn of_a_service_that_selects_addresses_only_those_are_given() {
    let mut rig = Rig::with_nodes();
    let select = |text: &str| Service {
        within: Some(portico_model::partitions::ranges(text).unwrap_or_default()),
        ..public()
    };
    rig.index
        .set_service(name("shop/web"), Some(select("10.0.0.2/32, fd00::/127")));
    assert_eq!(
        rig.records("web.shop"),
        [
            "_http._tcp.web.shop.svc SRV 0 1 30080 web.shop.svc.example.com.",
            "web.shop.svc A 10.0.0.2",
            "web.shop.svc AAAA fd00::1",
        ]
    );
    rig.health(&format!("10.0.0.2:{HEALTHZ}"), false);
    assert_eq!(rig.records("web.shop.svc A 10"), [""; 0]);
    rig.index
        .set_service(name("shop/web"), Some(select("nonsense")));
    assert_eq!(rig.records("web.shop"), [""; 0]);
}

/// What is published answers: no address at which the node says that node ports do not.
#[test]
fn only_addresses_at_which_node_ports_answer_are_given_and_probed() {
    let mut rig = Rig::new();
    let addresses = vec![
        (AddressKind::Internal, "10.0.0.1".parse().unwrap()),
        (AddressKind::External, "192.0.2.7".parse().unwrap()),
        (AddressKind::Internal, "fd00::1".parse().unwrap()),
    ];
    let unfit = None;
    rig.index.set_node("n1", Some(Node { addresses, unfit }));
    rig.index.take_probes();
    let listens = |networks: &[&str]| Some(report(networks, &[]));
    for (networks, given, probed) in [
        (
            &["10.0.0.1/32", "fd00::1/128"][..],
            &["n1.node A 10.0.0.1", "n1.node AAAA fd00::1"][..],
            Some("10.0.0.1"),
        ),
        (&["::/0"], &["n1.node AAAA fd00::1"], Some("[fd00::1]")),
        (&["10.9.0.0/16"], &[], None),
        (
            &["0.0.0.0/0", "::/0"],
            &["n1.node A 192.0.2.7", "n1.node AAAA fd00::1"],
            Some("192.0.2.7"),
        ),
    ] {
        rig.index.set_report("n1", listens(networks));
        assert_eq!(rig.records("n1.node"), given, "{networks:?}");
        let wanted: Vec<SocketAddr> = probed
            .into_iter()
            .map(|address| format!("{address}:{HEALTHZ}").parse().unwrap())
            .collect();
        assert_eq!(rig.index.take_probes().wanted, wanted, "{networks:?}");
    }
    // One that says nothing, as kube-proxy, is believed to answer everywhere.
    rig.index.set_report("n1", None);
    assert_eq!(rig.records("n1.node").len(), 2);
}

#[test]
fn only_fit_nodes_are_given_and_all_rather_than_none() {
    let mut rig = Rig::with_nodes();
    rig.index.set_node("n3", Some(node(&["10.0.0.3"])));
    rig.index.set_node(
        "n4",
        Some(Node {
            unfit: Some(Unfit::Excluded),
            ..node(&["10.0.0.4"])
        }),
    );
    rig.health("10.0.0.4:10256", true);
    rig.index.set_service(name("shop/web"), Some(public()));
    let given = |rig: &mut Rig| -> Vec<String> {
        let all = rig.records("web.shop.svc A 10").into_iter();
        all.map(|text| text.rsplit('.').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        given(&mut rig),
        ["1", "2"],
        "n3 was not probed, n4 is excluded"
    );
    assert_eq!(rig.records("n3.node A").len(), 1, "its name is there");
    rig.health("10.0.0.1:10256", false);
    assert_eq!(given(&mut rig), ["2"]);
    assert!(!rig.index.nobody_is_fit());
    rig.health("10.0.0.2:10256", false);
    assert_eq!(given(&mut rig), ["1", "2", "3"]);
    assert!(rig.index.nobody_is_fit());
    rig.health("10.0.0.3:10256", true);
    assert_eq!(given(&mut rig), ["3"]);
    let view = rig.index.nodes();
    assert_eq!(
        view.iter().map(|node| node.given).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    assert_eq!(view[0].healthy, Some(false));
    assert_eq!(view[3].left_out, Some(Unfit::Excluded.as_str()));
}

#[test]
fn local_services_are_where_their_endpoints_are() {
    let mut rig = Rig::with_nodes();
    rig.index.set_service(name("shop/web"), Some(local()));
    let srv = |rig: &mut Rig| rig.records("_http._tcp.web.shop.svc SRV");
    assert_eq!(
        srv(&mut rig).len(),
        2,
        "no endpoint at all: all nodes rather than none"
    );
    rig.index.set_slice(
        name("shop/web-4"),
        Some(slice("shop/web", "IPv4", &[("n2", 3)])),
    );
    rig.index.set_slice(
        name("shop/web-6"),
        Some(slice("shop/web", "IPv6", &[("n2", 2)])),
    );
    assert_eq!(
        srv(&mut rig),
        ["_http._tcp.web.shop.svc SRV 0 3 30080 n2.node.example.com."]
    );
    rig.index.set_slice(
        name("shop/web-4"),
        Some(slice("shop/web", "IPv4", &[("n1", 1), ("n2", 3)])),
    );
    assert_eq!(srv(&mut rig).len(), 2);
    rig.health("10.0.0.2:10256", false);
    assert_eq!(
        srv(&mut rig),
        ["_http._tcp.web.shop.svc SRV 0 1 30080 n1.node.example.com."]
    );
    rig.health("10.0.0.1:10256", false);
    assert_eq!(
        srv(&mut rig).len(),
        2,
        "rather all with endpoints than none"
    );
    rig.index.set_node("n2", None);
    assert_eq!(
        srv(&mut rig),
        ["_http._tcp.web.shop.svc SRV 0 1 30080 n1.node.example.com."]
    );
    rig.index.set_slice(name("shop/web-4"), None);
    rig.index.set_slice(name("shop/web-6"), None);
    rig.index.set_service(name("shop/web"), None);
    rig.settle();
    assert!(
        rig.index.services.is_empty()
            && rig.index.local.is_empty()
            && rig.index.slice_owners.is_empty()
    );
}

#[test]
fn health_ports_are_probed_where_endpoints_are_and_nodes_are_fit() {
    let mut rig = Rig::with_nodes();
    rig.index.take_probes();
    let service = Service {
        reach: Reach::Balanced,
        health_port: Some(32000),
        ..local()
    };
    rig.index
        .set_service(name("shop/web"), Some(service.clone()));
    rig.index.set_slice(
        name("shop/web-1"),
        Some(slice("shop/web", "IPv4", &[("n1", 1), ("n2", 1)])),
    );
    rig.settle();
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert_eq!(
        rig.index.take_probes().wanted,
        [at("10.0.0.1:32000"), at("10.0.0.2:32000")]
    );
    let srv = |rig: &mut Rig| rig.records("_http._tcp.web.shop.svc SRV").len();
    rig.health("10.0.0.1:32000", true);
    assert_eq!(srv(&mut rig), 1);
    rig.health("10.0.0.2:32000", true);
    assert_eq!(srv(&mut rig), 2);
    rig.health("10.0.0.1:10256", false);
    assert_eq!(srv(&mut rig), 1);
    assert_eq!(
        rig.index.take_probes().unwanted,
        [at("10.0.0.1:32000")],
        "a dead node is not asked for each Service"
    );
    let addressed = Service {
        addresses: ips(&["192.0.2.1"]),
        ..service
    };
    rig.index.set_service(name("shop/web"), Some(addressed));
    rig.settle();
    assert_eq!(
        rig.index.take_probes().unwanted,
        [at("10.0.0.2:32000")],
        "the balancer knows"
    );
}

#[test]
fn a_node_may_tell_its_port() {
    let mut rig = Rig::with_nodes();
    rig.index.set_service(name("shop/web"), Some(public()));
    rig.index.take_probes();
    let at_9999 = Report {
        healthz_port: Some(9999),
        ..Report::default()
    };
    rig.index.set_report("n1", Some(at_9999.clone()));
    rig.index.set_report("n9", Some(at_9999));
    rig.settle();
    let probes = rig.index.take_probes();
    assert_eq!((probes.wanted.len(), probes.unwanted.len()), (1, 1));
    assert!(!rig.index.is_informed());
    assert_eq!(
        rig.records("web.shop.svc A 10"),
        ["web.shop.svc A 10.0.0.2"]
    );
    rig.health("10.0.0.1:9999", true);
    assert!(rig.index.is_informed());
    assert_eq!(rig.records("web.shop.svc A 10").len(), 2);
}

#[test]
fn a_change_costs_what_it_touches() {
    let mut rig = Rig::with_nodes();
    for number in 0..1000 {
        rig.index
            .set_service(name(&format!("shop/web-{number}")), Some(public()));
    }
    rig.settle();
    rig.patches = 0;
    rig.health("10.0.0.1:10256", false);
    assert_eq!(
        rig.patches, 1,
        "a node: the list of fit nodes, not a thousand Services"
    );
    rig.patches = 0;
    rig.index.set_service(
        name("shop/web-7"),
        Some(Service {
            families: Families::default(),
            ..public()
        }),
    );
    rig.settle();
    assert_eq!(rig.patches, 2, "a Service: its names");
    rig.patches = 0;
    rig.index.set_service(name("shop/web-8"), Some(public()));
    assert!(rig.index.take().is_empty(), "the same again is no change");
}

#[test]
fn names_that_are_too_long_are_left_out() {
    let mut rig = Rig::with_nodes();
    let long = "x".repeat(63);
    rig.index
        .set_service(name(&format!("{long}/{long}")), Some(public()));
    assert_eq!(
        rig.records("xxx")
            .iter()
            .filter(|text| text.starts_with("_http"))
            .count(),
        2
    );
    rig.index
        .set_node(&[&*long; 4].join("."), Some(node(&["10.0.0.9"])));
    assert_eq!(rig.records("10.0.0.9"), [""; 0]);
    assert!(rig.index.nodes().iter().any(|node| node.left_out.is_some()));
}

/// A node writes its own status, and may claim to have any address.
#[test]
fn a_node_with_an_address_that_may_not_be_probed_is_neither_probed_nor_given() {
    let mut rig = Rig::new();
    for (name, address) in [
        ("n1", "10.0.0.1"),
        ("n2", "127.0.0.1"),
        ("n3", "169.254.169.254"),
        ("n4", "fd00:ec2::254"),
        ("n5", "::ffff:127.0.0.1"),
    ] {
        rig.index.set_node(name, Some(node(&[address])));
    }
    let wanted = rig.index.take_probes().wanted;
    assert_eq!(wanted, ["10.0.0.1:10256".parse().unwrap()]);
    rig.index.set_health(wanted[0], true);
    rig.index.take();
    let nodes = rig.index.nodes();
    let given: Vec<&str> = nodes
        .iter()
        .filter(|node| node.given)
        .map(|node| &*node.name)
        .collect();
    assert_eq!(given, ["n1"]);
    let why = nodes[2].refused.unwrap().1.to_string();
    assert!(
        why.contains("a link-local address must be in --health-check-ranges"),
        "{why}"
    );
    // Once it tells an address that is a node's, it is one like the others.
    rig.index.set_node("n2", Some(node(&["10.0.0.2"])));
    assert_eq!(
        rig.index.take_probes().wanted,
        ["10.0.0.2:10256".parse().unwrap()]
    );
    assert_eq!(rig.index.nodes()[1].refused, None);
}

#[test]
fn only_listed_addresses_are_probed_where_there_is_a_list() {
    let mut rig = Rig::with(|settings| {
        let range: Range = "127.0.0.0/8".parse().unwrap();
        settings.ranges = vec![range].into();
    });
    rig.index.set_node("n1", Some(node(&["10.0.0.1"])));
    rig.index.set_node("n2", Some(node(&["127.0.0.2"])));
    assert_eq!(
        rig.index.take_probes().wanted,
        ["127.0.0.2:10256".parse().unwrap()]
    );
}
