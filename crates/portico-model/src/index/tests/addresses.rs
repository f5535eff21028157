//! Which addresses a Service answers on, and for whom.

use super::harness::*;
use crate::index::Settings;
use crate::table::{Family, Frontend, FrontendKey, FrontendKind, Protocol};
use serde_json::{Value, json};

fn addresses(port: &crate::table::ServicePort) -> Vec<String> {
    let show = |f: &Frontend| {
        f.address.map_or(format!("*:{}", f.port), |address| {
            format!("{address} {}", f.port)
        })
    };
    port.frontends.iter().map(show).collect()
}

#[test]
fn external_and_load_balancer_addresses_by_family() {
    let spec = merged(
        dual_stack(),
        json!({"externalIPs": ["192.0.2.1", "fd00:2::1", "192.0.2.1"],
        "ports": [{"port": 80, "nodePort": 30000}]}),
    );
    let index = index(&[load_balancer(
        spec,
        json!([{"ip": "fd00:3::1"}, {"ip": "203.0.113.1"}]),
    )]);
    let of = |family| addresses(&web_of(&index, family));
    assert_eq!(
        of(Family::V4),
        ["10.96.0.1 80", "192.0.2.1 80", "203.0.113.1 80", "*:30000"]
    );
    assert_eq!(
        of(Family::V6),
        ["fd00:96::1 80", "fd00:2::1 80", "fd00:3::1 80", "*:30000"]
    );
}

#[test]
fn addresses_of_a_family_that_the_service_does_not_have_are_not_served() {
    let index = index(&[load_balancer(
        json!({"externalIPs": ["fd00:2::1"]}),
        json!([{"ip": "fd00:3::1"}]),
    )]);
    assert_eq!(addresses(&web(&index)), ["10.96.0.1 80"]);
    assert!(web_of(&index, Family::V6).frontends.is_empty());
}

#[test]
fn no_node_port_without_a_number() {
    let spec =
        json!({"allocateLoadBalancerNodePorts": false, "ports": [{"port": 80, "nodePort": 0}]});
    assert_eq!(
        kinds(&web(&index(&[load_balancer(spec, json!([]))]))),
        [FrontendKind::ClusterIp]
    );
}

/// KEP-1860: switching the gate off here is all that a rollback needs.
#[test]
fn without_the_feature_gate_all_addresses_of_load_balancers_are_ours() {
    let ingress =
        json!([{"ip": "203.0.113.2", "ipMode": "VIP"}, {"ip": "203.0.113.1", "ipMode": "Proxy"}]);
    let settings = Settings {
        load_balancer_ip_mode: false,
        ..settings()
    };
    let index = index_with(settings, &[load_balancer(json!({}), ingress)]).0;
    let all = ["10.96.0.1 80", "203.0.113.1 80", "203.0.113.2 80"];
    assert_eq!(addresses(&web(&index)), all);
    assert!(index.table().frontends.conflicts().is_empty());
}

#[test]
fn addresses_of_load_balancers_that_proxy_are_not_ours() {
    let ingress =
        json!([{"ip": "203.0.113.1", "ipMode": "Proxy"}, {"ip": "203.0.113.2", "ipMode": "VIP"}]);
    let index = index(&[load_balancer(json!({}), ingress)]);
    assert_eq!(addresses(&web(&index)), ["10.96.0.1 80", "203.0.113.2 80"]);
    let address = Some("203.0.113.1".parse().unwrap());
    let key = FrontendKey {
        family: Family::V4,
        address,
        port: 80,
        protocol: Protocol::Tcp,
    };
    assert!(index.table().find(&key).is_none());
    assert_eq!(
        index
            .table()
            .frontends
            .proxied(&key)
            .map(|key| &key.service),
        Some(&name("web"))
    );
}

fn ranges(sources: Value, node_address: Option<&str>) -> Option<Vec<String>> {
    let mut spec = dual_stack();
    spec["loadBalancerSourceRanges"] = sources;
    spec["externalIPs"] = json!(["192.0.2.1"]);
    let addresses: Vec<Value> = node_address
        .map(|a| json!({"type": "InternalIP", "address": a}))
        .into_iter()
        .collect();
    let node = json!({"metadata": {"name": "here"}, "status": {"addresses": addresses}});
    let index = index(&[
        node,
        load_balancer(
            spec,
            json!([{"ip": "203.0.113.1"}, {"ip": "203.0.113.3"}, {"ip": "fd00:3::1"}]),
        ),
    ]);
    let port = web(&index);
    for frontend in &port.frontends {
        assert!(
            frontend.kind == FrontendKind::LoadBalancerIp || frontend.sources.is_none(),
            "{:?}",
            frontend.kind
        );
    }
    let sources = frontend(&port, FrontendKind::LoadBalancerIp).sources;
    sources.map(|sources| sources.iter().map(ToString::to_string).collect())
}

#[test]
fn source_ranges() {
    let some = |list: &[&str]| Some(list.iter().map(ToString::to_string).collect::<Vec<_>>());
    for (rule, sources, node, wanted) in [
        ("none", json!([]), None, None),
        ("only of the other family", json!(["fd00::/8"]), None, None),
        (
            "of both families",
            json!(["fd00::/8", "198.51.100.0/24"]),
            None,
            some(&["198.51.100.0/24"]),
        ),
        (
            "everybody",
            json!(["198.51.100.0/24", "0.0.0.0/0"]),
            None,
            None,
        ),
        (
            "everybody of the other family",
            json!(["198.51.100.0/24", "::/0"]),
            None,
            some(&["198.51.100.0/24"]),
        ),
        (
            "with spaces and bits of the host",
            json!([" 198.51.100.7/24 "]),
            None,
            some(&["198.51.100.0/24"]),
        ),
        (
            "one in the other",
            json!(["198.51.0.0/16", "198.51.100.0/24"]),
            None,
            some(&["198.51.0.0/16"]),
        ),
        (
            "the node is in a range, so are the addresses themselves",
            json!(["172.30.0.0/24"]),
            Some("172.30.0.11"),
            some(&["172.30.0.0/24", "203.0.113.1/32", "203.0.113.3/32"]),
        ),
        (
            "the node is in none",
            json!(["198.51.100.0/24"]),
            Some("172.30.0.11"),
            some(&["198.51.100.0/24"]),
        ),
        (
            "a node without an address is at loopback",
            json!(["127.0.0.0/8"]),
            None,
            some(&["127.0.0.0/8", "203.0.113.1/32", "203.0.113.3/32"]),
        ),
    ] {
        assert_eq!(ranges(sources, node), wanted, "{rule}");
    }
}

#[test]
fn an_address_that_is_external_and_the_load_balancers_is_guarded() {
    let spec = json!({"externalIPs": ["203.0.113.1", "10.96.0.1"], "loadBalancerSourceRanges": ["198.51.100.0/24"]});
    let port = web(&index(&[load_balancer(
        spec,
        json!([{"ip": "203.0.113.1"}]),
    )]));
    assert_eq!(
        kinds(&port),
        [FrontendKind::ClusterIp, FrontendKind::LoadBalancerIp]
    );
    assert!(
        frontend(&port, FrontendKind::LoadBalancerIp)
            .sources
            .is_some()
    );
}
