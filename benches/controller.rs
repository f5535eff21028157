//! How soon load balancers follow the API, and what that costs.
//!
//! 10,000 Services of type LoadBalancer with the provider metal at Portico's API server, with real
//! node daemons (`$NODES`, 3 by default) in network namespaces, all on this machine: time from the
//! start of the controller until every Service has its address and until every one is Programmed,
//! that is until every node has reported that it forwards it; the same for a controller that starts
//! again; processor time and memory at rest; what a node that leaves and comes back costs. Then 500
//! Services, 100 nodes and a provider that counts its calls; and each provider on its cloud in
//! memory, with the calls of that cloud's API counted (`ONLY=calls`: only these).
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may panic and print"
)]

#[path = "../tests/calls/mod.rs"]
mod calls;
#[path = "../tests/common/mod.rs"]
mod common;
#[path = "controller/calls.rs"]
mod costs;
#[path = "controller/counting.rs"]
mod counting;
#[path = "controller/nodes.rs"]
mod nodes;
#[path = "controller/progress.rs"]
mod progress;
#[path = "raw.rs"]
mod raw;
#[path = "report.rs"]
mod report;
#[path = "controller/rig.rs"]
mod rig;

use progress::Progress;
use report::Report;
use rig::Rig;
use std::time::{Duration, Instant};

/// Long enough for nodes to renew their reports several times.
const REST: Duration = Duration::from_secs(30);
/// By then a change of nodes has had all its consequences: they are gathered for one second, and
/// reports come twice a second.
const CONSEQUENCES: Duration = Duration::from_secs(10);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let quick = std::env::var_os("QUICK").is_some();
    if std::env::var("ONLY").is_ok_and(|only| only == "calls") {
        runtime.block_on(costs::measure());
        return;
    }
    let services = number("SERVICES", if quick { 2_000 } else { 10_000 });
    let reports = runtime.block_on(async {
        let metal = metal(
            services,
            number("NODES", 3),
            if quick { REST / 3 } else { REST },
        )
        .await;
        [metal, counting::measure().await]
    });
    reports
        .iter()
        .for_each(|report| report::print(std::slice::from_ref(report)));
    runtime.block_on(costs::measure());
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable)
        .ok()
        .map_or(default, |text| text.parse().unwrap())
}

async fn metal(services: usize, nodes: usize, rest: Duration) -> Report {
    let mut report = Report::new("metal");
    let mut rig = Rig::start(nodes).await;
    rig.load(services).await;
    report.add("Services", services as f64, "", true);
    report.add("nodes", nodes as f64, "", true);
    from_nothing(&mut report, &mut rig, services).await;

    rig.settled().await;
    let (cpu, began) = (rig.cpu(), Instant::now());
    tokio::time::sleep(rest).await;
    let share = (rig.cpu() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    report.add("controller at rest, of a core", share * 100.0, "%", false);
    report.add("controller, memory", rig.memory("VmRSS:"), "MiB", false);
    report.add(
        "controller, memory at its peak",
        rig.memory("VmHWM:"),
        "MiB",
        false,
    );

    let last = rig.nodes.len() - 1;
    for (what, change) in [("a node leaves", false), ("a node comes back", true)] {
        let (work, cpu) = (rig.work(), rig.cpu());
        if change {
            rig.join(last).await
        } else {
            rig.leave(last).await
        }
        tokio::time::sleep(CONSEQUENCES).await;
        let cost = rig.work() - work;
        report.add(
            &format!("{what}, calls of the provider"),
            cost.calls,
            "",
            false,
        );
        report.add(
            &format!("{what}, writes to the API"),
            cost.writes,
            "",
            false,
        );
        report.add(
            &format!("{what}, CPU"),
            (rig.cpu() - cpu).as_secs_f64() * 1e3,
            "ms",
            false,
        );
    }

    rig.stop_controller();
    let began = Instant::now();
    rig.start_controller();
    rig.settled().await;
    report.add(
        "start with all in place, until quiet",
        began.elapsed().as_secs_f64(),
        "s",
        false,
    );
    report.add(
        "start with all in place, writes",
        rig.work().writes,
        "",
        false,
    );
    report
}

/// The Services are there, nodes forward them inside the cluster, and the controller starts.
async fn from_nothing(report: &mut Report, rig: &mut Rig, services: usize) {
    let mut progress = Progress::watch(&rig.client).await;
    let before = rig.cpu_of_nodes();
    let began = Instant::now();
    rig.start_controller();
    progress.all_addressed(services).await;
    report.add(
        "all addressed after",
        began.elapsed().as_secs_f64(),
        "s",
        false,
    );
    progress.all_programmed(services).await;
    report.add(
        "all Programmed after",
        began.elapsed().as_secs_f64(),
        "s",
        false,
    );
    report.add(
        "controller, CPU until then",
        rig.cpu().as_secs_f64(),
        "s",
        false,
    );
    report.add(
        "nodes together, CPU until then",
        (rig.cpu_of_nodes() - before).as_secs_f64(),
        "s",
        false,
    );
    let work = rig.work();
    report.add(
        "writes to Services, each",
        work.writes / services as f64,
        "",
        false,
    );
    report.add(
        "calls of the provider, each",
        work.calls / services as f64,
        "",
        false,
    );
}
