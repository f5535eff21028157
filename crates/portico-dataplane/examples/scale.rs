//! How long the nftables dataplane takes, beside how long the kernel takes for the same batch.
//!
//! `cargo run --release -p portico-dataplane --example scale [SERVICESxENDPOINTS ...]`, as root:
//! works in network namespaces of its own. With `EDGE=NODES` each Service has a load balancer's
//! address too, whose connections so many nodes share out among themselves.

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use portico_dataplane::netlink::Socket;
use portico_dataplane::nftables::kernel::{CommitError, Kernel, Netlink, Sent};
use portico_dataplane::nftables::plan::Plan;
use portico_dataplane::nftables::snapshot::Snapshot;
use portico_dataplane::nftables::{Nftables, Table};
use portico_dataplane::{ApplyError, Dataplane};
use portico_model::edge::{Edge, EdgeNode, Way, slots};
use portico_model::key::ObjectKey;
use portico_model::table::*;
use portico_testbed::Testbed;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type AnyError = Box<dyn std::error::Error>;

const CHANGES: u32 = 1000;

fn main() -> Result<(), AnyError> {
    let mut sizes: Vec<String> = std::env::args().skip(1).collect();
    if sizes.is_empty() {
        sizes = ["1000x10", "10000x10", "30000x10", "10000x25"]
            .map(str::to_owned)
            .to_vec();
    }
    for size in sizes {
        let (services, endpoints) = size.split_once('x').ok_or("a size is like 10000x10")?;
        measure(services.parse()?, endpoints.parse()?)?;
    }
    Ok(())
}

fn measure(services: u32, endpoints: u32) -> Result<(), AnyError> {
    let bed = Testbed::new()?;
    let spent = Arc::new(Mutex::new(Spent::default()));
    let host = bed.host("scale")?;
    let kernel = host.enter(|| Netlink::open(Table::NODE))?;
    // The kernel tells everybody who listens of every element.
    let _listener = match std::env::var_os("LISTEN") {
        Some(_) => {
            let listener = host.enter(Socket::netfilter)?;
            listener.join(7)?;
            Some(listener)
        }
        None => None,
    };
    let mut nft = Nftables::new(Stopwatch {
        kernel,
        spent: spent.clone(),
    });
    let mut table = table(services, endpoints);
    let before = memory();
    println!("{services} Services of {endpoints} endpoints");
    let all = timed(&spent, || nft.replace(&table))?;
    println!(
        "  install all: plan {} encode {} kernel {}   {} operations, {} KiB, process grew by {} \
         KiB",
        milliseconds(all.plan()),
        milliseconds(all.encode()),
        milliseconds(all.kernel),
        all.operations,
        all.bytes / 1024,
        memory().saturating_sub(before)
    );
    println!(
        "      of processor time: plan {}, encode and kernel {}",
        milliseconds(all.processor - all.commit_processor),
        milliseconds(all.commit_processor)
    );
    let again = timed(&spent, || nft.replace(&table))?;
    assert_eq!(again.operations, 0);
    println!("  compare all, undisturbed: {}", milliseconds(again.total));
    let mut nft = Nftables::new(Stopwatch {
        kernel: host.enter(|| Netlink::open(Table::NODE))?,
        spent: spent.clone(),
    });
    let restart = timed(&spent, || nft.replace(&table))?;
    assert_eq!(restart.operations, 0);
    println!(
        "  restart: {} of which reading {}",
        milliseconds(restart.total),
        milliseconds(restart.read)
    );
    let shrunk = |n: u32| service_port(n, endpoints.saturating_sub(1).max(1), 0);
    change(
        &mut nft,
        &mut table,
        &spent,
        "an endpoint moves",
        services,
        |n| Some(service_port(n, endpoints, 1)),
    )?;
    change(
        &mut nft,
        &mut table,
        &spent,
        "an endpoint goes",
        services,
        |n| Some(shrunk(n)),
    )?;
    change(
        &mut nft,
        &mut table,
        &spent,
        "a Service goes",
        services,
        |_| None,
    )?;
    change(
        &mut nft,
        &mut table,
        &spent,
        "a Service comes",
        services,
        |n| Some(service_port(n, endpoints, 0)),
    )?;
    Ok(())
}

