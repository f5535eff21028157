//! How long the iptables and the IPVS dataplane take, in a network namespace of its own:
//! `iptables_scale nft|legacy|ipvs SERVICES ENDPOINTS`, the last inside user-mode-linux if need be
//! (`make uml CMD='target/debug/examples/iptables_scale ipvs 1000 10'`).

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use portico_dataplane::iptables::{Iptables, Options, Variant};
use portico_dataplane::ipvs::{self, Ipvs};
use portico_dataplane::{ApplyError, Dataplane, Report};
use portico_model::key::ObjectKey;
use portico_model::table::{
    Change, Endpoint, Family, ForwardingTable, Frontend, FrontendKind, LocalPods, Masquerade,
    NodePortAddresses, Outcome, PortKey, Protocol, ServicePort,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[expect(
    unsafe_code,
    reason = "there is no safe way into a new network namespace"
)]
fn enter_new_namespace() -> std::io::Result<()> {
    // SAFETY: it concerns the calling thread only and takes no pointers.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn key(number: u32) -> PortKey {
    let service = ObjectKey::new("bench", &format!("service-{number}"));
    PortKey {
        service,
        port: "http".into(),
        protocol: Protocol::Tcp,
        family: Family::V4,
    }
}

/// Every tenth has a node port too.
fn port(number: u32, endpoints: u32, generation: u32) -> Arc<ServicePort> {
    let frontend = |kind, address: Option<IpAddr>, port, masquerade| {
        let (inside, outside) = (Outcome::Cluster, Outcome::Cluster);
        Frontend {
            kind,
            address,
            port,
            inside,
            outside,
            masquerade,
            sources: None,
        }
    };
    let address = IpAddr::from((0x0a60_0000 + number + 1).to_be_bytes());
    let mut frontends = vec![frontend(
        FrontendKind::ClusterIp,
        Some(address),
        80,
        Masquerade::UnlessPod,
    )];
    if number.is_multiple_of(10) {
        frontends.push(frontend(
            FrontendKind::NodePort,
            None,
            30000 + (number / 10 % 2000) as u16,
            Masquerade::Always,
        ));
    }
    let address =
        |index: u32| IpAddr::from((0x0b00_0000 + number * 256 + index + generation).to_be_bytes());
    let cluster = (0..endpoints)
        .map(|index| Endpoint {
            address: address(index),
            port: 8080,
            local: false,
        })
        .collect();
    Arc::new(ServicePort {
        frontends,
        cluster,
        ..ServicePort::default()
    })
}

struct Bench {
    dataplane: Box<dyn Dataplane>,
    table: ForwardingTable,
    endpoints: u32,
}

impl Bench {
    fn replace(&mut self, what: &str) -> Result<(), ApplyError> {
        let watch = Watch::start();
        watch.show(what, &self.dataplane.replace(&self.table)?);
        Ok(())
    }

    fn change(
        &mut self,
        what: &str,
        numbers: std::ops::Range<u32>,
        generation: Option<u32>,
    ) -> Result<(), ApplyError> {
        let mut changes = Vec::new();
        for number in numbers {
            let (key, after) = (
                key(number),
                generation.map(|generation| port(number, self.endpoints, generation)),
            );
            let before = match &after {
                Some(port) => self.table.ports.insert(key.clone(), port.clone()),
                None => self.table.ports.remove(&key),
            };
            changes.push(Change { key, before, after });
        }
        let watch = Watch::start();
        watch.show(what, &self.dataplane.apply(&self.table.rules, &changes)?);
        Ok(())
    }
}

/// Processor time of this process and of the programs it started, to 10 ms.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after_name
        .split(' ')
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Prints what a step took.
struct Watch {
    start: Instant,
    processor: Duration,
}

impl Watch {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            processor: processor_time(),
        }
    }

    fn show(self, what: &str, report: &Report) {
        let elapsed = self.start.elapsed();
        println!(
            "{what:24} {:8.1} ms ({:8.2} in programs or the kernel), {:6} ms of processor; {} \
             lines or operations, {} KiB",
            elapsed.as_secs_f64() * 1e3,
            report.kernel.as_secs_f64() * 1e3,
            (processor_time() - self.processor).as_millis(),
            report.operations,
            report.bytes / 1024
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, variant, services, endpoints] = arguments.as_slice() else {
        return Err("usage: iptables_scale nft|legacy|ipvs SERVICES ENDPOINTS".into());
    };
    let (services, endpoints): (u32, u32) = (services.parse()?, endpoints.parse()?);
    enter_new_namespace()?;
    std::process::Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()?;
    let mut table = ForwardingTable::default();
    table.rules.masquerade_mark = 0x4000;
    table.rules.local_pods.v4 = LocalPods::Sources(vec!["10.244.0.0/16".parse()?]);
    table.rules.node_ports.v4 = NodePortAddresses::AllLocal { loopback: true };
    table.rules.service_cidrs = vec!["10.96.0.0/12".parse()?];
    table.ports = (0..services)
        .map(|number| (key(number), port(number, endpoints, 0)))
        .collect();
    let dataplane: Box<dyn Dataplane> = match variant.as_str() {
        "ipvs" => Box::new(Ipvs::open(&ipvs::Options::default())?),
        variant => {
            let variant = if variant == "legacy" {
                Variant::Legacy
            } else {
                Variant::Nft
            };
            Box::new(Iptables::new(Options {
                variant: Some(variant),
                liberal: false,
            })?)
        }
    };
    let mut bench = Bench {
        dataplane,
        table,
        endpoints,
    };
    bench.replace("cold start")?;
    bench.replace("nothing to repair")?;
    for _ in 0..3 {
        bench.change("a Service more", services..services + 1, Some(0))?;
        bench.change("an endpoint moved", services..services + 1, Some(1))?;
        bench.change("a Service less", services..services + 1, None)?;
    }
    let many = services..services + services / 10;
    bench.change("a tenth more", many.clone(), Some(0))?;
    bench.change("their endpoints moved", many.clone(), Some(1))?;
    bench.change("a tenth less", many, None)?;
    bench.replace("nothing to repair")?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .filter(|line| line.starts_with("VmHWM") || line.starts_with("VmRSS"))
        .for_each(|line| println!("{line}"));
    let watch = Watch::start();
    bench.dataplane.remove()?;
    watch.show("everything removed", &Report::default());
    Ok(())
}
