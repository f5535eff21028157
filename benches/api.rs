//! How fast the API server is, and how much memory it takes.
//!
//! Prints durable creates a second with one and with 64 writers, the time to list 10,000
//! Services, how long one change takes to reach 1,000 watchers, and the memory with 10,000
//! Services and as many EndpointSlices. With `$KUBE_APISERVER` (and etcd on PATH) the same runs
//! against it and the ratios are printed. Arguments pick servers by name.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark may panic and print"
)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "raw.rs"]
mod raw;
#[path = "report.rs"]
mod report;
#[path = "api/watchers.rs"]
mod watchers;

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{Client, Etcd, Server};
use raw::Connection;
use report::{Report, percentile};
use tokio::task::LocalSet;

const OBJECTS: usize = 10_000;
/// No measurement takes longer, however slow the server.
const LIMIT: Duration = Duration::from_secs(30);
const FILL_LIMIT: Duration = Duration::from_secs(300);

fn main() {
    let wanted: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut reports = vec![];
    for name in ["portico", "portico+etcd", "kube-apiserver+etcd"]
        .into_iter()
        .filter(|name| is_wanted(name))
    {
        let rival = std::env::var_os("KUBE_APISERVER").map(PathBuf::from);
        if name.starts_with("kube") && rival.is_none() {
            println!("KUBE_APISERVER is not set: nothing to compare with");
            continue;
        }
        reports.push(LocalSet::new().block_on(&runtime, measure(name, rival)));
    }
    report::print(&reports);
}

async fn measure(name: &'static str, rival: Option<PathBuf>) -> Report {
    let etcd = if name.contains("etcd") {
        Some(Etcd::start().await)
    } else {
        None
    };
    let portico = PathBuf::from(env!("CARGO_BIN_EXE_portico"));
    let kube = name.starts_with("kube");
    let program = if kube { rival.unwrap() } else { portico };
    // kube-apiserver leaves EndpointSlices to another process, so here nobody makes them.
    let flags: &[&str] = if kube {
        &[]
    } else {
        &["--endpoint-slice-controller=false"]
    };
    let server = Server::launch(&program, kube, etcd, flags).await;
    let mut report = Report::new(name);
    let client = server.admin();

    let (one, many) = (1_000, 5_000);
    creates(&mut report, "1 writer", &client, services(0..one), 1).await;
    creates(
        &mut report,
        "64 writers",
        &client,
        services(one..one + many),
        64,
    )
    .await;
    creates(
        &mut report,
        "64 writers, EndpointSlices",
        &client,
        slices(0..many),
        64,
    )
    .await;
    // Whatever is missing.
    write(&client, services(0..OBJECTS), 8, FILL_LIMIT).await;
    write(&client, slices(0..OBJECTS), 8, FILL_LIMIT).await;
    report.add("Services in the end", count(&client).await, "", true);
    report.add(
        "memory, 10,000 Services and slices",
        memory(server.pid()),
        "MB",
        false,
    );
    if let Some(etcd) = server.etcd() {
        report.add("memory of etcd", memory(etcd.pid()), "MB", false);
    }
    list(
        &mut report,
        "list 10,000 Services",
        &client,
        "/api/v1/services",
    )
    .await;
    list(
        &mut report,
        "list 10,000 from memory",
        &client,
        "/api/v1/services?resourceVersion=0",
    )
    .await;
    watchers::measure(&mut report, &client).await;
    report.add("memory at the end", memory(server.pid()), "MB", false);
    report
}

/// Prebuilt requests that create Services.
fn services(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let body = |n| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"web-{n:05}","labels":{{"app":"web"}}}},"spec":{{"selector":{{"app":"web-{n:05}"}},"ports":[{{"name":"http","port":80,"targetPort":8080}}]}}}}"#
        )
    };
    numbers
        .map(|n| raw::post("/api/v1/namespaces/default/services", &body(n)))
        .collect()
}

/// The same for EndpointSlices of two endpoints.
fn slices(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let body = |n: usize| {
        let (high, low) = (n >> 8, n & 255);
        format!(
            r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{{"name":"slice-{n:05}","labels":{{"kubernetes.io/service-name":"slice-{n:05}"}}}},"addressType":"IPv4","endpoints":[{{"addresses":["10.1.{high}.{low}"],"conditions":{{"ready":true}},"nodeName":"node-a"}},{{"addresses":["10.2.{high}.{low}"],"conditions":{{"ready":true}},"nodeName":"node-b"}}],"ports":[{{"name":"http","port":8080,"protocol":"TCP"}}]}}"#
        )
    };
    numbers
        .map(|n| {
            raw::post(
                "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
                &body(n),
            )
        })
        .collect()
}

async fn creates(
    report: &mut Report,
    what: &str,
    client: &Client,
    requests: Vec<Vec<u8>>,
    writers: usize,
) {
    let started = Instant::now();
    let mut times = write(client, requests, writers, LIMIT).await;
    let rate = times.len() as f64 / started.elapsed().as_secs_f64();
    report.add(&format!("creates, {what}"), rate, "/s", true);
    report.add(
        &format!("creates, {what}, p50"),
        percentile(&mut times, 50.0),
        "ms",
        false,
    );
    report.add(
        &format!("creates, {what}, p99"),
        percentile(&mut times, 99.0),
        "ms",
        false,
    );
}

/// Sends all requests over that many connections; the time of each in milliseconds.
async fn write(
    client: &Client,
    requests: Vec<Vec<u8>>,
    writers: usize,
    limit: Duration,
) -> Vec<f64> {
    let (requests, next, begun) = (Rc::new(requests), Rc::new(Cell::new(0)), Instant::now());
    let mut tasks = vec![];
    for _ in 0..writers {
        let mut connection = Connection::open(client).await;
        let (requests, next) = (requests.clone(), next.clone());
        tasks.push(tokio::task::spawn_local(async move {
            let mut times = vec![];
            while next.get() < requests.len() && begun.elapsed() < limit {
                let request = &requests[next.replace(next.get() + 1)];
                let started = Instant::now();
                let status = connection.exchange(request).await;
                times.push(started.elapsed().as_secs_f64() * 1e3);
                assert!(matches!(status, 201 | 409), "{status}");
            }
            times
        }));
    }
    let mut all = vec![];
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all
}

async fn list(report: &mut Report, what: &str, client: &Client, path: &str) {
    let mut connection = Connection::open(client).await;
    let mut times = vec![];
    for _ in 0..11 {
        let started = Instant::now();
        assert_eq!(connection.exchange(&raw::get(path)).await, 200);
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    report.add(what, percentile(&mut times, 50.0), "ms", false);
    report.add(
        &format!("{what}, size"),
        connection.body_bytes as f64 / 1e6,
        "MB",
        false,
    );
}

async fn count(client: &Client) -> f64 {
    common::items(
        &client
            .get("/api/v1/namespaces/default/services")
            .await
            .expect(200),
    )
    .len() as f64
}

/// Resident memory of a process in megabytes.
fn memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<f64>()
        .unwrap()
        / 1024.0
}
