//! Scenarios that were recorded from kube-proxy v1.36.4, held against `portico node`: a cluster of
//! network namespaces with three nodes, real packets, and who answered, what source it saw, how
//! failures looked.
//!
//! Of every probe the engine of `portico explain` is asked as well, and what it says has to be what
//! became of the packets.
//!
//! What nftables mode does and what the scenario lists as another mode's way are both right; what
//! is otherwise in IPVS mode by design is in `ipvs-differences.yaml`. Where the kernel lacks a
//! thing a mode needs, its test runs in user-mode-linux. `PORTICO_SCENARIO=TEXT,…` picks scenarios
//! by name or file, `PORTICO_KEEP=1` keeps the logs. To test the tests,
//! `PORTICO_NODE_COMMAND='/path/to/kube-proxy --config {config}'` runs another program on the nodes
//! and `KUBE_APISERVER=/path/to/kube-apiserver` that API server.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "dataplane/actions.rs"]
mod actions;
mod common;
#[path = "dataplane/control.rs"]
mod control;
#[path = "dataplane/differences.rs"]
mod differences;
#[path = "dataplane/http.rs"]
mod http;
#[path = "dataplane/lab.rs"]
mod lab;
#[path = "dataplane/matching.rs"]
mod matching;
#[path = "dataplane/objects.rs"]
mod objects;
#[path = "dataplane/probes.rs"]
mod probes;
#[path = "dataplane/scenario.rs"]
mod scenario;
#[path = "dataplane/stray.rs"]
mod stray;
#[allow(dead_code, reason = "scenarios without a lab use the rest")]
#[path = "model/cluster.rs"]
mod tables;
#[path = "dataplane/told.rs"]
mod told;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use actions::Traces;
use futures_util::stream::{self, StreamExt};
use lab::Lab;
use matching::matches;
use portico_testbed::Cluster;
use portico_testbed::uml::{is_inside, test_inside, test_with_ipvs};
use probes::Kept;
use scenario::{Probe, Scenario, Step, load};
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::sleep;
use told::Told;

/// A probe that fails is repeated for so long: health checks and connection tracking follow the
/// rules a moment later.
const GRACE: Duration = Duration::from_secs(3);
/// Most of a run is waiting for packets that are dropped on purpose, which several clusters
/// (`PORTICO_CLUSTERS`) can do at once; one less where there is one CPU.
const CLUSTERS: usize = 3;

/// The node whose kernel is compared with its table.
const LOOKED_AT: &str = "node1";

/// Scenarios in two parts of about the same length, for kernels with one CPU.
const FIRST: &[&str] = &[
    "affinity",
    "clusterip",
    "config",
    "connections",
    "dualstack",
    "endpoints",
    "externalips",
    "health",
];
const SECOND: &[&str] = &[
    "ignored",
    "lifecycle",
    "loadbalancer",
    "nodeport",
    "protocols",
    "topology",
    "traffic-policy",
    "visibility",
];

/// Not in IPVS mode, which refuses on its way out what the node sends to itself (a raw socket can
/// tell), and never answers on loopback.
const OTHERS: &[&str] = &["own-node", "settings"];

#[test]
fn nftables() {
    run("nftables", &[FIRST, SECOND, OTHERS].concat());
}

#[test]
fn iptables() {
    run("iptables", &[FIRST, SECOND, OTHERS].concat());
}

/// Where the legacy kind and an older kernel could make a difference.
#[test]
fn iptables_legacy() {
    test_inside("iptables_legacy", || {
        run("iptables", &["affinity", "connections", "lifecycle"])
    });
}

#[test]
fn ipvs_first_part() {
    test_with_ipvs("ipvs_first_part", || run("ipvs", FIRST));
}

#[test]
fn ipvs_second_part() {
    test_with_ipvs("ipvs_second_part", || run("ipvs", SECOND));
}

#[test]
fn the_parts_are_the_whole() {
    let mut parts = [FIRST, SECOND, OTHERS].concat();
    parts.sort_unstable();
    assert_eq!(parts, scenario::files());
}

fn run(mode: &'static str, files: &[&str]) {
    let started = Instant::now();
    let mut scenarios = load(files);
    differences::expect(mode, &mut scenarios);
    let usual = CLUSTERS - usize::from(is_inside());
    let clusters = std::env::var("PORTICO_CLUSTERS").map_or(usual, |text| text.parse().unwrap());
    let clusters = clusters.min(scenarios.len());
    let (queue, total) = (
        Mutex::new(VecDeque::from(scenarios)),
        Mutex::new(Tally::default()),
    );
    std::thread::scope(|scope| {
        for _ in 0..clusters {
            scope.spawn(|| work(mode, &queue, &total));
        }
    });
    let total = total.into_inner().unwrap();
    let (passed, explained, failed, took) = (
        total.passed,
        total.explained,
        total.failed.len(),
        started.elapsed(),
    );
    println!(
        "{mode}: {passed} passed, {explained} of them as explained, {failed} failed in {took:.1?}"
    );
    assert!(
        total.failed.is_empty(),
        "{mode}:\n{}",
        total.failed.join("\n")
    );
}

#[derive(Default)]
struct Tally {
    passed: usize,
    /// Of which `explain` said the same.
    explained: usize,
    failed: Vec<String>,
}

