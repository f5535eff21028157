use super::*;
use portico_model::key::ObjectKey;
use portico_model::table::{FrontendKind, Masquerade, Outcome, Ports};

/// Frontends as `address:port`, or `:port` for a node port; endpoints as `address:port`, lingering
/// ones after a `|`.
fn port(frontends: &str, endpoints: &str) -> Option<Arc<ServicePort>> {
    let (pool, lingering) = endpoints.split_once('|').unwrap_or((endpoints, ""));
    let frontends = frontends.split_whitespace().map(frontend).collect();
    Some(Arc::new(ServicePort {
        frontends,
        cluster: pool_of(pool),
        lingering: pool_of(lingering),
        ..ServicePort::default()
    }))
}

fn frontend(text: &str) -> Frontend {
    let (address, port) = match text.strip_prefix(':') {
        Some(port) => (None, port.parse().unwrap()),
        None => {
            let at: SocketAddr = text.parse().unwrap();
            (Some(at.ip()), at.port())
        }
    };
    let kind = if address.is_none() {
        FrontendKind::NodePort
    } else {
        FrontendKind::ClusterIp
    };
    let (inside, outside) = (Outcome::Cluster, Outcome::Cluster);
    Frontend {
        kind,
        address,
        port,
        inside,
        outside,
        masquerade: Masquerade::Never,
        sources: None,
    }
}

fn pool_of(text: &str) -> Arc<[Endpoint]> {
    let endpoint = |text: &str| {
        let at: SocketAddr = text.parse().unwrap();
        Endpoint {
            address: at.ip(),
            port: at.port(),
            local: false,
        }
    };
    let mut pool: Vec<Endpoint> = text.split_whitespace().map(endpoint).collect();
    pool.sort();
    pool.into()
}

fn key(name: &str, protocol: Protocol) -> PortKey {
    let service = ObjectKey::new("default", name);
    PortKey {
        service,
        port: "".into(),
        protocol,
        family: Family::V4,
    }
}

fn change(name: &str, before: Option<Arc<ServicePort>>, after: Option<Arc<ServicePort>>) -> Change {
    Change {
        key: key(name, Protocol::Udp),
        before,
        after,
    }
}

fn rules(addresses: NodePortAddresses) -> NodeRules {
    NodeRules {
        node_ports: PerFamily {
            v4: addresses.clone(),
            v6: addresses,
        },
        ..NodeRules::default()
    }
}

fn node() -> NodeRules {
    rules(NodePortAddresses::Listed(vec![
        "192.0.2.1".parse().unwrap(),
    ]))
}

/// Whether a flow `client's destination > who answers`, or one with `client: ` before it, ends, on a node that has 192.0.2.1 and
/// 127.0.0.1.
fn ends(stale: &Stale, flow: &str) -> bool {
    let (from, flow) = flow.split_once(": ").unwrap_or(("10.244.0.9", flow));
    let (to, answered_by) = flow.split_once(" > ").unwrap();
    let mut is_local =
        |address: IpAddr| ["192.0.2.1", "127.0.0.1"].contains(&address.to_string().as_str());
    stale.judge(
        Protocol::Udp,
        from.parse().unwrap(),
        to.parse().unwrap(),
        answered_by.parse().unwrap(),
        &mut is_local,
    )
}

const IP: &str = "10.96.0.1:53";
const A: &str = "10.244.0.1:53";
const B: &str = "10.244.0.2:53";
const TO_A: &str = "10.96.0.1:53 > 10.244.0.1:53";
const TO_B: &str = "10.96.0.1:53 > 10.244.0.2:53";
const UNTRANSLATED: &str = "10.96.0.1:53 > 10.96.0.1:53";

