//! BGP with real routers: BIRD, FRR and GoBGP, in network namespaces. Needs root.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "bgp/rig.rs"]
mod rig;
#[path = "bgp/routers.rs"]
mod routers;

use portico_bgp::{Attributes, Communities, Policy};
use portico_node::announce::bgp::{Password, PeerConfig};
use rig::{Daemon, Rig, SERVICE, addresses, set, wait_until};
use routers::{Kind, Router, Wish};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PREFIXES: [&str; 2] = ["203.0.113.10/32", "2001:db8:5::10/128"];

/// The router sends traffic of both families to these nodes: by its own table, by the kernel's, and
/// in fact.
fn leads_to(rig: &Rig, router: &Router<'_>, nodes: &[usize]) {
    for (family, prefix) in PREFIXES.iter().enumerate() {
        let wanted = addresses(nodes, family);
        wait_until(
            &format!("{prefix} leads to nodes {nodes:?} in the router"),
            || same(&wanted, router.next_hops(prefix)),
        );
        if router.programs_the_kernel() {
            let kernel = prefix.trim_end_matches("/32").trim_end_matches("/128");
            wait_until(
                &format!("{prefix} leads to nodes {nodes:?} in the kernel"),
                || same(&wanted, rig.kernel(kernel)),
            );
            // What has no route is not refused but lost, which would have to be waited for.
            if nodes.is_empty() {
                continue;
            }
            let names: Vec<String> = nodes.iter().map(|node| format!("node{node}")).collect();
            assert_eq!(
                rig.reached(SERVICE[family]),
                set(names.iter().map(String::as_str)),
                "of {prefix}"
            );
        }
    }
}

fn same(wanted: &BTreeSet<String>, found: BTreeSet<String>) -> Result<(), BTreeSet<String>> {
    if *wanted == found { Ok(()) } else { Err(found) }
}

/// Over one session of IPv4 to each node, addresses of both families.
fn spreads_over_three_and_forgets_who_is_gone(kind: Kind) {
    let rig = Rig::new();
    let router = Router::start(kind, &rig, Wish::default());
    // GoBGP takes a node that fell silent for one that restarts, which RFC 4724 does not: there,
    // its routes go that much later.
    let restart_time = Some(if kind == Kind::Gobgp { 1 } else { 30 });
    let peer = PeerConfig {
        restart_time,
        ..rig.peer(0)
    };
    let start = |node| Daemon::start(node, vec![peer.clone()], &SERVICE);
    let mut daemons: Vec<Daemon> = rig.nodes.iter().map(start).collect();
    leads_to(&rig, &router, &[0, 1, 2]);
    rig.unplug(1);
    leads_to(&rig, &router, &[0, 2]);
    daemons[2].drain();
    leads_to(&rig, &router, &[0]);
    daemons[0].announce(&[], Policy::default());
    leads_to(&rig, &router, &[]);
    daemons[0].announce(&SERVICE, Policy::default());
    leads_to(&rig, &router, &[0]);
    daemons.clear();
}

#[test]
fn bird_spreads_over_three_and_forgets_who_is_gone() {
    spreads_over_three_and_forgets_who_is_gone(Kind::Bird);
}

#[test]
fn frr_spreads_over_three_and_forgets_who_is_gone() {
    spreads_over_three_and_forgets_who_is_gone(Kind::Frr);
}

#[test]
fn gobgp_spreads_over_three_and_forgets_who_is_gone() {
    spreads_over_three_and_forgets_who_is_gone(Kind::Gobgp);
}

/// Keeps looking at the routes from another thread: whether they were always there.
fn always_there<T>(
    rig: &Rig,
    router: &Router<'_>,
    prefixes: &[&str],
    during: impl FnOnce() -> T,
) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                for prefix in prefixes {
                    let hops = match router.programs_the_kernel() {
                        true => rig.kernel(prefix.trim_end_matches("/32").trim_end_matches("/128")),
                        false => router.next_hops(prefix),
                    };
                    assert!(!hops.is_empty(), "{prefix} was away");
                }
                looks += 1;
            }
            looks
        });
        let result = during();
        over.store(true, Ordering::Relaxed);
        println!(
            "the routes were there at all of {} looks",
            looking.join().unwrap()
        );
        result
    })
}