/// Takes scenarios from the queue until it is empty, in a cluster of its own.
fn work(mode: &'static str, queue: &Mutex<VecDeque<Scenario>>, total: &Mutex<Tally>) {
    let cluster = Cluster::new().unwrap();
    let control = cluster.host("cp").unwrap().clone();
    // This thread sees the API server; probes send from other hosts.
    control.enter(|| {
        Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(async {
                let mut lab = Lab::start(cluster, mode).await;
                while let Some(scenario) = { queue.lock().unwrap().pop_front() } {
                    let started = Instant::now();
                    let mut tally = Tally::default();
                    run_scenario(&mut lab, &scenario, &mut tally).await;
                    let bad = tally.failed.len();
                    let (good, took) = (tally.passed, started.elapsed());
                    println!(
                        "{mode} {} ({}): {good} passed, {bad} failed, {took:.1?}",
                        scenario.name, scenario.about
                    );
                    tally.failed.iter().for_each(|line| println!("  {line}"));
                    let mut total = total.lock().unwrap();
                    total.passed += tally.passed;
                    total.explained += tally.explained;
                    total.failed.append(&mut tally.failed);
                }
            });
    });
}

async fn run_scenario(lab: &mut Lab, scenario: &Scenario, tally: &mut Tally) {
    lab.use_config(&scenario.proxy_config).await;
    let (mut traces, mut kept) = (Traces::default(), Kept::default());
    let mut last = None;
    for (number, step) in scenario.steps.iter().enumerate() {
        let name = format!("{} step {}", scenario.name, number + 1);
        match run_step(lab, step, &name, &mut traces, &mut kept, tally).await {
            Ok(told) => last = told,
            Err(error) => {
                tally.failed.push(format!("FAIL {name}: {error}"));
                break;
            }
        }
    }
    drop(kept);
    // After everything that is a matter of time. Where there is one CPU, to read a whole kernel
    // takes too long.
    if let Some(told) = last.filter(|_| !is_inside()) {
        let differing = told.kernel_differs(lab, LOOKED_AT).await;
        tally
            .failed
            .extend(differing.map(|how| format!("FAIL {}: {how}", scenario.name)));
    }
    if let Err(error) = traces.undo(lab).await {
        tally
            .failed
            .push(format!("FAIL {}: cleaning up: {error}", scenario.name));
    }
}

async fn run_step(
    lab: &mut Lab,
    step: &Step,
    name: &str,
    traces: &mut Traces,
    kept: &mut Kept,
    tally: &mut Tally,
) -> Result<Option<Told>, String> {
    for action in &step.actions {
        traces.act(lab, action).await?;
    }
    let late = match step.sync {
        true => lab.sync().await.map_err(|error| error.to_string())?,
        false => Vec::new(),
    };
    let grace = if late.is_empty() {
        GRACE
    } else {
        Duration::ZERO
    };
    let probed = run_probes(lab, step, kept, grace).await;
    let told = match late.is_empty() && !traces.tampered {
        true => Told::of(lab, step)
            .await
            .map_err(|error| error.to_string())?,
        false => None,
    };
    for (probe, seen) in probed {
        if probe.acceptable().any(|expected| matches(expected, &seen)) {
            tally.passed += 1;
            match told.as_ref().and_then(|told| told.of_probe(probe, &seen)) {
                None => {}
                Some(Ok(())) => tally.explained += 1,
                Some(Err(how)) => tally
                    .failed
                    .push(format!("FAIL {name}: {}: {how}", probe.describe())),
            }
            continue;
        }
        let expected: Vec<_> = probe.acceptable().map(Value::to_string).collect();
        let late = if late.is_empty() {
            String::new()
        } else {
            format!(" [{}]", late.join(", "))
        };
        tally.failed.push(format!(
            "FAIL {name}: {}: expected {}, got {seen}{late}",
            probe.describe(),
            expected.join(" or ")
        ));
    }
    Ok(told)
}

/// Those that must keep their order one after the other, then the others side by side.
async fn run_probes<'a>(
    lab: &Lab,
    step: &'a Step,
    kept: &mut Kept,
    grace: Duration,
) -> Vec<(&'a Probe, Value)> {
    let (beside, serial): (Vec<_>, Vec<_>) =
        step.probes.iter().partition(|probe| probe.beside_others());
    let mut results = Vec::new();
    for probe in serial {
        let deadline = Instant::now() + grace;
        let seen = loop {
            let seen = kept
                .observe(&lab.cluster, probe, probe.recorded(lab.mode))
                .await;
            if settled(probe, &seen, deadline).await {
                break seen;
            }
        };
        results.push((probe, seen));
    }
    let asking = beside.into_iter().map(|probe| async move {
        let deadline = Instant::now() + grace;
        loop {
            let seen = probes::observe(&lab.cluster, probe, probe.recorded(lab.mode)).await;
            if settled(probe, &seen, deadline).await {
                return (probe, seen);
            }
        }
    });
    results.extend(
        stream::iter(asking)
            .buffer_unordered(16)
            .collect::<Vec<_>>()
            .await,
    );
    results
}

/// It is right, or will not become so in time.
async fn settled(probe: &Probe, seen: &Value, deadline: Instant) -> bool {
    if probe.once
        || Instant::now() > deadline
        || probe.acceptable().any(|expected| matches(expected, seen))
    {
        return true;
    }
    sleep(Duration::from_millis(50)).await;
    false
}