#[test]
fn flows_end_whose_endpoint_is_gone() {
    let both = &format!("{A} {B}");
    type Case<'a> = (
        &'a str,
        Option<Arc<ServicePort>>,
        Option<Arc<ServicePort>>,
        &'a [&'a str],
        &'a [&'a str],
    );
    // What changed, which flows end, which stay.
    let cases: &[Case] = &[
        (
            "an endpoint was removed",
            port(IP, both),
            port(IP, B),
            &[TO_A, UNTRANSLATED],
            &[TO_B],
        ),
        (
            "an endpoint was replaced",
            port(IP, A),
            port(IP, B),
            &[TO_A],
            &[TO_B],
        ),
        (
            "its port changed",
            port(IP, A),
            port(IP, "10.244.0.1:5353"),
            &[TO_A],
            &["10.96.0.1:53 > 10.244.0.1:5353"],
        ),
        (
            "it terminates but serves",
            port(IP, both),
            port(IP, &format!("{B}|{A}")),
            &[],
            &[TO_A, TO_B],
        ),
        (
            "it no longer serves",
            port(IP, &format!("{B}|{A}")),
            port(IP, B),
            &[TO_A],
            &[TO_B],
        ),
        (
            "an endpoint was added",
            port(IP, A),
            port(IP, both),
            &[],
            &[TO_A, TO_B, UNTRANSLATED],
        ),
        (
            "the first endpoint appears",
            port(IP, ""),
            port(IP, B),
            &[TO_A, UNTRANSLATED],
            &[TO_B],
        ),
        (
            "the Service appears",
            None,
            port(IP, B),
            &[TO_A, UNTRANSLATED],
            &[TO_B],
        ),
        (
            "it appears without endpoints",
            None,
            port(IP, ""),
            &[TO_A, UNTRANSLATED],
            &[],
        ),
        (
            "the Service was deleted",
            port(IP, A),
            None,
            &[TO_A],
            &[TO_B, UNTRANSLATED],
        ),
        (
            "it was deleted after its last endpoint",
            port(IP, ""),
            None,
            &[TO_A, TO_B],
            &[UNTRANSLATED],
        ),
        (
            "the last endpoint was removed: not now",
            port(IP, A),
            port(IP, ""),
            &[],
            &[TO_A],
        ),
        (
            "an address was added",
            port(IP, A),
            port("10.96.0.1:53 203.0.113.1:53", A),
            &[
                "203.0.113.1:53 > 203.0.113.1:53",
                "203.0.113.1:53 > 10.244.0.2:53",
            ],
            &["203.0.113.1:53 > 10.244.0.1:53", TO_A, TO_B, UNTRANSLATED],
        ),
        (
            "an address was removed",
            port("10.96.0.1:53 203.0.113.1:53", A),
            port(IP, A),
            &["203.0.113.1:53 > 10.244.0.1:53"],
            &["203.0.113.1:53 > 203.0.113.1:53", TO_A],
        ),
        (
            "a node port is one on the node's addresses only",
            port(":30053", both),
            port(":30053", B),
            &[
                "192.0.2.1:30053 > 10.244.0.1:53",
                "192.0.2.1:30053 > 192.0.2.1:30053",
            ],
            &[
                "192.0.2.1:30053 > 10.244.0.2:53",
                "198.51.100.1:30053 > 198.51.100.1:30053",
                "127.0.0.1:30053 > 127.0.0.1:30053",
            ],
        ),
        (
            "IPv6",
            port("[fd00::1]:53", "[fd01::1]:53 [fd01::2]:53"),
            port("[fd00::1]:53", "[fd01::2]:53"),
            &[],
            &["[fd00::1]:53 > [fd01::2]:53", TO_A],
        ),
    ];
    let elsewhere = [
        "10.96.0.1:54 > 10.244.0.1:53",
        "10.96.0.2:53 > 10.244.0.1:53",
        "10.244.0.1:53 > 10.244.0.1:53",
    ];
    for (name, before, after, ending, staying) in cases {
        let stale = plan(&[change("dns", before.clone(), after.clone())], &node());
        let ended: Vec<_> = ending
            .iter()
            .chain(*staying)
            .copied()
            .filter(|flow| ends(&stale, flow))
            .collect();
        assert_eq!(ended, *ending, "{name}");
        assert_eq!(
            elsewhere.into_iter().find(|flow| ends(&stale, flow)),
            None,
            "{name}"
        );
    }
}

#[test]
fn families_are_apart() {
    let mut change = change(
        "dns",
        port("[fd00::1]:53", "[fd01::1]:53"),
        port("[fd00::1]:53", "[fd01::2]:53"),
    );
    change.key.family = Family::V6;
    let stale = plan(&[change], &node());
    assert!(ends(&stale, "[fd00::1]:53 > [fd01::1]:53"));
    assert!(!ends(&stale, "[fd00::1]:53 > [fd01::2]:53"));
    let scope = Scope {
        family: Family::V6,
        protocol: Protocol::Udp,
        address: Some("fd00::1".parse().unwrap()),
        port: Some(53),
    };
    assert_eq!(stale.scopes(), [scope]);
}

