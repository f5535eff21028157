//! One table of flows, four ways: what `explain` says becomes of a packet, what nftables does with
//! it, what iptables and what IPVS (inside user-mode-linux, where this kernel has none) must be
//! what the table says. Then random Services, endpoints and packets, where the kernel must do what
//! `explain` said, while everything changes.
//!
//! `PORTICO_FLOWS=TEXT` picks groups of the table, `PORTICO_FLOWS_SEED=N` another run of the random
//! part and `PORTICO_FLOWS_ROUNDS=N` a longer one.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "flows/chaos.rs"]
mod chaos;
#[allow(dead_code, reason = "the scenarios use the rest")]
#[path = "dataplane/objects.rs"]
mod objects;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/random.rs"]
mod random;
#[path = "flows/table.rs"]
mod table;
#[path = "flows/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use chaos::Chaos;
use portico_dataplane::Dataplane;
use portico_dataplane::iptables::{Iptables, Options};
use portico_dataplane::ipvs::{self, Ipvs};
use portico_dataplane::nftables::{Nftables, Table};
use portico_model::explain::Explanation;
use portico_model::index::Index;
use portico_model::table::ForwardingTable;
use portico_testbed::cluster::Addresses;
use portico_testbed::uml::{test_inside, test_with_ipvs};
use portico_testbed::{Cluster, Host};
use tokio::runtime::Builder;
use world::{Fate, NODE, Question, Sight, World, foretold};

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
                wrong.push(format!(
                    "{}: {question}: expected {expected:?}\n{explanation}",
                    group.about
                ));
            }
        }
    }
    println!("{checked} flows");
    assert!(checked > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The address a host sends from, as its routes choose it; the kernel's answer is used where there
/// is one.
fn usual_source(addresses: &Addresses, question: &Question) -> IpAddr {
    let to = question.to.ip();
    match question.from == NODE {
        true if to.is_loopback() && to.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        true if to.is_loopback() || addresses.owner(to) == Some(NODE) => to,
        _ => addresses
            .of(&question.from, if to.is_ipv4() { "ip" } else { "ip6" })
            .unwrap(),
    }
}

#[test]
fn nftables_agrees_with_the_table() {
    agrees_with_the_table(nftables);
}

#[test]
fn iptables_agrees_with_the_table() {
    agrees_with_the_table(iptables);
}

/// Where the legacy kind and an older kernel could make a difference.
#[test]
fn iptables_legacy_agrees_with_the_table() {
    test_inside("iptables_legacy_agrees_with_the_table", || {
        agrees_with_the_table(iptables)
    });
}

#[test]
fn ipvs_agrees_with_the_table() {
    test_with_ipvs("ipvs_agrees_with_the_table", || {
        agrees_with_the_table(with_ipvs)
    });
}

#[test]
fn nftables_does_what_explain_says() {
    does_what_explain_says(nftables);
}

#[test]
fn iptables_does_what_explain_says() {
    does_what_explain_says(iptables);
}

#[test]
fn ipvs_does_what_explain_says() {
    test_with_ipvs("ipvs_does_what_explain_says", || {
        does_what_explain_says(with_ipvs)
    });
}

type Open = fn() -> Box<dyn Dataplane>;

fn nftables() -> Box<dyn Dataplane> {
    Box::new(Nftables::open(Table::NODE).unwrap())
}

fn iptables() -> Box<dyn Dataplane> {
    Box::new(Iptables::new(Options::default()).unwrap())
}

fn with_ipvs() -> Box<dyn Dataplane> {
    Box::new(Ipvs::open(&ipvs::Options::default()).unwrap())
}

/// What is not to be had with IPVS, nor is it with kube-proxy's.
fn by_design(mode: &str, table: &ForwardingTable, question: &Question, fate: Fate) -> Fate {
    let to = question.to.ip();
    let mut addresses = table
        .ports
        .iter()
        .flat_map(|(_, port)| &port.frontends)
        .filter_map(|frontend| frontend.address);
    match fate {
        fate if mode != "ipvs" => fate,
        // The node has the addresses of Services: what is sent to another port of one has arrived,
        // and nobody is there.
        Fate::Passes
            if addresses.any(|address| address == to)
                && Addresses::default().owner(to) != Some(NODE) =>
        {
            Fate::Refused
        }
        // IPVS lets no packet leave the node that comes from a loopback address.
        _ if to.is_loopback() => Fate::Passes,
        fate => fate,
    }
}

fn agrees_with_the_table(open: Open) {
    let world = World {
        cluster: Cluster::new().unwrap(),
    };
    let node = world.cluster.host(NODE).unwrap();
    let mut dataplane = node.enter(open);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (mut checked, mut wrong) = (0, Vec::new());
    for group in table::load() {
        let index = group.index(&world.cluster.addresses);
        allow_loopback(node, &index);
        node.enter(|| dataplane.replace(index.table()))
            .unwrap_or_else(|error| panic!("{}: {error}", group.about));
        let mut flows = group.flows(&world.cluster.addresses);
        for (question, fate) in &mut flows {
            *fate = by_design(dataplane.name(), index.table(), question, fate.clone());
        }
        // With IPVS the node has all addresses, and sends to one from itself.
        for (question, _) in flows.iter().filter(|_| dataplane.name() != "ipvs") {
            assert_eq!(
                world.source(question),
                usual_source(&world.cluster.addresses, question),
                "{question}"
            );
        }
        checked += flows.len();
        let flows: Vec<_> = flows
            .iter()
            .map(|(question, fate)| (question, fate))
            .collect();
        let differing = runtime.block_on(world.check_all(&flows));
        wrong.extend(
            differing
                .into_iter()
                .map(|line| format!("{}: {line}", group.about)),
        );
        node.forget_connections().unwrap();
    }
    println!("{}: {checked} flows", dataplane.name());
    assert!(
        checked > 0 && wrong.is_empty(),
        "{}:\n{}",
        dataplane.name(),
        wrong.join("\n")
    );
}

/// As the daemon does where node ports answer on loopback addresses.
fn allow_loopback(node: &Host, index: &Index) {
    let allowed = if index.table().rules.route_localnet {
        "1"
    } else {
        "0"
    };
    node.sysctl("net/ipv4/conf/all/route_localnet", allowed)
        .unwrap();
}

/// The kernel is told everything once and changes after that; packets are sent after every change.
fn does_what_explain_says(open: Open) {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seed, rounds) = (
        number("PORTICO_FLOWS_SEED", 1),
        number("PORTICO_FLOWS_ROUNDS", 20),
    );
    let world = World {
        cluster: Cluster::new().unwrap(),
    };
    let (node, addresses) = (world.cluster.host(NODE).unwrap(), &world.cluster.addresses);
    let mut dataplane = node.enter(open);
    let name = dataplane.name();
    if name == "ipvs" {
        // IPVS remembers UDP flows for minutes, and a client's port may come again: of earlier
        // rounds nothing is to be remembered.
        let mut forgetful = std::process::Command::new("ipvsadm");
        forgetful.args(["--set", "0", "0", "1"]);
        node.run(forgetful, "").unwrap();
    }
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut chaos = Chaos::new(seed);
    let mut index = chaos.choices().index(addresses);
    let (mut fates, mut history) = (BTreeMap::new(), Vec::new());
    for round in 0..rounds {
        if round % 5 == 0 {
            // The program is started again, and the operator may decide anew.
            let choices = chaos.choices();
            history.push(format!("{choices:?}"));
            index = choices.index(addresses);
            chaos.tell(&mut index, addresses);
            index.take();
            allow_loopback(node, &index);
            dataplane = node.enter(open);
            node.enter(|| dataplane.replace(index.table())).unwrap();
        }
        history.extend(chaos.change(&mut index, addresses));
        let update = index.take();
        let done = node.enter(|| match update.rules {
            true => dataplane.replace(index.table()),
            false => dataplane.apply(&index.table().rules, &update.changes),
        });
        let told = || {
            format!(
                "PORTICO_FLOWS_SEED={seed}, round {round} of {name}:\n{}",
                history.join("\n")
            )
        };
        done.unwrap_or_else(|error| panic!("{error}; {}", told()));
        node.forget_connections().unwrap();
        let asked = chaos
            .questions(index.table(), addresses, 48)
            .into_iter()
            .map(|question| ask(&world, name, &index, question));
        let asked: Vec<_> = asked
            .filter(|(question, fate, why)| {
                comes_back(question, fate) && !(name == "ipvs" && is_let_in(question, why))
            })
            .collect();
        asked
            .iter()
            .for_each(|(_, fate, _)| *fates.entry(fate.name()).or_insert(0) += 1);
        let flows: Vec<_> = asked
            .iter()
            .map(|(question, fate, _)| (question, fate))
            .collect();
        let wrong = runtime.block_on(world.check_all(&flows));
        let why = asked
            .iter()
            .map(|(_, _, why)| why.to_string())
            .filter(|_| !wrong.is_empty())
            .collect::<Vec<_>>();
        assert!(
            wrong.is_empty(),
            "{}\n{}\n{}",
            told(),
            why.join("\n"),
            wrong.join("\n")
        );
        let drift = node
            .enter(|| dataplane.replace(index.table()))
            .unwrap()
            .drift;
        assert!(drift.is_empty(), "{}\n{drift:?}", told());
    }
    println!("{name}: {rounds} rounds from seed {seed}: {fates:?}");
}

