//! A fleet of two nodes and a Service for tests, and what is shown of it.

use super::*;
use serde_json::{Value, json};

pub const NOW: &str = "2026-01-01T00:00:02Z";
const THEN: &str = "2026-01-01T00:00:00.000000Z";

pub fn fleet() -> Fleet {
    Fleet {
        services: vec![service("ClusterIP", json!([]))],
        slices: vec![slice(
            "web",
            json!([{"addresses": ["10.0.0.5"], "conditions": {"ready": true}, "nodeName": "n1"}]),
        )],
        nodes: vec![node("n1", json!({})), node("n2", json!({}))],
        leases: vec![
            report("n1", 100, THEN, json!([])),
            report("n2", 120, THEN, json!([])),
            lease("portico-controller", "host_1", THEN),
            lease("kube-scheduler", "other", THEN),
        ],
    }
}

pub fn service(type_: &str, conditions: Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "100"},
        "spec": {"type": type_, "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "selector": {"app": "web"},
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]},
        "status": {"conditions": conditions}}))
    .unwrap()
}

pub fn slice(of: &str, endpoints: Value) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {"name": format!("{of}-1"), "namespace": "shop", "labels": {"kubernetes.io/service-name": of},
            "annotations": {"portico.dev/health-failing": "10.0.0.5: connection refused"}},
        "addressType": "IPv4", "ports": [{"port": 8080, "name": "http"}], "endpoints": endpoints}))
    .unwrap()
}

pub fn node(name: &str, spec: Value) -> Node {
    let status = json!({"addresses": [{"type": "InternalIP", "address": "172.30.0.11"}, {"type": "Hostname", "address": name}],
        "conditions": [{"type": "Ready", "status": "True"}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec, "status": status}))
        .unwrap()
}

pub fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
    serde_json::from_value(json!({"metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}}))
    .unwrap()
}

pub fn report(node: &str, services: u64, renewed: &str, behind: Value) -> Lease {
    let mut lease = lease(&report::lease_name(node), node, renewed);
    let report = json!({"services": services.to_string(), "slices": "1", "mode": "nftables", "behind": behind});
    lease.metadata.annotations = Some([(report::ANNOTATION.to_owned(), report.to_string())].into());
    lease
}

#[test]
fn a_service_and_where_it_is_live() {
    let mut fleet = fleet();
    let view = &fleet.services(NOW.parse().unwrap())[0];
    assert_eq!(view.ports, ["80:30080/tcp", "53/udp"]);
    assert_eq!(
        (view.endpoints.ready, view.endpoints.total, view.live()),
        (1, 1, "2 of 2".to_owned())
    );
    assert_eq!(
        (view.state().as_str(), view.addresses.as_slice()),
        ("", &["10.96.0.1".to_owned()][..])
    );
    fleet.leases.truncate(0);
    assert_eq!(
        fleet.services(NOW.parse().unwrap())[0].live,
        None,
        "nobody reports"
    );
}

#[test]
fn only_controllers_of_portico_lead() {
    let leaders = fleet().leaders(NOW.parse().unwrap());
    assert_eq!(leaders.len(), 1);
    assert!(leaders[0].leads && leaders[0].renewed_seconds_ago == 2);
    let later: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
    assert_eq!(
        fleet().leaders(later)[0].to_string(),
        "portico-controller: nobody since 30s"
    );
}

#[test]
fn an_endpoint_tells_why_it_is_not_ready() {
    let endpoints = json!([{"addresses": ["10.0.0.5"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.6"]}]);
    let views = EndpointView::of(&slice("web", endpoints));
    assert_eq!(
        (views[0].state(), views[0].trouble.as_str()),
        ("not ready", "connection refused")
    );
    assert_eq!(
        (views[1].state(), views[1].address.as_str()),
        ("ready", "10.0.0.6:8080")
    );
}

#[test]
fn ages_are_short() {
    for (seconds, text) in [
        (-3, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7200, "2h"),
        (200_000, "2d"),
    ] {
        assert_eq!(age(seconds), text);
    }
}
