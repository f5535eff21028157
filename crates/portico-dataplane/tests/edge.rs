//! The consistent edge on the kernel: three nodes on one network, a pod behind each, and a client
//! whose way to a load balancer's address moves from node to node.

#![expect(clippy::unwrap_used, reason = "tests")]

mod edge {
    pub(crate) mod lab;
}

use edge::lab::{Flows, Lab, NODES, VIPS};
use portico_model::table::Family;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 30;

#[test]
fn without_the_edge_connections_die_when_the_way_moves() {
    let mut lab = Lab::new(Family::V4);
    lab.set_edge(false);
    let mut flows = Flows::open(&lab, 80, CONNECTIONS);
    let dead = flows.ask_while_the_way_moves(&lab, 20);
    assert!(dead > CONNECTIONS / 2, "{dead} of {CONNECTIONS} died");
}

#[test]
fn connections_live_on_while_the_way_moves() {
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(true);
        let mut flows = Flows::open(&lab, 80, CONNECTIONS);
        flows.assert_where_the_model_says(&lab);
        assert_eq!(flows.ask_while_the_way_moves(&lab, 100), 0, "{family:?}");
        flows.assert_client_was_seen();
        assert_eq!(flows.pods().len(), NODES, "all nodes serve");
    }
}

#[test]
fn connections_from_before_the_edge_go_on() {
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(false);
        lab.way(0);
        let mut flows = Flows::open(&lab, 80, CONNECTIONS);
        lab.set_edge(true);
        assert_eq!(flows.ask(10), 0, "{family:?}: turned on");
        let mut new = Flows::open(&lab, 80, CONNECTIONS);
        lab.set_edge(false);
        lab.way(0);
        assert_eq!(flows.ask(10), 0, "{family:?}: turned off again");
        lab.set_edge(true);
        assert_eq!(new.ask_while_the_way_moves(&lab, 10), 0, "{family:?}");
    }
}

#[test]
fn connections_outlive_slots_that_move_and_restarts() {
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(true);
        let mut flows = Flows::open(&lab, 80, CONNECTIONS);
        // The pod of the last node ends, and serves what it has until then.
        lab.set_ready([true, true, false]);
        assert_eq!(
            flows.ask_while_the_way_moves(&lab, 20),
            0,
            "{family:?}: one leaves"
        );
        let mut new = Flows::open(&lab, 80, CONNECTIONS);
        new.assert_where_the_model_says(&lab);
        assert!(
            !new.pods().contains(&2),
            "no new connection to the one that leaves"
        );
        lab.restart();
        assert_eq!(
            flows.ask_while_the_way_moves(&lab, 20),
            0,
            "{family:?}: restarted"
        );
        lab.set_ready([true, true, true]);
        assert_eq!(
            flows.ask_while_the_way_moves(&lab, 20),
            0,
            "{family:?}: it is back"
        );
        assert_eq!(
            new.ask_while_the_way_moves(&lab, 20),
            0,
            "{family:?}: it is back"
        );
        // Several changes, so that slots move more than once.
        for ready in [
            [false, true, true],
            [false, false, true],
            [true, false, true],
        ] {
            lab.set_ready(ready);
            let dead = flows.ask_while_the_way_moves(&lab, 9);
            assert_eq!(dead, 0, "{family:?}: {ready:?}");
        }
    }
}

#[test]
fn datagrams_of_a_flow_go_to_one_pod() {
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(true);
        let mut flows = Flows::open_udp(&lab, 80, CONNECTIONS);
        assert_eq!(flows.ask_while_the_way_moves(&lab, 20), 0, "{family:?}");
        flows.assert_client_was_seen();
        // Two datagrams of which neither fits into one packet.
        flows.make_large();
        assert_eq!(
            flows.ask_while_the_way_moves(&lab, 6),
            0,
            "{family:?}: fragments"
        );
    }
}

#[test]
fn a_client_stays_with_its_node_where_it_is_asked_for() {
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(true);
        let mut seen = Vec::new();
        for node in 0..NODES {
            lab.way(node);
            seen.extend(Flows::open(&lab, 81, 10).pods());
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "{family:?}: {seen:?}");
    }
}

/// A router on the way says that a packet is too large, to the address of the Service: the pod that
/// sent it has to be told.
#[test]
fn errors_about_a_flow_reach_its_pod() {
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(true);
        let flows = Flows::open(&lab, 80, CONNECTIONS);
        for node in 0..NODES {
            lab.way(node);
            let before = lab.errors_seen();
            flows.send_errors(&lab);
            let wanted = flows.by_pod().map(|flows| flows as u64);
            let seen = lab.wait_for_errors(&before, wanted.iter().sum());
            assert_eq!(seen, wanted, "{family:?} by node {node}");
        }
    }
}

#[test]
fn sources_that_may_not_are_refused_at_any_node() {
    let mut lab = Lab::new(Family::V4);
    lab.set_edge(true);
    lab.set_sources(&["203.0.113.0/24"]);
    for node in 0..NODES {
        lab.way(node);
        assert!(lab.connect(80).is_err(), "by node {node}");
    }
    lab.set_sources(&["10.50.0.0/24"]);
    Flows::open(&lab, 80, 3);
}

#[test]
fn nft_shows_what_is_meant() {
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(false);
        let off = lab.list(0);
        assert!(!off.contains("chain edge"), "{off}");
        lab.set_edge(true);
        let shown = lab.list(0);
        for text in [
            "chain edge {",
            "jhash",
            "mod 509",
            "map @edge-slots",
            "dup to",
        ] {
            assert!(shown.contains(text), "no {text:?} in {shown}");
        }
        let vip: IpAddr = VIPS.get(family).parse().unwrap();
        assert!(shown.contains(&vip.to_string()), "{shown}");
        lab.set_edge(false);
        let of_edge = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.contains("edge"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(
            of_edge(&lab.list(0)),
            of_edge(&off),
            "nothing is left of it"
        );
    }
}

/// `make bench-edge`: a thousand connections and moves of the way, and what a connection costs,
/// with the edge and without it by turns.
#[test]
#[ignore = "a benchmark"]
fn bench() {
    const MANY: usize = 1000;
    for family in Family::BOTH {
        let mut lab = Lab::new(family);
        lab.set_edge(true);
        let mut flows = Flows::open(&lab, 80, MANY);
        let (dead, requests) = flows.ask_some_while_the_way_moves(&lab, MANY, 30);
        println!(
            "{family:?}: the way moved {MANY} times, {dead} of {MANY} connections died in {requests} requests"
        );
        lab.set_edge(false);
        let mut flows = Flows::open(&lab, 80, MANY);
        let (dead, _) = flows.ask_some_while_the_way_moves(&lab, 60, MANY);
        println!("{family:?}: without the edge {dead} of {MANY} died while it moved 60 times");

        let mut costs = [Vec::new(), Vec::new()];
        for round in 0..10 {
            let on = round % 2 == 0;
            lab.set_edge(on);
            lab.way(0);
            costs[usize::from(on)].extend(connects(&lab, 400));
        }
        let [without, with] = costs.map(|mut costs| {
            costs.sort_unstable();
            costs[costs.len() / 2]
        });
        println!(
            "{family:?}: to connect, ask once and close takes {with:?} with the edge, {without:?} without"
        );
    }
}

fn connects(lab: &Lab, count: usize) -> Vec<Duration> {
    let one = |_| {
        let began = Instant::now();
        drop(Flows::open(lab, 80, 1));
        began.elapsed()
    };
    (0..count).map(one).collect()
}
