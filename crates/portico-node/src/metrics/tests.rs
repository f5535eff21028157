use super::*;
use portico_model::table::{Endpoint, Masquerade, PortKey, Protocol, ServicePort};
use std::sync::Arc;

fn port(kind: FrontendKind, outside: Outcome) -> Arc<ServicePort> {
    let frontend = Frontend {
        kind,
        address: None,
        port: 80,
        inside: outside,
        outside,
        masquerade: Masquerade::Never,
        sources: None,
    };
    Arc::new(ServicePort {
        frontends: vec![frontend],
        cluster: Arc::<[Endpoint]>::default(),
        ..ServicePort::default()
    })
}

fn change(before: Option<Arc<ServicePort>>, after: Option<Arc<ServicePort>>) -> Change {
    let service = ObjectKey::new("default", "a");
    let key = PortKey {
        service,
        port: "".into(),
        protocol: Protocol::Tcp,
        family: IpFamily::V4,
    };
    Change { key, before, after }
}

#[test]
fn ports_without_local_endpoints_are_counted() {
    let metrics = Metrics::new("nftables");
    let dropping = port(FrontendKind::NodePort, Outcome::Drop);
    let serving = port(FrontendKind::NodePort, Outcome::Local);
    let line = |count: u32| {
        format!(
            "kubeproxy_sync_proxy_rules_no_local_endpoints_total{{traffic_policy=\"external\",ip_family=\"IPv4\"}} \
             {count}\n"
        )
    };
    metrics.changed(&[change(None, Some(Arc::clone(&dropping)))]);
    assert!(metrics.text().contains(&line(1)));
    metrics.changed(&[change(Some(dropping), Some(serving))]);
    assert!(metrics.text().contains(&line(0)));
}

#[test]
fn names_are_those_of_kube_proxy() {
    let metrics = Metrics::new("nftables");
    metrics.failed(&[IpFamily::V6]);
    metrics.flows_ended(
        &IpFamily::BOTH,
        PerFamily { v4: 3, v6: 0 },
        Duration::from_millis(1),
    );
    metrics.queued(IpFamily::V4);
    let text = metrics.text();
    for name in [
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv6\"} 1",
        "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 0",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"internal\",ip_family=\"IPv6\"} \
         0",
        "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv4\"} 3",
        "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family=\"IPv6\"} 0",
        "kubeproxy_conntrack_reconciler_sync_duration_seconds_count{ip_family=\"IPv4\"} 1",
        "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family=\"IPv4\"}",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
        "process_cpu_seconds_total",
        "portico_drift_repairs_total 0",
    ] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
}

#[test]
fn only_the_slowest_are_named() {
    let metrics = Metrics::new("nftables");
    for number in 0..100 {
        let service = ObjectKey::new("n", &format!("s{number}"));
        metrics.programmed(&service, Duration::from_millis(number), Instant::now());
    }
    let text = metrics.text();
    let named: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("portico_service_programming_slowest"))
        .collect();
    assert_eq!(named.len(), 10);
    assert!(
        named[0].contains("s99") && named[9].contains("s90"),
        "{named:?}"
    );
}
