use super::*;
use crate::{HealthCheck, Node, ServiceRef};

const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

fn port(protocol: Protocol, port: u16, node_port: u16) -> Port {
    Port {
        name: String::new(),
        protocol,
        port,
        node_port,
        app_protocol: None,
    }
}

fn request(ports: Vec<Port>) -> Request {
    Request {
        balancer_name: "a0123".to_owned(),
        service: ServiceRef {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "0123".to_owned(),
        },
        families: vec![Family::V4],
        ports,
        health_check: Some(HealthCheck {
            port: 10256,
            path: "/healthz".to_owned(),
        }),
        ..Request::default()
    }
}

fn web() -> Request {
    request(vec![port(Protocol::Tcp, 80, 30080)])
}

fn with(annotations: &[(&str, &str)]) -> Request {
    let annotation =
        |(name, value): &(&str, &str)| (format!("{PREFIX}{name}"), (*value).to_owned());
    Request {
        annotations: annotations.iter().map(annotation).collect(),
        ..web()
    }
}

fn wanted(request: &Request, kind: Kind) -> Result<Wanted, ProviderError> {
    Wanted::of(request, kind, &Names::of(request, "c1"))
}

fn network(request: &Request) -> Wanted {
    wanted(request, Kind::Network).unwrap()
}