fn ask(
    world: &World,
    mode: &str,
    index: &Index,
    question: Question,
) -> (Question, Fate, Explanation) {
    let addresses = &world.cluster.addresses;
    let source = if mode == "ipvs" {
        usual_source(addresses, &question)
    } else {
        world.source(&question)
    };
    let (fate, why) = foretold(index, addresses, &question, source);
    let fate = by_design(mode, index.table(), &question, fate);
    (question, fate, why)
}

/// With IPVS the node has the addresses of Services, and sends to one from that one itself: it is
/// let in where the address is in the source ranges, though its usual one is not.
fn is_let_in(question: &Question, why: &Explanation) -> bool {
    let sources = why
        .frontend
        .as_ref()
        .and_then(|(_, frontend)| frontend.sources.as_ref());
    let to = question.to.ip();
    question.from == NODE
        && sources.is_some_and(|sources| sources.iter().any(|range| range.contains(&to)))
}

/// An endpoint elsewhere that sees a sender which is not behind this node answers past it, so that
/// the sender does not know whose answer it is. Only clusters that are set up wrongly have this.
fn comes_back(question: &Question, fate: &Fate) -> bool {
    let behind = question.from == NODE || question.from.starts_with("pod1-");
    let past = |(name, sight): (&String, &Sight)| {
        *sight == Sight::Own && !name.starts_with("pod1-") && !name.starts_with(NODE)
    };
    behind || !matches!(fate, Fate::Reach { endpoints, .. } if endpoints.iter().any(past))
}
