//! A fleet of two nodes and a Service, for tests.

use crate::Fleet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portico_model::report;
use serde_json::{Value, json};

pub(crate) const NOW: &str = "2026-01-01T00:00:02Z";
pub(crate) const THEN: &str = "2026-01-01T00:00:00.000000Z";

pub(crate) fn fleet() -> Fleet {
    let endpoints =
        json!([{"addresses": ["10.0.0.5"], "conditions": {"ready": true}, "nodeName": "n1"}]);
    let leases = [
        report("n1", 100, THEN, json!([])),
        report("n2", 120, THEN, json!([])),
        lease("portico-controller", "host_1", THEN),
        lease("kube-scheduler", "other", THEN),
    ];
    let (mut fleet, now) = (Fleet::default(), NOW.parse().unwrap());
    for lease in leases {
        fleet.apply(lease.into(), now);
    }
    for name in ["n1", "n2"] {
        fleet.apply(node(name, json!({})).into(), now);
    }
    fleet.apply(slice("web", endpoints).into(), now);
    fleet.apply(service("ClusterIP", json!([])).into(), now);
    fleet
}

pub(crate) fn service(type_: &str, conditions: Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "100"},
        "spec": {"type": type_, "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
            "selector": {"app": "web"},
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"},
                {"port": 53, "protocol": "UDP"}]},
        "status": {"conditions": conditions}}))
    .unwrap()
}

pub(crate) fn slice(of: &str, endpoints: Value) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {"name": format!("{of}-1"), "namespace": "shop",
            "labels": {"kubernetes.io/service-name": of},
            "annotations": {"portico.dev/health-failing": "10.0.0.5: connection refused"}},
        "addressType": "IPv4", "ports": [{"port": 8080, "name": "http"}], "endpoints": endpoints}))
    .unwrap()
}

pub(crate) fn node(name: &str, spec: Value) -> Node {
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": "172.30.0.11"},
            {"type": "Hostname", "address": name}],
        "conditions": [{"type": "Ready", "status": "True"}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": status}))
        .unwrap()
}

pub(crate) fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
    serde_json::from_value(json!({"metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}))
    .unwrap()
}

pub(crate) fn report(node: &str, services: u64, renewed: &str, behind: Value) -> Lease {
    let mut lease = lease(&report::lease_name(node), node, renewed);
    let report = json!({"services": services.to_string(), "slices": "1", "mode": "nftables",
        "behind": behind});
    lease.metadata.annotations = Some([(report::ANNOTATION.to_owned(), report.to_string())].into());
    lease
}