#[test]
fn tcp_is_never_cut() {
    let mut tcp = change("web", port(IP, A), port(IP, B));
    tcp.key.protocol = Protocol::Tcp;
    assert!(plan(&[tcp.clone()], &node()).is_empty());
    let table = ForwardingTable::new(node(), [(tcp.key, port(IP, B).unwrap())].into());
    assert!(check(&table, table.ports.keys()).is_empty());
}

#[test]
fn what_makes_nothing_stale_asks_the_kernel_nothing() {
    let affinity = |port: Option<Arc<ServicePort>>| {
        port.map(|port| {
            Arc::new(ServicePort {
                affinity: Some(10),
                ..(*port).clone()
            })
        })
    };
    let cases = [
        (port(IP, A), port(IP, "10.244.0.1:53 10.244.0.2:53")),
        (port(IP, A), affinity(port(IP, A))),
        (port(IP, A), port(IP, "|10.244.0.1:53")),
        (port(IP, A), port(IP, "")),
    ];
    for (before, after) in cases {
        let stale = plan(&[change("dns", before, after)], &node());
        assert!(stale.is_empty(), "{stale:?}");
        assert_eq!(stale.scopes(), []);
    }
}

#[test]
fn a_port_that_lost_its_last_endpoint_is_looked_at_later() {
    let gone = change("dns", port(IP, A), port(IP, ""));
    let stale = plan(std::slice::from_ref(&gone), &node());
    assert_eq!(stale.abandoned, std::slice::from_ref(&gone.key));

    let still = ForwardingTable::new(node(), [(gone.key.clone(), port(IP, "").unwrap())].into());
    assert!(ends(&check(&still, &stale.abandoned), TO_A));
    let back = ForwardingTable::new(node(), [(gone.key.clone(), port(IP, A).unwrap())].into());
    assert!(!ends(&check(&back, &stale.abandoned), TO_A));
    let deleted = ForwardingTable::new(node(), Ports::default());
    assert!(check(&deleted, &stale.abandoned).is_empty());
    assert_eq!(
        plan(&[change("dns", port(IP, ""), port(IP, ""))], &node()).abandoned,
        []
    );
}

#[test]
fn a_frontend_may_move_to_another_service() {
    for changes in [
        [
            change("a", port(IP, A), None),
            change("b", None, port(IP, B)),
        ],
        [
            change("a", None, port(IP, B)),
            change("b", port(IP, A), None),
        ],
    ] {
        let stale = plan(&changes, &node());
        assert!(ends(&stale, TO_A));
        assert!(ends(&stale, UNTRANSLATED));
        assert!(!ends(&stale, TO_B));
    }
}

#[test]
fn node_ports_are_where_the_node_has_them() {
    let udp = |addresses| {
        plan(
            &[change("dns", port(":30053", A), port(":30053", B))],
            &rules(addresses),
        )
    };
    let flow = |address: &str| format!("{address}:30053 > 10.244.0.1:53");
    let all = udp(NodePortAddresses::AllLocal { loopback: true });
    let no_loopback = udp(NodePortAddresses::AllLocal { loopback: false });
    let listed = udp(NodePortAddresses::Listed(vec![
        "192.0.2.7".parse().unwrap(),
    ]));
    // all, all but loopback, listed
    let cases = [
        ("192.0.2.1", true, true, false),
        ("127.0.0.1", true, false, false),
        ("192.0.2.7", false, false, true),
        ("8.8.8.8", false, false, false),
    ];
    for (address, in_all, in_no_loopback, in_listed) in cases {
        assert_eq!(ends(&all, &flow(address)), in_all, "{address}");
        assert_eq!(
            ends(&no_loopback, &flow(address)),
            in_no_loopback,
            "{address}"
        );
        assert_eq!(ends(&listed, &flow(address)), in_listed, "{address}");
    }
}

#[test]
fn an_address_with_a_frontend_of_its_own_is_no_node_port() {
    let changes = [
        change("dns", port(":30053", A), port(":30053", B)),
        change(
            "external",
            port("192.0.2.1:30053", B),
            port("192.0.2.1:30053", A),
        ),
    ];
    let stale = plan(&changes, &node());
    assert!(ends(&stale, "192.0.2.1:30053 > 10.244.0.2:53"));
    assert!(!ends(&stale, "192.0.2.1:30053 > 10.244.0.1:53"));
}

