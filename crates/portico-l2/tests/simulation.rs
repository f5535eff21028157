//! Thousands of seeds of loss, delay, partition, pause, restart and clock jump on two to seven
//! nodes and dozens of addresses, and what must hold in all of them: `design/0011-layer-2.md` says
//! what the bounds are and why.
//!
//! `PORTICO_L2_SEEDS=100000` runs more, `PORTICO_L2_SEED=7` runs one and prints what happened.
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

/// If no seed ever meets one of these, the simulation does not test what it is for.
const MUST_HAPPEN: [&str; 14] = [
    "node lost",
    "node slept",
    "node left",
    "node returned",
    "node dozed",
    "clock jumped",
    "stranger claimed",
    "address added",
    "link lost",
    "hold",
    "release",
    "probe",
    "conflict",
    "defended",
];

#[test]
fn one_owner_whatever_happens() {
    match variable("PORTICO_L2_SEED") {
        Some(seed) => show(seed, usize::MAX),
        None => run(0),
    }
}

/// The other half of the seeds, at the same time.
#[test]
fn one_owner_whatever_else_happens() {
    if variable("PORTICO_L2_SEED").is_none() {
        run(1);
    }
}

fn run(first: u64) {
    let seeds = variable("PORTICO_L2_SEEDS").unwrap_or(SEEDS);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in (first..seeds).step_by(2) {
        let world = scenario::run(seed, false);
        if world.failure.is_some() {
            show(seed, LINES);
        }
        for (what, count) in world.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("every second of {seeds} seeds: {counts:?}");
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
    println!("{:?}", world.network);
    for line in &trace[trace.len().saturating_sub(lines)..] {
        println!("{line}");
    }
    assert!(
        world.failure.is_none(),
        "PORTICO_L2_SEED={seed}: {}",
        world.failure.unwrap_or_default()
    );
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}
