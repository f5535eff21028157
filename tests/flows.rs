//! One table of flows, three ways: what `explain` says becomes of a packet, what nftables does with it and what iptables
//! does with it must be what the table says. Then random Services, endpoints and packets, where the kernel must do what
//! `explain` said, while everything changes.
//!
//! `PORTICO_FLOWS=TEXT` picks groups of the table, `PORTICO_FLOWS_SEED=N` another run of the random part and
//! `PORTICO_FLOWS_ROUNDS=N` a longer one.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

#[path = "dataplane/objects.rs"]
#[allow(dead_code, reason = "the scenarios use the rest")]
mod objects;
#[path = "common/random.rs"]
mod random;
#[path = "flows/table.rs"]
mod table;
#[path = "flows/world.rs"]
mod world;

use portico_dataplane::Dataplane;
use portico_dataplane::iptables::{Iptables, Options, needs_route_localnet};
use portico_dataplane::nftables::Nftables;
use portico_testbed::Cluster;
use portico_testbed::cluster::Addresses;
use tokio::runtime::Builder;
use world::{NODE, Question, World, foretold};

#[test]
fn explain_agrees_with_the_table() {
    let addresses = Addresses::default();
    let (mut checked, mut wrong) = (0, Vec::new());
    for group in table::load() {
        let index = group.index(&addresses);
        for (question, expected) in group.flows(&addresses) {
            let source = usual_source(&addresses, &question);
            let (fate, explanation) = foretold(&index, &addresses, &question, source);
            checked += 1;
            if fate != expected {
                wrong.push(format!("{}: {question}: expected {expected:?}\n{explanation}", group.about));
            }
        }
    }
    println!("{checked} flows");
    assert!(checked > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The address a host sends from, as its routes choose it; the kernel's answer is used where there is one.
fn usual_source(addresses: &Addresses, question: &Question) -> std::net::IpAddr {
    let to = question.to.ip();
    let own = question.from == NODE && (to.is_loopback() || addresses.owner(to) == Some(NODE));
    if own { to } else { addresses.of(&question.from, if to.is_ipv4() { "ip" } else { "ip6" }).unwrap() }
}

#[test]
fn nftables_agrees_with_the_table() {
    agrees_with_the_table(|| Box::new(Nftables::open().unwrap()));
}

#[test]
fn iptables_agrees_with_the_table() {
    agrees_with_the_table(|| Box::new(Iptables::new(Options::default()).unwrap()));
}

fn agrees_with_the_table(open: fn() -> Box<dyn Dataplane>) {
    let world = World { cluster: Cluster::new().unwrap() };
    let node = world.cluster.host(NODE).unwrap();
    let mut dataplane = node.enter(open);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (mut checked, mut wrong) = (0, Vec::new());
    for group in table::load() {
        let index = group.index(&world.cluster.addresses);
        let loopback = if needs_route_localnet(&index.table().rules) { "1" } else { "0" };
        node.sysctl("net/ipv4/conf/all/route_localnet", loopback).unwrap();
        node.enter(|| dataplane.replace(index.table())).unwrap_or_else(|error| panic!("{}: {error}", group.about));
        let flows = group.flows(&world.cluster.addresses);
        for (question, _) in &flows {
            assert_eq!(world.source(question), usual_source(&world.cluster.addresses, question), "{question}");
        }
        checked += flows.len();
        let differing = runtime.block_on(world.check_all(flows.iter().map(|(question, fate)| (question, fate))));
        wrong.extend(differing.into_iter().map(|line| format!("{}: {line}", group.about)));
        node.forget_connections().unwrap();
    }
    println!("{}: {checked} flows", dataplane.name());
    assert!(checked > 0 && wrong.is_empty(), "{}:\n{}", dataplane.name(), wrong.join("\n"));
}