fn reason(request: &Request, kind: Kind) -> &'static str {
    match wanted(request, kind) {
        Err(ProviderError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn told(rules: &BTreeSet<Rule>) -> Vec<String> {
    let source = |source: &Origin| match source {
        Origin::Range(range) => range.to_string(),
        other => format!("{other:?}"),
    };
    rules
        .iter()
        .map(|it| {
            format!(
                "{} {}-{} {}",
                it.protocol,
                it.from,
                it.to,
                source(&it.source)
            )
        })
        .collect()
}

#[test]
fn clients_reach_ports_and_only_the_balancer_reaches_node_ports() {
    let mut request = request(vec![
        port(Protocol::Tcp, 80, 30080),
        port(Protocol::Udp, 53, 30053),
    ]);
    let all = network(&request).groups;
    assert_eq!(
        told(&all.inbound),
        [
            "tcp 80-80 0.0.0.0/0",
            "udp 53-53 0.0.0.0/0",
            "icmp 3-4 0.0.0.0/0"
        ]
    );
    assert_eq!(
        told(&all.on_nodes),
        [
            "tcp 10256-10256 Balancer",
            "tcp 30080-30080 Balancer",
            "udp 30053-30053 Balancer"
        ]
    );
    request.source_ranges = vec![
        "192.0.2.7/24".parse().unwrap(),
        "2001:db8::/32".parse().unwrap(),
    ];
    let some = network(&request).groups;
    assert_eq!(
        told(&some.inbound),
        [
            "tcp 80-80 192.0.2.0/24",
            "udp 53-53 192.0.2.0/24",
            "icmp 3-4 192.0.2.0/24"
        ]
    );
    assert_eq!(some.on_nodes, all.on_nodes);
    // Ranges of the other family let no client in, and not all.
    request.source_ranges.remove(0);
    assert_eq!(told(&network(&request).groups.inbound), [""; 0]);
}

#[test]
fn names_are_short_and_say_all_that_cannot_be_changed() {
    let long = Request {
        balancer_name: "a".repeat(32),
        ..web()
    };
    let name = |request: &Request, cluster: &str| {
        let wanted = Wanted::of(request, Kind::Network, &Names::of(request, cluster)).unwrap();
        wanted.listeners[0].target_group.clone()
    };
    let base = name(&web(), "c1");
    assert!(
        base.len() == 32 && name(&long, &"c".repeat(100)).len() == 32,
        "{base}"
    );
    assert!(base.starts_with(&Names::of(&web(), "c1").targets));
    let other = |request: &Request| name(request, "c1") != base;
    assert!(
        other(&request(vec![port(Protocol::Tcp, 80, 30081)])),
        "another node port"
    );
    assert!(
        other(&request(vec![port(Protocol::Udp, 80, 30080)])),
        "another protocol"
    );
    assert!(
        other(&with(&[("healthcheck-interval", "30")])),
        "another interval"
    );
    assert!(
        other(&Request {
            balancer_name: "b".to_owned(),
            ..web()
        }),
        "another Service"
    );
    assert!(name(&web(), "c2") != base, "another cluster");
    // What can be changed later keeps the group, and so its targets.
    assert!(!other(&request(vec![port(Protocol::Tcp, 8080, 30080)])));
    assert!(!other(&with(&[
        ("healthcheck-timeout", "3"),
        ("proxy-protocol", "*")
    ])));
    let check = HealthCheck {
        port: 32000,
        path: "/healthz".to_owned(),
    };
    assert!(!other(&Request {
        local: true,
        health_check: Some(check),
        ..web()
    }));
}

#[test]
fn two_protocols_on_a_port_are_one_listener() {
    let both = |node_port| {
        request(vec![
            port(Protocol::Tcp, 53, 30053),
            port(Protocol::Udp, 53, node_port),
        ])
    };
    let listeners = network(&both(30053)).listeners;
    assert_eq!(
        listeners
            .iter()
            .map(|it| (it.port, it.protocol))
            .collect::<Vec<_>>(),
        [(53, "TCP_UDP")]
    );
    assert_eq!(reason(&both(30054), Kind::Network), "ProtocolNotSupported");
}

#[test]
fn ports_without_a_node_port_and_nodes_that_are_no_instances_are_left_out() {
    let node = |id: &str| Node {
        provider_id: id.to_owned(),
        ..Node::default()
    };
    let mut request = request(vec![
        port(Protocol::Tcp, 80, 0),
        port(Protocol::Tcp, 443, 30443),
    ]);
    request.nodes = [
        "aws:///eu-west-1a/i-1",
        "aws:///eu-west-1b/fargate-x",
        "gce://p/z/i-2",
        "",
    ]
    .map(node)
    .to_vec();
    let wanted = network(&request);
    assert_eq!(
        wanted
            .listeners
            .iter()
            .map(|it| it.port)
            .collect::<Vec<_>>(),
        [443]
    );
    assert_eq!(wanted.instances.into_iter().collect::<Vec<_>>(), ["i-1"]);
}

#[test]
fn what_the_vendor_cannot_do_is_refused_with_a_reason() {
    let udp = request(vec![port(Protocol::Udp, 53, 30053)]);
    let sctp = request(vec![port(Protocol::Sctp, 80, 30080)]);
    let many = |count: u16| {
        request(
            (0..count)
                .map(|n| port(Protocol::Tcp, 1000 + n, 30000 + n))
                .collect(),
        )
    };
    let v6 = Request {
        families: vec![Family::V6],
        ..web()
    };
    let both = Request {
        families: vec![Family::V4, Family::V6],
        require_all_families: true,
        ..web()
    };
    for (request, kind, expected) in [
        (&sctp, Kind::Network, "ProtocolNotSupported"),
        (&udp, Kind::Classic, "ProtocolNotSupported"),
        (&v6, Kind::Network, "FamilyNotSupported"),
        (&both, Kind::Network, "FamilyNotSupported"),
        (
            &Request {
                requested_ip: Some("192.0.2.1".to_owned()),
                ..web()
            },
            Kind::Network,
            "AddressNotSupported",
        ),
        (
            &Request {
                affinity: Some(60),
                ..web()
            },
            Kind::Classic,
            "AffinityNotSupported",
        ),
        (
            &Request {
                health_check: None,
                ..web()
            },
            Kind::Network,
            "NoHealthCheckPort",
        ),
        (&many(51), Kind::Network, "TooManyPorts"),
        (&many(101), Kind::Classic, "TooManyPorts"),
        (
            &with(&[("eip-allocations", "eipalloc-1")]),
            Kind::Classic,
            "BadAnnotation",
        ),
    ] {
        assert_eq!(reason(request, kind), expected);
    }
    assert!(wanted(&many(50), Kind::Network).is_ok() && wanted(&many(100), Kind::Classic).is_ok());
    assert!(
        wanted(
            &Request {
                require_all_families: false,
                ..both
            },
            Kind::Network
        )
        .is_ok(),
        "IPv4 is what it can have"
    );
}

#[test]
fn checks_stay_within_the_vendors_bounds() {
    let check = |annotations: &[(&str, &str)]| network(&with(annotations)).check;
    let usual = check(&[]);
    assert_eq!(
        (
            usual.port,
            usual.interval,
            usual.timeout,
            usual.healthy,
            usual.unhealthy
        ),
        (10256, 10, 5, 2, 2)
    );
    assert_eq!(check(&[("healthcheck-interval", "5")]).timeout, 4);
    for bad in [
        ("healthcheck-interval", "4"),
        ("healthcheck-interval", "301"),
        ("healthcheck-interval", "soon"),
        ("healthcheck-timeout", "1"),
        ("healthcheck-timeout", "10"),
        ("healthcheck-healthy-threshold", "1"),
        ("healthcheck-unhealthy-threshold", "11"),
        ("proxy-protocol", "http"),
    ] {
        assert_eq!(
            reason(&with(&[bad]), Kind::Network),
            "BadAnnotation",
            "{bad:?}"
        );
    }
}

#[test]
fn the_kind_is_the_services_wish() {
    let kind = |value: &str| Kind::of(&with(&[("type", value)]));
    assert_eq!(Kind::of(&web()), Ok(None));
    assert_eq!(
        (kind("nlb"), kind("classic")),
        (Ok(Some(Kind::Network)), Ok(Some(Kind::Classic)))
    );
    assert_eq!(
        (kind("external"), kind("nlb-ip")),
        (Err(ProviderError::Elsewhere), Err(ProviderError::Elsewhere))
    );
    assert!(matches!(
        kind("alb"),
        Err(ProviderError::Refused {
            reason: "BadAnnotation",
            ..
        })
    ));
}

#[test]
fn settings_and_tags() {
    let request = with(&[
        ("cross-zone-load-balancing-enabled", "true"),
        ("connection-idle-timeout", "90"),
        ("connection-draining-enabled", "true"),
        ("additional-resource-tags", "team=shop, stage = live"),
    ]);
    let told = |map: &BTreeMap<String, String>| {
        map.iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        told(&network(&request).settings),
        ["load_balancing.cross_zone.enabled=true"]
    );
    let classic = wanted(&request, Kind::Classic).unwrap();
    let settings = [
        "connection_draining.timeout=300",
        "idle_timeout=90",
        "load_balancing.cross_zone.enabled=true",
    ];
    assert_eq!(told(&classic.settings), settings);
    let tags = [
        "kubernetes.io/cluster/c1=owned",
        "kubernetes.io/service-name=shop/web",
        "stage=live",
        "team=shop",
    ];
    assert_eq!(told(&classic.tags), tags);
    assert_eq!(classic.tags, classic.groups.tags);
}