fn change(
    nft: &mut Nftables<Stopwatch>,
    table: &mut ForwardingTable,
    spent: &Arc<Mutex<Spent>>,
    what: &str,
    services: u32,
    after: impl Fn(u32) -> Option<ServicePort>,
) -> Result<(), AnyError> {
    let (mut ours, mut kernels, mut operations) = (Vec::new(), Vec::new(), 0);
    for round in 0..CHANGES {
        let number = round * 7919 % services;
        let (key, after) = (key(number), after(number).map(Arc::new));
        let before = match &after {
            Some(port) => table.ports.insert(key.clone(), port.clone()),
            None => table.ports.remove(&key),
        };
        if before == after {
            continue;
        }
        let changes = [Change { key, before, after }];
        let one = timed(spent, || nft.apply(&table.rules, &changes))?;
        ours.push(one.total - one.kernel);
        kernels.push(one.kernel);
        operations += one.operations;
    }
    let [ours, kernels] = [ours, kernels].map(percentiles);
    let each = operations as f64 / f64::from(CHANGES);
    println!("  {what:<18} ours {ours}   kernel {kernels}   ({each:.1} operations)");
    Ok(())
}

/// Where the time of one call went.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    total: Duration,
    read: Duration,
    commit: Duration,
    kernel: Duration,
    /// Processor time of all, and of encoding and the kernel, which is not longer on a busy
    /// machine.
    processor: Duration,
    commit_processor: Duration,
    operations: usize,
    bytes: usize,
}

impl Spent {
    fn plan(&self) -> Duration {
        self.total - self.read - self.commit
    }

    fn encode(&self) -> Duration {
        self.commit - self.kernel
    }
}

struct Stopwatch {
    kernel: Netlink,
    spent: Arc<Mutex<Spent>>,
}

impl Stopwatch {
    fn note(&self, note: impl FnOnce(&mut Spent)) {
        if let Ok(mut spent) = self.spent.lock() {
            note(&mut spent);
        }
    }
}

impl Kernel for Stopwatch {
    fn read(&mut self) -> Result<Snapshot, ApplyError> {
        let start = Instant::now();
        let snapshot = self.kernel.read();
        self.note(|spent| spent.read += start.elapsed());
        snapshot
    }

    fn tables(&mut self) -> Result<PerFamily<bool>, ApplyError> {
        self.kernel.tables()
    }

    fn is_undisturbed(&mut self) -> bool {
        self.kernel.is_undisturbed()
    }

    fn commit(&mut self, plan: &Plan, generation: Option<u32>) -> Result<Sent, CommitError> {
        // Reading the processor time takes longer than a small batch.
        let processor = || {
            if plan.operations() > 1000 {
                processor()
            } else {
                Duration::ZERO
            }
        };
        let (start, processor_before) = (Instant::now(), processor());
        let sent = self.kernel.commit(plan, generation)?;
        let used = processor() - processor_before;
        self.note(|spent| {
            spent.commit_processor += used;
            spent.commit += start.elapsed();
            spent.kernel += sent.kernel;
        });
        Ok(sent)
    }
}

