use super::*;
use portico_model::key::ObjectKey;
use portico_model::table::{FrontendKind, LocalPods, Masquerade, PerFamily};

fn here() -> Surroundings {
    let node_ports = PerFamily {
        v4: NodePortAddresses::AllLocal { loopback: true },
        ..PerFamily::default()
    };
    let local_pods = PerFamily {
        v4: LocalPods::Sources(vec!["10.244.0.0/16".parse().unwrap()]),
        v6: LocalPods::Unknown,
    };
    Surroundings {
        rules: NodeRules {
            node_ports,
            local_pods,
            ..NodeRules::default()
        },
        own: ["10.1.0.5", "127.0.0.1", "172.30.0.11", "fe80::1"]
            .map(|text| text.parse().unwrap())
            .into(),
        claimed: BTreeSet::new(),
        shadows: BTreeMap::new(),
        scheduler: "wlc".into(),
    }
}

fn endpoint(last: u8, local: bool) -> Endpoint {
    Endpoint {
        address: IpAddr::from([10, 244, 0, last]),
        port: 8080,
        local,
    }
}

/// A port of one frontend, with two endpoints, one of them here.
fn port(
    kind: FrontendKind,
    address: Option<&str>,
    (inside, outside): (Outcome, Outcome),
    ranges: &[&str],
) -> ServicePort {
    let frontend = Frontend {
        kind,
        address: address.map(|text| text.parse().unwrap()),
        port: 80,
        inside,
        outside,
        masquerade: Masquerade::OnlyNode,
        sources: (!ranges.is_empty())
            .then(|| ranges.iter().map(|text| text.parse().unwrap()).collect()),
    };
    let (here, there) = (endpoint(1, true), endpoint(2, false));
    ServicePort {
        frontends: vec![frontend],
        cluster: [here, there].into(),
        local: [here].into(),
        affinity: Some(60),
        ..ServicePort::default()
    }
}

/// What a port needs, in words.
fn needs(port: &ServicePort) -> Vec<String> {
    let service = ObjectKey::new("default", "web");
    let key = PortKey {
        service,
        port: "".into(),
        protocol: Protocol::Tcp,
        family: Family::V4,
    };
    let mut wanted = Wanted::default();
    wanted.add(&key, port, &here());
    let servers = wanted.servers.iter().map(|(at, server)| {
        let pool: Vec<_> = server
            .pool
            .iter()
            .map(|endpoint| endpoint.address.to_string())
            .collect();
        format!("{at} {} -> {}", server.settings, pool.join(" "))
    });
    let entries = wanted
        .entries
        .iter()
        .map(|(set, entry)| format!("{}: {entry}", set.name(Family::V4)));
    let addresses = wanted
        .addresses
        .keys()
        .map(|address| format!("on the link: {address}"));
    servers.chain(entries).chain(addresses).collect()
}

use Outcome::{Cluster, Drop, Local, Reject};
const LB: FrontendKind = FrontendKind::LoadBalancerIp;

#[test]
fn one_pool_for_everybody() {
    let expected = [
        "203.0.113.4:80/tcp wlc persistent 60 -> 10.244.0.1 10.244.0.2",
        "KUBE-LOAD-BALANCER-LOCAL: 203.0.113.4:80/tcp",
        "on the link: 203.0.113.4",
    ];
    assert_eq!(
        needs(&port(LB, Some("203.0.113.4"), (Cluster, Cluster), &[])),
        expected
    );
}

#[test]
fn one_pool_inside_and_one_outside_need_two_servers() {
    let expected = [
        "203.0.113.4:80/tcp wlc persistent 60 -> 10.244.0.1",
        "251.0.113.4:80/tcp wlc persistent 60 -> 10.244.0.1 10.244.0.2",
        "KUBE-LOAD-BALANCER-LOCAL: 203.0.113.4:80/tcp",
        "PORTICO-INSIDE: 203.0.113.4:80/tcp",
        "on the link: 203.0.113.4",
        "on the link: 251.0.113.4",
    ];
    assert_eq!(
        needs(&port(LB, Some("203.0.113.4"), (Cluster, Local), &[])),
        expected
    );
}

