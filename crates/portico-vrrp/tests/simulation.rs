//! Thousands of seeds of loss, delay, partition, pause and clock jump on two to seven machines, and
//! what must hold in all of them: `design/0007-one-owner.md` says what the bounds are and why.
//!
//! `PORTICO_VRRP_SEEDS=100000` runs more, `PORTICO_VRRP_SEED=7` runs one and prints what happened.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "../../../tests/simulation/machine.rs"]
mod machine;
#[path = "../../../tests/simulation/network.rs"]
mod network;
#[path = "simulation/node.rs"]
mod node;
#[path = "../../../tests/simulation/queue.rs"]
mod queue;
#[path = "../../../tests/simulation/random.rs"]
mod random;
#[path = "simulation/scenario.rs"]
mod scenario;
#[path = "simulation/world.rs"]
mod world;

use std::collections::BTreeMap;

const SEEDS: u64 = 3000;
/// Lines of what happened before a failure that are printed.
const LINES: usize = 200;

/// If a seed never meets one of these, the simulation does not test what it is for.
const MUST_HAPPEN: [&str; 19] = [
    "started",
    "owner silent",
    "owner left",
    "preempted",
    "outranked",
    "paused",
    "link down",
    "link up",
    "asked",
    "probe",
    "conflict",
    "defended",
    "kernel removed the address",
    "owner lost",
    "owner slept",
    "owner released",
    "standby dozed",
    "claimed",
    "joined",
];

#[test]
fn one_owner_whatever_happens() {
    if let Some(seed) = variable("PORTICO_VRRP_SEED") {
        return show(seed, usize::MAX);
    }
    let seeds = variable("PORTICO_VRRP_SEEDS").unwrap_or(SEEDS);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..seeds {
        let world = scenario::run(seed, false);
        if world.failure.is_some() {
            show(seed, LINES);
        }
        for (what, count) in world.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{seeds} seeds: {counts:?}");
    for what in MUST_HAPPEN {
        assert!(
            counts.contains_key(what) || seeds < SEEDS,
            "'{what}' never happened: {counts:?}"
        );
    }
}

fn show(seed: u64, lines: usize) {
    let world = scenario::run(seed, true);
    let trace = world.trace.unwrap_or_default();
    for (node, machine) in world.nodes.iter().enumerate() {
        println!("{} {:?}", world::name(node), machine.router.config());
    }
    println!("{:?}", world.network);
    for line in &trace[trace.len().saturating_sub(lines)..] {
        println!("{line}");
    }
    assert!(
        world.failure.is_none(),
        "PORTICO_VRRP_SEED={seed}: {}",
        world.failure.unwrap_or_default()
    );
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}