fn timed(
    spent: &Arc<Mutex<Spent>>,
    call: impl FnOnce() -> Result<portico_dataplane::Report, ApplyError>,
) -> Result<Spent, AnyError> {
    *spent.lock().map_err(|_| "poisoned")? = Spent::default();
    let (processor_before, start) = (processor(), Instant::now());
    let report = call()?;
    let (total, used) = (start.elapsed(), processor() - processor_before);
    let spent = *spent.lock().map_err(|_| "poisoned")?;
    Ok(Spent {
        total,
        processor: used,
        operations: report.operations,
        bytes: report.bytes,
        ..spent
    })
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |percent: usize| {
        times
            .get(times.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    format!(
        "p50 {:>7.1} us p99 {:>7.1} us",
        at(50).as_secs_f64() * 1e6,
        at(99).as_secs_f64() * 1e6
    )
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Processor time of this thread.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default();
    Duration::from_nanos(nanoseconds)
}

/// Resident memory of this process, in KiB.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

fn table(services: u32, endpoints: u32) -> ForwardingTable {
    let rules = NodeRules {
        local_pods: PerFamily {
            v4: LocalPods::Sources(["10.0.0.0/8"].map(network).to_vec()),
            v6: LocalPods::Unknown,
        },
        masquerade_mark: 0x4000,
        edge: PerFamily {
            v4: std::env::var_os("EDGE").is_some(),
            v6: false,
        },
        ..NodeRules::default()
    };
    let ports = (0..services)
        .map(|n| (key(n), Arc::new(service_port(n, endpoints, 0))))
        .collect();
    ForwardingTable::new(rules, ports)
}

fn network(text: &str) -> ipnet::IpNet {
    text.parse().unwrap_or_default()
}

fn key(number: u32) -> PortKey {
    let service = ObjectKey::new("default", &format!("service-{number}"));
    PortKey {
        service,
        port: Arc::from("http"),
        protocol: Protocol::Tcp,
        family: Family::V4,
    }
}

/// A cluster IP and a node port.
fn service_port(number: u32, endpoints: u32, moved: u32) -> ServicePort {
    let frontend = Frontend {
        kind: FrontendKind::ClusterIp,
        address: Some(IpAddr::V4(Ipv4Addr::from_bits(0x6440_0000 + number))),
        port: 80,
        inside: Outcome::Cluster,
        outside: Outcome::Cluster,
        masquerade: Masquerade::UnlessPod,
        sources: None,
    };
    let node_port = Frontend {
        kind: FrontendKind::NodePort,
        address: None,
        port: 30_000 + number as u16,
        masquerade: Masquerade::Always,
        ..frontend.clone()
    };
    let endpoint = |index: u32| {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number * 32 + index));
        Endpoint {
            address,
            port: 8080,
            local: number.is_multiple_of(100) && index == 0,
        }
    };
    // With `moved` the first one is another.
    let cluster = (moved..endpoints + moved).map(endpoint).collect();
    let edge = edge(number, endpoints);
    let load_balancer = edge.iter().map(|edge| Frontend {
        kind: FrontendKind::LoadBalancerIp,
        address: edge.addresses.first().copied(),
        masquerade: Masquerade::Always,
        ..frontend.clone()
    });
    let mut frontends: Vec<Frontend> = load_balancer.collect();
    frontends.push(frontend);
    if number < 30_000 {
        frontends.push(node_port);
    }
    ServicePort {
        frontends,
        local: edge.iter().map(|_| endpoint(0)).collect(),
        cluster,
        edge,
        ..ServicePort::default()
    }
}

/// The endpoints are spread over the nodes, of which the first is this one.
fn edge(number: u32, endpoints: u32) -> Option<Arc<Edge>> {
    let nodes: u32 = std::env::var("EDGE").ok()?.parse().ok()?;
    let weight = |node: u32| endpoints / nodes + u32::from(node < endpoints % nodes);
    let weights: Vec<(Arc<str>, u32)> = (0..nodes.min(endpoints))
        .map(|node| (Arc::from(format!("node-{node:03}")), weight(node)))
        .collect();
    let way = |node: u32| match node {
        0 => Way::Here,
        node => Way::Neighbour(Ipv4Addr::from_bits(0xac1e_0000 + node).into()),
    };
    let slots = slots::assign(&weights)?;
    let node = |(node, (name, endpoints)): (u32, (Arc<str>, u32))| EdgeNode {
        name,
        endpoints,
        way: way(node),
    };
    Some(Arc::new(Edge {
        addresses: [Ipv4Addr::from_bits(0xcb00_0000 + number).into()].into(),
        by_address: false,
        nodes: (0..).zip(weights).map(node).collect(),
        slots,
    }))
}
