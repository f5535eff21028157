//! How soon real connections follow the API, and what that costs.
//!
//! One node in a network namespace of its own, with Portico's API server: cold start, a new
//! Service, a moved endpoint, a burst of changes, memory, and the cost of a connection at 100 to
//! 30,000 Services; then a cold start with 250,000 endpoints. Where it can be told, the kernel's
//! own time for the same batch stands beside the figure (no program could be faster), and how late
//! the machine was to wake a thread meanwhile (no change is live sooner). `$PAUSE` is between two
//! changes: after a second and more of rest all caches are cold. With `$KUBE_PROXY` the same runs
//! against it (`$RIVAL_SERVICES`, 1,000 by default), in the same run.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may panic and print"
)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "machine.rs"]
mod machine;
#[path = "node/place.rs"]
mod place;
#[path = "raw.rs"]
mod raw;
#[path = "report.rs"]
mod report;
#[path = "node/rig.rs"]
mod rig;

use place::ENDPOINTS;
use report::{Report, percentile};
use rig::{Proxy, Rig};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const CHANGES: usize = 100;
const BURST: usize = 500;

fn main() {
    if !place::inside() {
        std::process::exit(place::run_inside());
    }
    place::prepare();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut reports = vec![];
    let services = number("SERVICES", 10_000);
    let portico = Proxy::portico("nftables");
    runtime.block_on(async {
        let mut rig = Rig::start().await;
        reports.push(growing(&mut rig, &portico, services).await);
        rig.end().await;
        if std::env::var_os("QUICK").is_none() {
            let mut rig = Rig::start().await;
            rig.load(services, 25).await;
            let report = reports.last_mut().unwrap();
            cold_start(
                report,
                &rig,
                &portico,
                &format!("{} endpoints, ", services * 25),
            )
            .await;
        }
        if let Some(rival) = std::env::var_os("KUBE_PROXY").map(PathBuf::from) {
            let services = number("RIVAL_SERVICES", 1_000);
            for proxy in [portico, Proxy::kube_proxy(rival)] {
                let mut rig = Rig::start().await;
                rig.load(services, 10).await;
                reports.push(whole(&rig, &proxy, services).await);
            }
        }
    });
    let (first, rest) = reports.split_at(1);
    report::print(first);
    report::print(rest);
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable)
        .ok()
        .map_or(default, |text| text.parse().unwrap())
}

/// Everything at `services`, and the cost of a connection below and above it.
async fn growing(rig: &mut Rig, proxy: &Proxy, services: usize) -> Report {
    let mut costs = vec![];
    for services in [100, 1_000] {
        rig.load(services, 10).await;
        let running = rig.run(proxy);
        running.serves(rig, ENDPOINTS[0]);
        costs.push((services, rig.connection_cost()));
    }
    rig.load(services, 10).await;
    let mut report = whole(rig, proxy, services).await;
    if std::env::var_os("QUICK").is_none() {
        rig.load(30_000, 10).await;
        let running = rig.run(proxy);
        running.serves(rig, ENDPOINTS[0]);
        costs.push((30_000, rig.connection_cost()));
    }
    for (services, (through, direct)) in costs {
        report.add(
            &format!("connection at {services} Services"),
            through,
            "us",
            false,
        );
        report.add(
            &format!("connection past them ({services})"),
            direct,
            "us",
            false,
        );
    }
    report
}

async fn cold_start<'a>(
    report: &mut Report,
    rig: &'a Rig,
    proxy: &'a Proxy,
    what: &str,
) -> rig::Running {
    let started = Instant::now();
    let running = rig.run(proxy);
    running.serves(rig, ENDPOINTS[0]);
    report.add(
        &format!("{what}cold start"),
        started.elapsed().as_secs_f64(),
        "s",
        false,
    );
    report.add(
        &format!("{what}cold start, CPU"),
        running.cpu().as_secs_f64(),
        "s",
        false,
    );
    running.settled();
    if let Some(kernel) = running.kernel() {
        report.add(
            &format!("{what}cold start, kernel"),
            kernel.as_secs_f64(),
            "s",
            false,
        );
    }
    report.add(
        &format!("{what}memory"),
        running.memory("VmRSS:"),
        "MiB",
        false,
    );
    report.add(
        &format!("{what}memory at its peak"),
        running.memory("VmHWM:"),
        "MiB",
        false,
    );
    running
}

async fn whole(rig: &Rig, proxy: &Proxy, services: usize) -> Report {
    let mut report = Report::new(proxy.name);
    report.add("Services", services as f64, "", true);
    let running = cold_start(&mut report, rig, proxy, "").await;

    let mut new = changes(&mut report, "new Service", rig, &running, |n| rig.create(n)).await;
    percentiles(&mut report, "new Service live", &mut new);
    let mut moved = changes(&mut report, "moved endpoint", rig, &running, |n| {
        rig.move_sentinel((n + 1) % 2)
    })
    .await;
    percentiles(&mut report, "moved endpoint live", &mut moved);

    let before = running.cpu();
    let started = Instant::now();
    rig.burst(BURST).await;
    let sent = started.elapsed();
    rig.move_sentinel(1).await.wait(&running);
    report.add(
        "burst of 500 changes sent in",
        sent.as_secs_f64() * 1e3,
        "ms",
        false,
    );
    report.add(
        "last of the burst live after",
        (started.elapsed() - sent).as_secs_f64() * 1e3,
        "ms",
        false,
    );
    running.settled();
    report.add(
        "burst, CPU a change",
        (running.cpu() - before).as_secs_f64() * 1e3 / BURST as f64,
        "ms",
        false,
    );
    let (through, direct) = rig.connection_cost();
    report.add("connection through a Service", through, "us", false);
    report.add("connection to its endpoint", direct, "us", false);
    rig.move_sentinel(0).await.wait(&running);
    for n in 0..CHANGES {
        rig.delete(n).await;
    }
    report
}

/// Makes changes one after the other on a quiet system; milliseconds from the API's answer to the
/// first connection.
async fn changes<F: Future<Output = rig::Expectation>>(
    report: &mut Report,
    what: &str,
    rig: &Rig,
    running: &rig::Running,
    change: impl Fn(usize) -> F,
) -> Vec<f64> {
    let (mut times, cpu, kernel) = (vec![], running.cpu(), running.kernel());
    let pause = Duration::from_millis(number("PAUSE", 20) as u64);
    let machine = machine::Watched::start();
    for n in 0..CHANGES {
        let expectation = change(n).await;
        times.push(expectation.wait(running).as_secs_f64() * 1e3);
        rig.quiet(running, pause);
    }
    let mut late = machine.end();
    let each = |time: Duration| time.as_secs_f64() * 1e3 / CHANGES as f64;
    report.add(
        &format!("{what}, CPU a change"),
        each(running.cpu() - cpu),
        "ms",
        false,
    );
    if let (Some(before), Some(after)) = (kernel, running.kernel()) {
        report.add(
            &format!("{what}, kernel's part"),
            each(after - before),
            "ms",
            false,
        );
    }
    report.add(
        &format!("{what}, machine late, p99"),
        percentile(&mut late, 99.0),
        "ms",
        false,
    );
    report.add(
        &format!("{what}, machine late at most"),
        percentile(&mut late, 100.0),
        "ms",
        false,
    );
    times
}

fn percentiles(report: &mut Report, what: &str, times: &mut [f64]) {
    report.add(
        &format!("{what}, p50"),
        percentile(times, 50.0),
        "ms",
        false,
    );
    report.add(
        &format!("{what}, p99"),
        percentile(times, 99.0),
        "ms",
        false,
    );
}
