//! The virtual address of the control plane, end to end: two masters with an API server each, a
//! worker, a pod on it and a host outside, in network namespaces. From every place ten requests to
//! the virtual address and to the cluster IP, over TLS, spread over both API servers; then one API
//! server is killed, then the owner of the address is asked to stop, then killed.
//!
//! One test for each way to forward; the one with IPVS in a kernel that has it. The proxy on the
//! nodes is `portico node`; `KUBE_PROXY=/path/to/kube-proxy` runs the real one for the ways that
//! stand beside it. `PORTICO_KEEP=1` keeps the logs.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;
#[path = "vip/requests.rs"]
mod requests;
#[path = "vip/rig.rs"]
mod rig;

use portico_testbed::uml::{has_ipvs, test_with_ipvs};
use requests::Requests;
use rig::{CLUSTER_IP, MASTERS, PLACES, Proxy, Rig, VIP, pace};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const REQUESTS: usize = 10;
const WATCHED: Duration = Duration::from_secs(3);

#[test]
fn by_the_node_daemon() {
    run("portico", Proxy::Node("nftables"));
}

#[test]
fn beside_iptables() {
    run("iptables", Proxy::beside("iptables"));
}

#[test]
fn beside_ipvs() {
    // Inside another kernel is another process, with a turn of its own.
    let _turn = (!has_ipvs()).then(take_turn);
    test_with_ipvs("beside_ipvs", || run("ipvs", Proxy::beside("ipvs")));
}

#[test]
fn straight_by_nftables() {
    run("direct", Proxy::Node("nftables"));
}

#[test]
fn through_haproxy() {
    run("haproxy", Proxy::Node("nftables"));
}

/// One after the other: they measure time.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(forward: &'static str, proxy: Proxy) {
    let _turn = take_turn();
    let mut rig = Rig::start(forward, proxy);
    everybody_reaches_both(&rig);
    a_dead_server_gets_nothing(&mut rig);
    nobody_notices_a_planned_move(&mut rig);
    the_address_moves(&mut rig);
    nothing_is_left(&mut rig);
}

/// The seed's list of tests.
fn everybody_reaches_both(rig: &Rig) {
    for (what, to, places) in [
        ("the virtual address", VIP, &PLACES[..]),
        ("the cluster IP", CLUSTER_IP, &PLACES[1..]),
    ] {
        let to: SocketAddr = to.parse().unwrap();
        let mut seen = BTreeSet::new();
        for place in places {
            let mut here = Vec::new();
            for _ in 0..REQUESTS {
                here.push(rig.ask(place, to).unwrap_or_else(|error| {
                    panic!("{what} from {place}: {error}\n{}", rig.logs())
                }));
            }
            println!("{what} from {place}: {}", here.join(" "));
            seen.extend(here);
        }
        assert_eq!(
            seen.len(),
            MASTERS.len(),
            "{what} leads to both API servers"
        );
    }
}

/// The owner's own server stays, so that the address stays.
fn a_dead_server_gets_nothing(rig: &mut Rig) {
    let (owner, victim) = rig.owner_and_other();
    let bound = pace().dead_server;
    let requests = Requests::start(rig, VIP.parse().unwrap());
    let killed = Instant::now();
    rig.kill_server(victim);
    std::thread::sleep(bound + WATCHED);
    let seen = requests.stop();
    let late = killed + bound;
    let failed: Vec<_> = seen
        .iter()
        .filter(|one| one.result.is_err() && one.started > late)
        .collect();
    assert!(
        failed.is_empty(),
        "after {bound:?}: {failed:?}\n{}",
        rig.logs()
    );
    let good = seen.iter().filter(|one| one.started > late).count();
    let before = seen
        .iter()
        .filter(|one| one.result.is_err())
        .map(|one| one.started.duration_since(killed))
        .max();
    println!(
        "server killed: the last request that failed began after {before:?}; then {good} good ones"
    );
    assert!(good > PLACES.len(), "{good}");
    assert_eq!(
        rig.owners(),
        [owner],
        "the address stays where its own server is ready"
    );
    rig.start_server(victim);
    rig.wait_until("both API servers are ready again", |rig| {
        rig.healthy_servers(owner) == MASTERS.len()
    });
}

/// The owner is asked to stop; then it comes back and takes the address again.
fn nobody_notices_a_planned_move(rig: &mut Rig) {
    let (owner, other) = rig.owner_and_other();
    if rig.forward == "ipvs" {
        // The owner has nobody to send to.
        return rig.wait_until("a kernel without nftables is told of", |rig| {
            rig.cannot_relay(other)
        });
    }
    rig.wait_until("the other one is ready for it", |rig| {
        rig.is_ready_to_relay(other)
    });
    let requests = Requests::start(rig, VIP.parse().unwrap());
    rig.stop_vip(owner);
    rig.wait_until("the address is at the other master", |rig| {
        rig.owners() == [other]
    });
    rig.wait_until("connections go on where they are", |rig| {
        rig.relays(other, owner)
    });
    rig.start_vip(owner);
    rig.wait_until("the address is back", |rig| rig.owners() == [owner]);
    rig.wait_until("connections go on where they are", |rig| {
        rig.relays(owner, other)
    });
    std::thread::sleep(WATCHED);
    let seen = requests.stop();
    let failed: Vec<_> = seen.iter().filter(|one| one.result.is_err()).collect();
    println!(
        "two planned moves: {} requests, {} failed",
        seen.len(),
        failed.len()
    );
    assert!(failed.is_empty(), "{failed:?}\n{}", rig.logs());
    rig.wait_until("both take part", |rig| {
        rig.healthy_servers(owner) == MASTERS.len()
    });
}

fn the_address_moves(rig: &mut Rig) {
    let (owner, other) = rig.owner_and_other();
    let requests = Requests::start(rig, VIP.parse().unwrap());
    let killed = Instant::now();
    rig.kill_vip(owner);
    rig.wait_until("the address is at the other master", |rig| {
        rig.owners() == [other]
    });
    let moved = killed.elapsed();
    std::thread::sleep(pace().dead_owner + WATCHED);
    let seen = requests.stop();
    let failed = |one: &&requests::Seen| one.result.is_err();
    let outage = seen
        .iter()
        .filter(failed)
        .map(|one| one.ended.duration_since(killed))
        .max()
        .unwrap_or_default();
    for one in seen.iter().filter(failed) {
        let (started, ended) = (one.started - killed, one.ended - killed);
        println!(
            "  failed from {} at {started:?} to {ended:?}: {:?}",
            one.place, one.result
        );
    }
    println!(
        "owner killed: the address moved after {moved:?}, the last request that failed ended \
         after {outage:?}"
    );
    // HAProxy on the owner dies with the daemon that runs it, and with it the way for clients on
    // that machine.
    let lost = if rig.forward == "haproxy" { owner } else { "" };
    let recovered = seen
        .iter()
        .filter(|one| one.place != lost && one.started > killed + pace().dead_owner);
    let failed: Vec<_> = recovered.filter(failed).collect();
    assert!(failed.is_empty(), "{failed:?}\n{}", rig.logs());
    rig.start_vip(owner);
    rig.wait_until("the killed one takes part again", |rig| {
        rig.healthy_servers(owner) == MASTERS.len()
    });
}

/// After an orderly end there is no address and no rule.
fn nothing_is_left(rig: &mut Rig) {
    MASTERS.iter().for_each(|master| rig.stop_vip(master));
    assert_eq!(rig.owners(), [""; 0]);
    for master in MASTERS {
        let left = rig.traces(master);
        assert!(left.is_empty(), "{master}: {left:?}");
    }
}
