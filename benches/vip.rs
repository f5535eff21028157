//! For how long the control plane cannot be reached when the owner of its address is lost.
//!
//! Two masters with an API server each and a client, in network namespaces. The client sends a
//! request every 5 ms, each on a new connection with TLS, while the owner's process is killed, its
//! link goes down, its host freezes, or it is asked to stop. The same for keepalived, beside it in
//! the same run, with the same interval and priorities. An outage is the longest time in which no
//! request was answered. `$ROUNDS` (20), `$INTERVALS` (100ms,1s), `QUICK=1` for 5 rounds of 100ms.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may panic and print"
)]

#[path = "vip/client.rs"]
mod client;
#[path = "outage.rs"]
mod outage;
#[path = "report.rs"]
mod report;
#[path = "vip/rig.rs"]
mod rig;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/common/tls.rs"]
mod tls;

use report::{Report, percentile};
use rig::{Loss, Rig, Tool};
use std::time::{Duration, Instant};

/// Answers in a row after which the address counts as back.
const STEADY: Duration = Duration::from_millis(300);

fn main() {
    let quick = std::env::var_os("QUICK").is_some();
    let rounds =
        std::env::var("ROUNDS").map_or(if quick { 5 } else { 20 }, |text| text.parse().unwrap());
    let intervals =
        std::env::var("INTERVALS").unwrap_or(if quick { "100ms" } else { "100ms,1s" }.to_owned());
    for interval in intervals.split(',') {
        let interval = if let Some(text) = interval.strip_suffix("ms") {
            Duration::from_millis(text.parse().unwrap())
        } else {
            Duration::from_secs(interval.strip_suffix('s').unwrap().parse().unwrap())
        };
        println!("adverts every {interval:?}, {rounds} rounds");
        let tools = [Tool::Portico, Tool::Keepalived];
        let running = tools.map(|tool| std::thread::spawn(move || measure(tool, interval, rounds)));
        let reports: Vec<Report> = running
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        report::print(&reports);
    }
}

fn measure(tool: Tool, interval: Duration, rounds: usize) -> Report {
    let mut report = Report::new(tool.name());
    let mut rig = Rig::start(tool, interval);
    let client = client::start(rig.client.clone());
    for loss in Loss::ALL {
        let (mut outages, mut failed, mut sent) = (Vec::new(), 0, 0);
        for _ in 0..rounds {
            client.wait_until_steady(STEADY);
            let owner = rig.owner();
            let from = Instant::now();
            rig.lose(owner, loss);
            rig.wait_until_owned_by_other(owner);
            client.wait_until_steady(STEADY);
            let window = client.window(from);
            outages.push(window.outage.as_secs_f64() * 1e3);
            failed += window.failed;
            sent += window.sent;
            rig.mend(owner, loss);
        }
        report.add(
            &format!("{}, outage p50", loss.name()),
            percentile(&mut outages, 50.0),
            "ms",
            false,
        );
        report.add(
            &format!("{}, outage p99", loss.name()),
            percentile(&mut outages, 99.0),
            "ms",
            false,
        );
        report.add(
            &format!("{}, failed", loss.name()),
            failed as f64,
            "requests",
            false,
        );
        report.add(
            &format!("{}, sent", loss.name()),
            sent as f64,
            "requests",
            true,
        );
    }
    report
}
