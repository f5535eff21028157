//! Time and memory of the index: `cargo run --release -p portico-model --example footprint`.
//!
//! Prints, for clusters of two sizes: how long the first table takes, what index and table hold
//! together, and what one moved endpoint and one new Service cost.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures, and prints what it measured"
)]

use portico_model::index::{DetectLocal, Index, NodePortSetting, Settings};
use portico_model::objects::{
    Conditions, EndpointSlice, Metadata, Port, Service, SliceEndpoint, SlicePort,
};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// Each size in a process of its own, so that one's memory is not counted for the other.
fn main() {
    let mut sizes = std::env::args()
        .skip(1)
        .filter_map(|size| size.parse().ok());
    if let (Some(services), Some(endpoints)) = (sizes.next(), sizes.next()) {
        return measure(services, endpoints);
    }
    for size in [["10000", "10"], ["10000", "25"]] {
        let run =
            std::env::current_exe().and_then(|program| Command::new(program).args(size).status());
        assert!(run.is_ok_and(|status| status.success()), "{size:?}");
    }
}

fn measure(services: u32, endpoints: u32) {
    let before = resident_kib();
    let mut index = Index::new(settings());
    let start = Instant::now();
    for n in 0..services {
        index.apply_service(&service(n));
        index.apply_slice(&slice(n, false, endpoints));
    }
    let applied = start.elapsed();
    let changes = index.take().changes.len();
    let built = start.elapsed() - applied;
    let held = resident_kib().saturating_sub(before);
    println!("{services} Services x {endpoints} endpoints: {changes} service ports");
    println!(
        "  objects in {applied:.1?}, table {built:.1?}, resident {:.1} MiB",
        f64::from(held) / 1024.0
    );

    let moved = each_of_1000(|n| {
        index.apply_slice(&slice(n * 7 % services, true, endpoints));
        assert_eq!(index.take().changes.len(), 1);
    });
    let created = each_of_1000(|n| {
        index.apply_service(&service(services + n));
        assert_eq!(index.take().changes.len(), 1);
    });
    println!("  an endpoint moved {moved:.1?}, a new Service {created:.1?}");
}

fn each_of_1000(change: impl FnMut(u32)) -> Duration {
    let start = Instant::now();
    (0..1000).for_each(change);
    start.elapsed() / 1000
}

fn settings() -> Settings {
    Settings {
        load_balancer_ip_mode: true,
        node_name: "node-1".into(),
        own_address: None,
        detect_local: DetectLocal::NodeCidr,
        node_ports: NodePortSetting::Primary,
        masquerade_all: false,
        masquerade_mark: 0x4000,
        external_ips: true,
    }
}

fn metadata(name: String) -> Metadata {
    let creation_timestamp = Some("2026-01-01T00:00:00Z".to_string());
    Metadata {
        name,
        namespace: "bench".into(),
        creation_timestamp,
        ..Metadata::default()
    }
}

fn service(n: u32) -> Service {
    let mut service = Service {
        metadata: metadata(format!("service-{n}")),
        ..Service::default()
    };
    let address = format!("10.96.{}.{}", n / 250, n % 250 + 1);
    service.spec.type_ = "ClusterIP".into();
    service.spec.cluster_ip = address.clone();
    service.spec.cluster_ips = vec![address];
    service.spec.ip_families = vec!["IPv4".into()];
    service.spec.ports = vec![Port {
        name: "http".into(),
        protocol: "TCP".into(),
        port: 80,
        node_port: 0,
    }];
    service
}

/// The first endpoint may have moved elsewhere.
fn slice(n: u32, moved: bool, endpoints: u32) -> EndpointSlice {
    let mut metadata = metadata(format!("service-{n}-x7k2p"));
    metadata.labels = BTreeMap::from([(
        "kubernetes.io/service-name".to_string(),
        format!("service-{n}"),
    )]);
    let address = |e: u32| {
        let number = n * endpoints + e;
        let network = if moved && e == 0 { 11 } else { 10 };
        format!(
            "{network}.{}.{}.{}",
            128 + number / 65536,
            number / 256 % 256,
            number % 256
        )
    };
    let endpoint = |e: u32| SliceEndpoint {
        addresses: vec![address(e)],
        conditions: Conditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        },
        node_name: Some(format!("node-{}", e % 100)),
        zone: Some("zone-a".into()),
        hints: None,
    };
    EndpointSlice {
        metadata,
        address_type: "IPv4".into(),
        ports: Some(vec![SlicePort {
            name: Some("http".into()),
            protocol: Some("TCP".into()),
            port: Some(8080),
        }]),
        endpoints: Some((0..endpoints).map(endpoint).collect()),
    }
}

/// What the kernel counts; it is measured as it grows, so allocations that were given back do not
/// count.
fn resident_kib() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default()
}