fn keeps_the_routes_of_a_daemon_that_restarts(kind: Kind) {
    let rig = Rig::new();
    let router = Router::start(
        kind,
        &rig,
        Wish {
            dampening: true,
            ..Wish::default()
        },
    );
    let node = rig::NODES[0][0];
    let before = [SERVICE[0], SERVICE[1], "203.0.113.11"];
    let daemon = Daemon::start(&rig.nodes[0], vec![rig.peer(0)], &before);
    for prefix in [PREFIXES[0], PREFIXES[1], "203.0.113.11/32"] {
        wait_until(&format!("{prefix} is there"), || {
            router
                .next_hops(prefix)
                .is_empty()
                .then_some(())
                .map_or(Ok(()), Err)
        });
    }
    let daemon = always_there(&rig, &router, &PREFIXES, || {
        drop(daemon);
        wait_until("the router has no session", || {
            if router.is_established(node) {
                Err(())
            } else {
                Ok(())
            }
        });
        assert!(!router.next_hops("203.0.113.11/32").is_empty());
        let daemon = Daemon::start(&rig.nodes[0], vec![rig.peer(0)], &SERVICE);
        daemon.wait_for("everything is told again", |session| {
            session.established && session.routes == 2
        });
        wait_until("what is not announced any more is gone", || {
            same(&set([]), router.next_hops("203.0.113.11/32"))
        });
        daemon
    });
    if kind == Kind::Frr {
        assert_eq!(flaps(&router), "", "of the restart");
        // The count counts: what is taken back is a flap.
        daemon.announce(&[], Policy::default());
        wait_until("the route is gone", || {
            same(&set([]), router.next_hops(PREFIXES[0]))
        });
        daemon.announce(&SERVICE, Policy::default());
        wait_until("it has flapped", || {
            if flaps(&router).contains(SERVICE[0]) {
                Ok(())
            } else {
                Err(flaps(&router))
            }
        });
    }
}

/// Routes of IPv4 that have flapped, as FRR counts; those that it does not use for it are among
/// them.
fn flaps(router: &Router<'_>) -> String {
    router.ask(&["-c", "show bgp ipv4 unicast dampening flap-statistics"])
}

#[test]
fn bird_keeps_the_routes_of_a_daemon_that_restarts() {
    keeps_the_routes_of_a_daemon_that_restarts(Kind::Bird);
}

#[test]
fn frr_keeps_the_routes_of_a_daemon_that_restarts() {
    keeps_the_routes_of_a_daemon_that_restarts(Kind::Frr);
}

#[test]
fn gobgp_keeps_the_routes_of_a_daemon_that_restarts() {
    keeps_the_routes_of_a_daemon_that_restarts(Kind::Gobgp);
}

fn takes_the_right_password_only(kind: Kind) {
    let rig = Rig::new();
    let router = Router::start(
        kind,
        &rig,
        Wish {
            password: Some("s3cret"),
            ..Wish::default()
        },
    );
    let start = |node: usize, family: usize, password: Option<&str>| {
        let peer = PeerConfig {
            password: password.and_then(Password::new),
            ..rig.peer(family)
        };
        Daemon::start(&rig.nodes[node], vec![peer], &SERVICE)
    };
    let wrong = [start(1, 0, Some("s3cre")), start(2, 1, None)];
    let right = [start(0, 0, Some("s3cret")), start(1, 1, Some("s3cret"))];
    for daemon in &right {
        daemon.wait_for("the right password will do", |session| session.established);
    }
    for daemon in &wrong {
        let session = daemon.wait_for("another one will not", |session| {
            !session.trouble.is_empty()
        });
        assert!(
            !session.established && session.trouble.contains("password"),
            "{session:?}"
        );
    }
    assert!(!router.is_established(rig::NODES[1][0]) && !router.is_established(rig::NODES[2][1]));
    wait_until("routes came", || {
        same(
            &set([rig::NODES[0][0], rig::NODES[1][0]]),
            router.next_hops(PREFIXES[0]),
        )
        .or_else(|_| {
            same(
                &set([rig::NODES[0][0], rig::NODES[1][1]]),
                router.next_hops(PREFIXES[0]),
            )
        })
    });
}

#[test]
fn bird_takes_the_right_password_only() {
    takes_the_right_password_only(Kind::Bird);
}

#[test]
fn frr_takes_the_right_password_only() {
    takes_the_right_password_only(Kind::Frr);
}

