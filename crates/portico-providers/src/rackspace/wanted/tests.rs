use super::*;
use crate::rackspace::tests::lab::config;

#[test]
fn names_are_found_by_their_first_word_and_fit() {
    let mut request = Request {
        balancer_name: "a1".into(),
        ..Request::default()
    };
    request.service.namespace = "n".repeat(63);
    request.service.name = "s".repeat(63);
    let name = name(&request);
    assert_eq!(name.len(), 128);
    let named = |name: &str| LoadBalancer {
        name: name.to_owned(),
        ..LoadBalancer::default()
    };
    assert!(is_owned(&named(&name), "a1") && is_owned(&named("a1"), "a1"));
    assert!(!is_owned(&named("a12 shop/web"), "a1") && !is_owned(&named("shop a1"), "a1"));
}

#[test]
fn networks_and_nodes_are_written_in_one_way() {
    assert_eq!(item("8.8.8.8", "DENY"), item("8.8.8.8/32", "DENY"));
    assert_eq!(item("2001:0db8::/32", "ALLOW").address, "2001:db8::/32");
    assert_eq!(
        node("fd24:f480:ce44:91bc:1af2:15ff:0000:0005", 80).address,
        "fd24:f480:ce44:91bc:1af2:15ff:0:5"
    );
    assert_eq!(node("www.example.com", 80).address, "www.example.com");
}

#[test]
fn a_range_of_everything_is_no_list() {
    let from = |ranges: &[&str], families: &[Family]| {
        let source_ranges = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let items = access_list(&Request {
            source_ranges,
            families: families.to_vec(),
            ..Request::default()
        })
        .unwrap();
        items
            .iter()
            .map(|item| format!("{} {}", item.kind, item.address))
            .collect::<Vec<_>>()
    };
    assert_eq!(from(&[], &[Family::V4]), [""; 0]);
    assert_eq!(from(&["0.0.0.0/0", "10.0.0.0/8"], &[Family::V4]), [""; 0]);
    assert_eq!(from(&["::/0"], &[Family::V4]), ["DENY 0.0.0.0/0"]);
    assert_eq!(
        from(&["10.1.2.3/8", "10.0.0.0/8"], &[Family::V4, Family::V6]),
        ["DENY 0.0.0.0/0", "ALLOW 10.0.0.0/8", "DENY ::/0"]
    );
}

#[test]
fn tcp_comes_before_udp_and_has_a_monitor() {
    let port = |protocol, port| Port {
        name: String::new(),
        protocol,
        port,
        node_port: 30000,
        app_protocol: None,
    };
    let ports = vec![
        port(Protocol::Udp, 53),
        port(Protocol::Tcp, 80),
        port(Protocol::Tcp, 53),
    ];
    let request = Request {
        ports,
        families: vec![Family::V4],
        ..Request::default()
    };
    let wanted = Wanted::new(&request, &config()).unwrap();
    let found: Vec<_> = wanted
        .balancers
        .iter()
        .map(|it| (it.protocol, it.port, it.health_monitor.is_some()))
        .collect();
    assert_eq!(
        found,
        [("TCP", 53, true), ("TCP", 80, true), ("UDP", 53, false)]
    );
}
