//! How many questions `portico dns` answers in a second, and how long a change takes to be in its
//! answers.
//!
//! Portico's API server with `$SERVICES` (10,000; `QUICK=1`: 1,000) Services, 2,000 of them on the
//! ports of 10 nodes; the questions come from threads on the same machine, 64 in flight for each,
//! for `$SECONDS` (5) a kind. Without a rate limit.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    reason = "a benchmark may panic and print; tests use the rest"
)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/dns/dig.rs"]
mod dig;
#[path = "report.rs"]
mod report;
#[path = "../tests/dns/rig.rs"]
mod rig;

use common::client::MERGE;
use report::{Report, percentile};
use rig::{Dns, Rig, ZONE};
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const IN_FLIGHT: usize = 64;
const THREADS: usize = 2;
const NODES: u8 = 10;
const CHANGES: usize = 100;

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    report::print(&[runtime.block_on(measure())]);
}

async fn measure() -> Report {
    let quick = std::env::var_os("QUICK").is_some();
    let services = number("SERVICES", if quick { 1_000 } else { 10_000 });
    let time = Duration::from_secs(number("SECONDS", if quick { 2 } else { 5 }) as u64);
    let flags = ["--rate-limit=0", "--allow-transfer=127.0.0.1"];
    let mut rig = Rig::start(&flags).await;
    for number in 3..=NODES {
        rig.add_node(number).await;
    }
    create(&rig, services).await;
    let mut report = Report::new("portico dns");
    rig.dns.kill();
    let began = Instant::now();
    rig.dns = Dns::start_at(
        &rig.server,
        rig.dns.port,
        rig.dns.metrics,
        rig.healthz_port,
        &flags,
    );
    rig.dns.ready().await;
    report.add(
        "start until the zone is complete",
        began.elapsed().as_secs_f64(),
        "s",
        false,
    );
    report.add("memory", rig.dns.memory() as f64 / 1024.0, "MiB", false);
    let to = SocketAddr::from(([127, 0, 0, 1], rig.dns.port));
    for (what, first, kind) in [
        ("A of a node", "n1.node", 1),
        ("A of a Service on 10 nodes", "s{}.shop.svc", 1),
        (
            "SRV of a Service on 10 nodes",
            "_http._tcp.s{}.shop.svc",
            33,
        ),
        ("a name that is not there", "x{}.shop.svc", 1),
    ] {
        let rate = flood(to, first, kind, services, time);
        report.add(&format!("questions/s: {what}"), rate, "", true);
    }
    report.add(
        "memory after that",
        rig.dns.memory() as f64 / 1024.0,
        "MiB",
        false,
    );
    let mut alone: Vec<f64> = (0..1000)
        .map(|_| ask_until(to, "n1.node", 1, |count| count == 1))
        .collect();
    report.add(
        "one question at a time, p50",
        percentile(&mut alone, 50.0) * 1e6,
        "us",
        false,
    );
    let mut live = Vec::new();
    for change in 0..CHANGES {
        let name = format!("new-{change}");
        rig.service(
            &name,
            json!({"type": "NodePort", "ports": [{"name": "http", "port": 80}]}),
        )
        .await;
        live.push(
            ask_until(to, &format!("{name}.shop.svc"), 1, |count| {
                count == usize::from(NODES)
            }) * 1e3,
        );
    }
    report.add(
        "a new Service answered, p50",
        percentile(&mut live, 50.0),
        "ms",
        false,
    );
    report.add(
        "a new Service answered, p99",
        percentile(&mut live, 99.0),
        "ms",
        false,
    );
    let before = cpu(rig.dns.pid());
    for change in 0..5 * CHANGES {
        let port = json!({"name": format!("p{change}"), "port": 80});
        rig.service("new-0", json!({"ports": [port]})).await;
    }
    let last = format!("_p{}._tcp.new-0.shop.svc", 5 * CHANGES - 1);
    ask_until(to, &last, 33, |count| count == usize::from(NODES));
    report.add(
        "CPU of a change",
        (cpu(rig.dns.pid()) - before) * 1e3 / (5 * CHANGES) as f64,
        "ms",
        false,
    );
    let began = Instant::now();
    let axfr = rig.dig.run(&[ZONE, "AXFR"]).await;
    report.add(
        "transfer of the zone, by dig",
        began.elapsed().as_secs_f64(),
        "s",
        false,
    );
    report.add(
        "records in it",
        axfr.lines()
            .filter(|line| line.contains("\tIN\t") || line.contains(" IN\t"))
            .count() as f64,
        "",
        true,
    );
    report
}

async fn create(rig: &Rig, count: usize) {
    let mut writers = JoinSet::new();
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for _ in 0..32 {
        let (client, next) = (rig.admin(), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number >= count {
                    return;
                }
                // Node ports are few: most Services have a balancer.
                let public = number < 2000;
                let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": public,
                    "ports": [{"name": "http", "port": 80}]});
                let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{number}")}, "spec": spec});
                let path = "/api/v1/namespaces/shop/services";
                client.post(path, &service).await.expect(201);
                if !public {
                    let ip = format!("192.0.{}.{}", number / 250, number % 250);
                    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}});
                    client.patch(&format!("{path}/s{number}/status"), MERGE, &status).await.expect(200);
                }
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
}

fn question(name: &str, kind: u16, id: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.').chain(ZONE.split('.')) {
        bytes.push(label.len() as u8);
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    // Class IN, and OPT with 1232 bytes.
    bytes.extend([0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// Answers in a second, from all threads together.
fn flood(to: SocketAddr, name: &'static str, kind: u16, services: usize, time: Duration) -> f64 {
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            std::thread::spawn(move || {
                let all: Vec<Vec<u8>> = (0..services.min(2000))
                    .map(|number| {
                        question(
                            &name.replace("{}", &number.to_string()),
                            kind,
                            number as u16,
                        )
                    })
                    .collect();
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(to).unwrap();
                socket
                    .set_read_timeout(Some(Duration::from_millis(200)))
                    .unwrap();
                let (began, mut answers, mut questions) =
                    (Instant::now(), 0_usize, all.iter().cycle());
                let mut buffer = [0; 2048];
                (0..IN_FLIGHT).for_each(|_| drop(socket.send(questions.next().unwrap())));
                while began.elapsed() < time {
                    answers += usize::from(socket.recv(&mut buffer).is_ok());
                    socket.send(questions.next().unwrap()).unwrap();
                }
                answers as f64 / began.elapsed().as_secs_f64()
            })
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum()
}

/// Seconds until an answer has so many records.
fn ask_until(to: SocketAddr, name: &str, kind: u16, enough: impl Fn(usize) -> bool) -> f64 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(to).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let began = Instant::now();
    loop {
        let mut buffer = [0; 2048];
        socket.send(&question(name, kind, 1)).unwrap();
        socket.recv(&mut buffer).unwrap();
        if enough(usize::from(u16::from_be_bytes([buffer[6], buffer[7]]))) {
            return began.elapsed().as_secs_f64();
        }
    }
}

/// Seconds of CPU that a process has used.
fn cpu(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .filter_map(|text| text.parse().ok())
        .collect();
    // The first field after the name is a letter, and left out here.
    (fields[10] + fields[11]) as f64 / 100.0
}