#[test]
fn the_kernel_lists_as_little_as_it_can() {
    let removed = |frontends: &str| port(frontends, A);
    let cases = [
        ("10.96.0.1:53", Some("10.96.0.1"), Some(53)),
        ("10.96.0.1:53 10.96.0.2:53", None, Some(53)),
        ("10.96.0.1:53 10.96.0.1:54", Some("10.96.0.1"), None),
        ("10.96.0.1:53 :30053", None, None),
        (":30053 10.96.0.1:53", None, None),
        (":30053", None, Some(30053)),
    ];
    for (frontends, address, port) in cases {
        let stale = plan(&[change("dns", removed(frontends), None)], &node());
        let address = address.map(|text| text.parse().unwrap());
        let scope = Scope {
            family: Family::V4,
            protocol: Protocol::Udp,
            address,
            port,
        };
        assert_eq!(stale.scopes(), [scope], "{frontends}");
    }
}

/// The port on a cluster IP that only some clients may use.
fn guarded(clients: &[&str], dmz: &[&str]) -> Option<Arc<ServicePort>> {
    let mut guarded = (*port(IP, A).unwrap()).clone();
    guarded.frontends[0].sources = Some(clients.iter().map(|own| own.parse().unwrap()).collect());
    if clients.is_empty() {
        guarded.frontends[0].sources = None;
    }
    guarded.dmz = dmz.iter().map(|own| own.parse().unwrap()).collect();
    Some(Arc::new(guarded))
}

#[test]
fn flows_end_whose_client_may_no_longer_use_the_service() {
    let (one, two) = ("10.244.0.8/32", "10.244.0.9/32");
    let of_one = format!("10.244.0.8: {TO_A}");
    let of_two = format!("10.244.0.9: {TO_A}");
    for (about, before, after, ends_of_one, ends_of_two) in [
        (
            "a pod went",
            guarded(&[one, two], &[]),
            guarded(&[two], &[]),
            true,
            false,
        ),
        (
            "it became narrow",
            guarded(&[], &[]),
            guarded(&[two], &[]),
            true,
            false,
        ),
        (
            "a pod came",
            guarded(&[one], &[]),
            guarded(&[one, two], &[]),
            false,
            false,
        ),
        (
            "it became wide",
            guarded(&[one], &[]),
            guarded(&[], &[]),
            false,
            false,
        ),
    ] {
        let stale = plan(&[change("dns", before, after)], &node());
        assert_eq!(ends(&stale, &of_one), ends_of_one, "{about}");
        assert_eq!(ends(&stale, &of_two), ends_of_two, "{about}");
    }
}

#[test]
fn flows_of_pods_that_came_into_the_dmz_end() {
    let listed = |all: &[&str]| all.iter().map(|own| own.parse().unwrap()).collect();
    let table = |dmz: DmzPods, admitted: &[&str]| {
        let rules = NodeRules {
            dmz: PerFamily {
                v4: dmz,
                ..PerFamily::default()
            },
            ..node()
        };
        let ports = Ports::from([(key("dns", Protocol::Udp), guarded(&[], admitted).unwrap())]);
        ForwardingTable::new(rules, ports)
    };
    for (dmz, admitted, of_pod, of_node) in [
        (DmzPods::default(), &[][..], false, false),
        (
            DmzPods::Listed(listed(&["10.244.0.9"])),
            &[][..],
            true,
            false,
        ),
        (
            DmzPods::Listed(listed(&["10.244.0.9"])),
            &["10.244.0.9"][..],
            false,
            false,
        ),
        (
            DmzPods::AllBut(listed(&["10.244.0.8"])),
            &[][..],
            true,
            false,
        ),
        (
            DmzPods::AllBut(listed(&["10.244.0.9"])),
            &[][..],
            false,
            false,
        ),
    ] {
        let table = table(dmz.clone(), admitted);
        let stale = check(&table, table.ports.keys());
        assert_eq!(
            ends(&stale, &format!("10.244.0.9: {TO_A}")),
            of_pod,
            "{dmz:?}"
        );
        assert_eq!(
            ends(&stale, &format!("192.0.2.1: {TO_A}")),
            of_node,
            "{dmz:?}"
        );
    }
}