#[test]
fn who_is_dropped_outside_needs_no_second_server() {
    let expected = [
        "203.0.113.4:80/tcp wlc persistent 60 -> 10.244.0.1 10.244.0.2",
        "KUBE-LOAD-BALANCER-LOCAL: 203.0.113.4:80/tcp",
        "PORTICO-DROPPED-OUTSIDE: 203.0.113.4:80/tcp",
        "on the link: 203.0.113.4",
    ];
    assert_eq!(
        needs(&port(LB, Some("203.0.113.4"), (Cluster, Drop), &[])),
        expected
    );
}

#[test]
fn where_nobody_may_come_from_nobody_is_let_in() {
    let expected = [
        "203.0.113.4:80/tcp wlc persistent 60 -> ",
        "KUBE-LOAD-BALANCER-LOCAL: 203.0.113.4:80/tcp",
        "KUBE-LOAD-BALANCER-FW: 203.0.113.4:80/tcp",
        "on the link: 203.0.113.4",
    ];
    assert_eq!(
        needs(&port(LB, Some("203.0.113.4"), (Drop, Drop), &[])),
        expected
    );
    assert_eq!(
        needs(&port(
            LB,
            Some("203.0.113.4"),
            (Drop, Drop),
            &["10.0.0.0/8"]
        )),
        expected,
        "ranges open nothing"
    );
}

#[test]
fn a_server_without_endpoints_rejects() {
    let expected = [
        "203.0.113.4:80/tcp wlc persistent 60 -> ",
        "KUBE-LOAD-BALANCER-LOCAL: 203.0.113.4:80/tcp",
        "on the link: 203.0.113.4",
    ];
    assert_eq!(
        needs(&port(LB, Some("203.0.113.4"), (Reject, Reject), &[])),
        expected
    );
}

#[test]
fn source_ranges() {
    let guarded = needs(&port(
        LB,
        Some("203.0.113.4"),
        (Cluster, Cluster),
        &["10.0.0.0/8", "2001:db8::/32"],
    ));
    assert!(guarded.contains(&"KUBE-LOAD-BALANCER-FW: 203.0.113.4:80/tcp".to_owned()));
    let sources: Vec<_> = guarded
        .iter()
        .filter(|line| line.contains("SOURCE-CIDR"))
        .collect();
    assert_eq!(
        sources,
        ["KUBE-LOAD-BALANCER-SOURCE-CIDR: 203.0.113.4:80/tcp from 10.0.0.0/8"]
    );
    let open = needs(&port(
        LB,
        Some("203.0.113.4"),
        (Cluster, Cluster),
        &["0.0.0.0/0"],
    ));
    assert!(!open.iter().any(|line| line.contains("-FW")), "{open:?}");
}

#[test]
fn a_node_port_is_on_the_addresses_of_the_node_but_not_on_loopback_or_the_link() {
    let expected = [
        "10.1.0.5:80/tcp wlc persistent 60 -> 10.244.0.1 10.244.0.2",
        "172.30.0.11:80/tcp wlc persistent 60 -> 10.244.0.1 10.244.0.2",
        "KUBE-NODE-PORT-LOCAL: 10.1.0.5:80/tcp",
        "KUBE-NODE-PORT-LOCAL: 172.30.0.11:80/tcp",
    ];
    assert_eq!(
        needs(&port(FrontendKind::NodePort, None, (Cluster, Cluster), &[])),
        expected
    );
}

#[test]
fn an_address_that_the_node_has_stays_where_it_is() {
    let expected = [
        "172.30.0.11:80/tcp wlc persistent 60 -> 10.244.0.1 10.244.0.2",
        "KUBE-EXTERNAL-IP-LOCAL: 172.30.0.11:80/tcp",
    ];
    assert_eq!(
        needs(&port(
            FrontendKind::ExternalIp,
            Some("172.30.0.11"),
            (Cluster, Cluster),
            &[]
        )),
        expected
    );
}
