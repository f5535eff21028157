//! Layer 2 on real links: nodes as processes in network namespaces, and a client whose kernel asks
//! for addresses. Needs root.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "layer2/rig.rs"]
mod rig;

use rig::{Rig, addresses, owner, wait_until};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// Who the client's kernel thinks has each address is who should, if these nodes share them out.
fn shared_out_among(rig: &Rig, nodes: &[usize]) {
    let wanted: BTreeMap<IpAddr, usize> = addresses()
        .map(|address| (address, owner(address, nodes)))
        .collect();
    wait_until(&format!("addresses are shared out among {nodes:?}"), || {
        let seen = rig.seen_by_client();
        if seen == wanted {
            Ok(())
        } else {
            Err(format!("{seen:?}, not {wanted:?}"))
        }
    });
}

/// The client asks for none of them again: it is told.
#[test]
fn what_a_killed_node_had_goes_to_others_and_comes_back_with_it() {
    let rig = Rig::new(3);
    let mut nodes: Vec<_> = (0..3).map(|node| rig.start(node)).collect();
    rig.ask_for_all();
    shared_out_among(&rig, &[0, 1, 2]);
    let killed = Instant::now();
    nodes[1].kill();
    shared_out_among(&rig, &[0, 2]);
    println!("{} ms after it was killed", killed.elapsed().as_millis());
    nodes[1] = rig.start(1);
    shared_out_among(&rig, &[0, 1, 2]);
}

#[test]
fn a_paused_node_does_not_answer_and_takes_its_share_back() {
    let rig = Rig::new(3);
    let mut nodes: Vec<_> = (0..3).map(|node| rig.start(node)).collect();
    rig.ask_for_all();
    shared_out_among(&rig, &[0, 1, 2]);
    nodes[0].signal(libc::SIGSTOP);
    shared_out_among(&rig, &[1, 2]);
    rig.forget_all();
    rig.ask_for_all();
    shared_out_among(&rig, &[1, 2]);
    nodes[0].signal(libc::SIGCONT);
    shared_out_among(&rig, &[0, 1, 2]);
}

#[test]
fn an_unplugged_node_is_replaced() {
    let rig = Rig::new(3);
    let _nodes: Vec<_> = (0..3).map(|node| rig.start(node)).collect();
    rig.ask_for_all();
    shared_out_among(&rig, &[0, 1, 2]);
    rig.plug(2, false);
    shared_out_among(&rig, &[0, 1]);
    rig.plug(2, true);
    shared_out_among(&rig, &[0, 1, 2]);
}

#[test]
fn a_node_that_is_asked_to_stop_hands_over_first() {
    let rig = Rig::new(2);
    let mut nodes: Vec<_> = (0..2).map(|node| rig.start(node)).collect();
    rig.ask_for_all();
    shared_out_among(&rig, &[0, 1]);
    let status = nodes[0].terminate(rig::PATIENCE).unwrap();
    assert!(status.success(), "{status}");
    // All announcements were made before it ended.
    shared_out_among(&rig, &[1]);
}

#[test]
fn who_has_not_the_key_is_not_heard() {
    let rig = Rig::new(2);
    let _nodes = [rig.start(0), rig.start_with_key(1, "another")];
    // Each is alone in its own eyes, and says so to the client, who hears both.
    let seen = || rig.members(0).len() + rig.members(1).len();
    wait_until("both take part alone", || {
        if seen() == 2 { Ok(()) } else { Err(seen()) }
    });
}

/// Somebody else on the link has the address: it is left alone, the others are not.
#[test]
fn an_address_that_is_taken_is_left_to_who_has_it() {
    let rig = Rig::new(2);
    let taken = rig::V4[0];
    rig.stranger
        .address("eth0", &format!("{taken}/24"))
        .unwrap();
    let _nodes: Vec<_> = (0..2).map(|node| rig.start(node)).collect();
    rig.ask_for_all();
    let taken: IpAddr = taken.parse().unwrap();
    let wanted: BTreeMap<IpAddr, usize> = addresses()
        .map(|address| {
            (
                address,
                if address == taken {
                    rig::STRANGER
                } else {
                    owner(address, &[0, 1])
                },
            )
        })
        .collect();
    wait_until("only what is free is taken", || {
        let seen = rig.seen_by_client();
        if seen == wanted {
            Ok(())
        } else {
            Err(format!("{seen:?}, not {wanted:?}"))
        }
    });
}

/// Not a test but what others start: takes part until it is asked to stop.
#[test]
#[ignore = "runs as a process of other tests"]
fn takes_part() {
    if let Ok(settings) = std::env::var(rig::SETTINGS) {
        rig::take_part(&settings);
    }
}