#[test]
fn gobgp_takes_the_right_password_only() {
    takes_the_right_password_only(Kind::Gobgp);
}

/// Sessions over IPv6: routes of IPv4 have a next hop of IPv6.
fn reaches_ipv4_by_ipv6(kind: Kind) {
    let rig = Rig::new();
    let router = Router::start(kind, &rig, Wish::default());
    let start = |node| Daemon::start(node, vec![rig.peer(1)], &SERVICE);
    let _daemons: Vec<Daemon> = rig.nodes.iter().map(start).collect();
    let wanted = addresses(&[0, 1, 2], 1);
    for (prefix, address) in PREFIXES.iter().zip(SERVICE) {
        wait_until(&format!("{prefix} leads to all nodes by IPv6"), || {
            same(&wanted, router.next_hops(prefix))
        });
        if router.programs_the_kernel() {
            wait_until("also in the kernel", || same(&wanted, rig.kernel(address)));
            assert_eq!(rig.reached(address), set(["node0", "node1", "node2"]));
        }
    }
}

#[test]
fn bird_reaches_ipv4_by_ipv6() {
    reaches_ipv4_by_ipv6(Kind::Bird);
}

#[test]
fn frr_reaches_ipv4_by_ipv6() {
    reaches_ipv4_by_ipv6(Kind::Frr);
}

#[test]
fn gobgp_reaches_ipv4_by_ipv6() {
    reaches_ipv4_by_ipv6(Kind::Gobgp);
}

/// Within one AS: the local preference counts. Everywhere: communities, and one route for many
/// addresses.
#[test]
fn a_router_hears_what_a_pool_says_of_its_addresses() {
    let rig = Rig::new();
    let router = Router::start(
        Kind::Bird,
        &rig,
        Wish {
            internal: true,
            ..Wish::default()
        },
    );
    let peer = PeerConfig {
        peer_as: rig::OUR_AS,
        ..rig.peer(0)
    };
    let daemon = Daemon::start(&rig.nodes[0], vec![peer], &[]);
    let communities = Communities::parse(["64512:100", "no-export", "64512:1:2"]).unwrap();
    let attributes = Arc::new(Attributes {
        communities,
        local_preference: Some(250),
    });
    daemon.announce(
        &["203.0.113.1", "203.0.113.2"],
        Policy {
            attributes,
            aggregation_v4: 24,
            ..Policy::default()
        },
    );
    let ask = || router.ask(&["show", "route", "for", "203.0.113.0/24", "all"]);
    let parts = [
        "BGP.local_pref: 250",
        "(64512,100)",
        "(65535,65281)",
        "(64512, 1, 2)",
        "BGP.origin: IGP",
        "BGP.as_path: \n",
    ];
    wait_until("the route says it all", || {
        let text = ask();
        if parts.iter().all(|part| text.contains(part)) {
            Ok(())
        } else {
            Err(text)
        }
    });
    assert_eq!(daemon.sessions()[0].routes, 1);
}

/// What to look at is in the report, in words.
#[test]
fn why_there_is_no_session_is_told() {
    let rig = Rig::new();
    let router = Router::start(
        Kind::Frr,
        &rig,
        Wish {
            other_as: Some(64999),
            ..Wish::default()
        },
    );
    let daemons = [
        (
            Daemon::start(&rig.nodes[0], vec![rig.peer(0)], &SERVICE),
            "AS number is not the one expected",
        ),
        (
            Daemon::start(
                &rig.nodes[1],
                vec![PeerConfig {
                    peer_as: 64777,
                    ..rig.peer(0)
                }],
                &SERVICE,
            ),
            "the router is AS 4200000001, not 64777 as configured (peerASN)",
        ),
        (
            Daemon::start(
                &rig.nodes[2],
                vec![PeerConfig {
                    address: SocketAddr::from(([10, 8, 0, 1], 1179)),
                    ..rig.peer(0)
                }],
                &SERVICE,
            ),
            "10.8.0.1:1179 refuses: is BGP running there, and is this node its neighbour?",
        ),
    ];
    for (daemon, part) in &daemons {
        daemon.wait_for(part, |session| {
            !session.established && session.trouble.contains(part)
        });
    }
    assert!(!router.is_established(rig::NODES[0][0]));
}
