use super::*;
use crate::cloud::Annotations;
use crate::{HealthCheck as Asked, ServiceRef};

fn port(protocol: Protocol, port: u16) -> Port {
    Port {
        name: String::new(),
        protocol,
        port,
        node_port: 30000 + port,
        app_protocol: None,
    }
}

fn request(annotations: &[(&str, &str)]) -> Request {
    let node = |number: u32| Node {
        provider_id: format!("{ID}{number}"),
        ..Node::default()
    };
    Request {
        balancer_name: "a1".into(),
        service: ServiceRef::default(),
        families: vec![Family::V4],
        annotations: annotations
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), (*value).into()))
            .collect(),
        ports: vec![port(Protocol::Tcp, 80), port(Protocol::Tcp, 443)],
        health_check: Some(Asked {
            port: 10256,
            path: "/healthz".into(),
        }),
        nodes: vec![node(7), node(5)],
        ..Request::default()
    }
}

fn wanted(request: &Request) -> Result<Wanted, ProviderError> {
    let certificate = Annotations {
        request,
        prefix: PREFIX,
    }
    .text("certificate-id");
    Wanted::new(request, Options::of(request)?, certificate, None)
}

fn made(request: &Request) -> Result<Spec, ProviderError> {
    wanted(request)?.made()
}

/// As the cloud would have it.
fn found(spec: Spec) -> LoadBalancer {
    let (id, status, ip) = (
        "x".to_owned(),
        "active".to_owned(),
        "203.0.113.1".to_owned(),
    );
    LoadBalancer {
        id,
        status,
        created_at: String::new(),
        ip,
        ipv6: "2001:db8::1".into(),
        spec,
    }
}

fn rules(annotations: &[(&str, &str)]) -> Vec<String> {
    let line = |rule: Rule| {
        let tls = if rule.tls_passthrough { " through" } else { "" };
        let certificate = if rule.certificate_id.is_empty() {
            ""
        } else {
            " certificate"
        };
        let Rule {
            entry_protocol,
            entry_port,
            target_protocol,
            target_port,
            ..
        } = rule;
        format!("{entry_protocol}/{entry_port} {target_protocol}/{target_port}{tls}{certificate}")
    };
    made(&request(annotations))
        .unwrap()
        .forwarding_rules
        .into_iter()
        .map(line)
        .collect()
}

#[test]
fn rules_by_annotation() {
    let tcp = "tcp/80 tcp/30080";
    assert_eq!(rules(&[]), [tcp, "tcp/443 tcp/30443"]);
    assert_eq!(
        rules(&[("tls-passthrough", "true")]),
        ["https/443 https/30443 through", tcp]
    );
    assert_eq!(
        rules(&[("certificate-id", "c")]),
        ["https/443 http/30443 certificate", tcp]
    );
    assert_eq!(
        rules(&[
            ("certificate-id", "c"),
            ("http2-ports", "443"),
            ("http-ports", "80")
        ]),
        ["http/80 http/30080", "http2/443 http/30443 certificate"]
    );
    assert_eq!(
        rules(&[("certificate-id", "c"), ("http3-port", "443")]),
        [
            "http3/443 http/30443 certificate",
            "https/443 http/30443 certificate",
            tcp
        ]
    );
    assert_eq!(
        rules(&[
            ("certificate-id", "c"),
            ("tls-ports", "80"),
            ("protocol", "http")
        ]),
        ["http/443 http/30443", "https/80 http/30080 certificate"]
    );
    assert_eq!(
        rules(&[("type", "REGIONAL_NETWORK")]),
        ["tcp/80 tcp/80", "tcp/443 tcp/443"]
    );
}

#[test]
fn what_cannot_be_done_is_refused_with_the_way_out() {
    let of = |request: Request| match made(&request) {
        Err(ProviderError::Refused { reason, message }) => format!("{reason}: {message}"),
        other => panic!("{other:?}"),
    };
    let plain = request(&[]);
    let table = [
        (
            Request {
                ports: vec![port(Protocol::Sctp, 9)],
                ..plain.clone()
            },
            "ProtocolNotSupported: port 9: ",
        ),
        (
            Request {
                affinity: Some(60),
                ..plain.clone()
            },
            "AffinityNotSupported: ",
        ),
        (
            Request {
                families: vec![Family::V6],
                ..plain.clone()
            },
            "IPv6NotSupported: ",
        ),
        (
            Request {
                requested_ip: Some("192.0.2.1".into()),
                ..plain.clone()
            },
            "AddressNotSupported: loadBalancerIP 192.0.2.1",
        ),
        (
            Request {
                ports: Vec::new(),
                ..plain.clone()
            },
            "NoPorts: ",
        ),
        (
            Request {
                ports: vec![Port {
                    node_port: 0,
                    ..port(Protocol::Tcp, 80)
                }],
                ..plain.clone()
            },
            "NodePortNeeded: port 80 ",
        ),
        (
            Request {
                nodes: vec![Node {
                    name: "n".into(),
                    ..Node::default()
                }],
                ..plain
            },
            "NoDroplets: no node is known to be a droplet: n has spec.providerID \"\"",
        ),
        (
            request(&[("protocol", "https")]),
            "CertificateNeeded: port 80 has https, ",
        ),
        (
            request(&[("http3-port", "443"), ("tls-passthrough", "true")]),
            "InvalidAnnotation: ",
        ),
        (
            request(&[
                ("type", "REGIONAL_NETWORK"),
                ("enable-proxy-protocol", "true"),
            ]),
            "NotSupported: ",
        ),
        (
            request(&[("type", "REGIONAL_NETWORK"), ("http-ports", "80")]),
            "NotSupported: port 80",
        ),
    ];
    for (request, expected) in table {
        let refusal = of(request);
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    let both = Request {
        families: vec![Family::V4, Family::V6],
        require_all_families: true,
        ..request(&[("network", INTERNAL)])
    };
    assert!(of(both).starts_with("IPv6NotSupported: an internal"));
}

#[test]
fn one_that_is_as_it_should_be_is_left_alone() {
    let request = request(&[]);
    let balancer = found(made(&request).unwrap());
    assert_eq!(wanted(&request).unwrap().change(&balancer), Ok(None));
    // What the vendor chose, and others may choose.
    let chosen = Spec {
        size_unit: Some(4),
        vpc_uuid: Some("v".into()),
        project_id: Some("p".into()),
        http_idle_timeout_seconds: Some(60),
        ..balancer.spec.clone()
    };
    assert_eq!(
        wanted(&request).unwrap().change(&found(chosen.clone())),
        Ok(None)
    );
    let other = Request {
        source_ranges: vec!["192.0.2.0/24".parse().unwrap()],
        ..request
    };
    let change = wanted(&other)
        .unwrap()
        .change(&found(chosen.clone()))
        .unwrap()
        .unwrap();
    let allow = ["cidr:192.0.2.0/24".to_owned()].into();
    assert_eq!(
        change,
        Spec {
            firewall: Firewall {
                allow,
                deny: BTreeSet::new()
            },
            ..chosen
        }
    );
}

#[test]
fn the_kind_of_one_that_exists_stays_unless_the_service_says_another() {
    let passed_on = request(&[("type", "REGIONAL_NETWORK")]);
    let balancer = found(made(&passed_on).unwrap());
    // Without a word, ports are as the kind wants them.
    assert_eq!(wanted(&request(&[])).unwrap().change(&balancer), Ok(None));
    let error = wanted(&request(&[("type", "REGIONAL")]))
        .unwrap()
        .change(&balancer)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "load balancer a1 (x) has the type REGIONAL_NETWORK, not REGIONAL: delete and create the \
         Service to change it"
    );
    let error = wanted(&request(&[("network", INTERNAL)]))
        .unwrap()
        .change(&balancer)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has the network EXTERNAL, not INTERNAL"),
        "{error}"
    );
}

#[test]
fn ipv6_where_it_can_be_served() {
    let stack = |annotations: &[(&str, &str)], addresses: &[&str]| {
        let addresses: Vec<IpAddr> = addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        let nodes = vec![Node {
            provider_id: format!("{ID}1"),
            addresses,
            ..Node::default()
        }];
        let families = vec![Family::V4, Family::V6];
        made(&Request {
            families,
            nodes,
            ..request(annotations)
        })
        .unwrap()
        .network_stack
        .unwrap()
    };
    assert_eq!(stack(&[], &[]), "DUALSTACK");
    assert_eq!(stack(&[("network", INTERNAL)], &[]), "IPV4");
    let passed_on = [("type", NETWORK)];
    assert_eq!(
        (
            stack(&passed_on, &["10.0.0.1"]),
            stack(&passed_on, &["10.0.0.1", "fd00::1"])
        ),
        ("IPV4".into(), "DUALSTACK".into())
    );
    assert_eq!(
        made(&request(&[])).unwrap().network_stack.as_deref(),
        Some("IPV4")
    );
}

#[test]
fn a_status_has_addresses_of_the_services_families_or_a_name() {
    let plain = request(&[]);
    let balancer = found(made(&plain).unwrap());
    let hosts = |request: &Request| {
        let status = wanted(request).unwrap().status(&balancer);
        status
            .ingress
            .into_iter()
            .map(|ingress| ingress.host)
            .collect::<Vec<_>>()
    };
    assert_eq!(hosts(&plain), [Host::Ip("203.0.113.1".parse().unwrap())]);
    assert_eq!(
        hosts(&Request {
            families: vec![Family::V4, Family::V6],
            ..plain.clone()
        })
        .len(),
        2
    );
    assert_eq!(
        hosts(&request(&[("hostname", "shop.example")])),
        [Host::Name("shop.example".into())]
    );
    // One that is being resized is new again, and its address still the same.
    let busy = LoadBalancer {
        status: "new".into(),
        ..balancer.clone()
    };
    let status = wanted(&plain).unwrap().status(&busy);
    assert_eq!(
        (status.ingress, status.pending.as_deref()),
        (vec![], Some("load balancer a1 (x) is new"))
    );
    let ingress = wanted(&plain).unwrap().status(&balancer).ingress;
    let status = wanted(&Request {
        ingress: ingress.clone(),
        ..plain
    })
    .unwrap()
    .status(&busy);
    assert_eq!((status.ingress, status.pending.is_some()), (ingress, true));
}

#[test]
fn whose_it_is_is_at_the_end_of_the_name() {
    let request = request(&[]);
    let table = [
        ("a1", true),
        ("shop-a1", true),
        ("xa1", false),
        ("a1-shop", false),
        ("a12", false),
        ("", false),
    ];
    for (name, ours) in table {
        assert_eq!(is_ours(name, &request), ours, "{name:?}");
    }
}
