//! Which addresses a Service answers on, and for whom.

use super::harness::*;
use crate::explain::{Origin, Packet, Verdict, explain};
use crate::index::{Index, Settings};
use crate::table::{Family, Frontend, FrontendKey, FrontendKind, Protocol};
use serde_json::{Value, json};
use std::net::IpAddr;

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

/// A load balancer with the cluster IP, external IP and load balancer IP, and a node port.
fn hostile(cluster_ip: &str, external: &str, balanced: &str) -> Value {
    let spec = json!({"clusterIP": cluster_ip, "clusterIPs": [cluster_ip], "externalIPs": [external],
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}]});
    load_balancer(spec, json!([{"ip": balanced}]))
}

#[test]
fn addresses_that_no_service_may_have_are_not_served_and_the_problem_is_told() {
    for (object, left, reasons) in [
        (
            hostile("127.0.0.1", "0.0.0.0", "224.0.0.18"),
            vec!["*:30000"],
            ["a loopback", "the unspecified", "a multicast"],
        ),
        (
            hostile("224.0.0.1", "127.255.255.254", "255.255.255.255"),
            vec!["*:30000"],
            ["a loopback", "a multicast", "the broadcast"],
        ),
        (
            hostile("::ffff:127.0.0.1", "192.0.2.1", "::ffff:127.0.0.9"),
            vec!["192.0.2.1 80", "*:30000"],
            ["a loopback", "a loopback", ""],
        ),
    ] {
        let (index, update) = index_with(settings(), &[object]);
        assert_eq!(addresses(&web(&index)), left);
        let problems: Vec<String> = update.problems.iter().map(ToString::to_string).collect();
        for reason in reasons {
            assert!(
                problems.iter().any(|problem| problem.contains(reason)),
                "{reason}: {problems:?}"
            );
        }
        assert_eq!(problems.len(), index.table().frontends.refusals().count());
    }
}

#[test]
fn a_loopback_address_is_not_announced() {
    let mut index = Index::new(settings()).with_announcing();
    apply(&mut index, &hostile("10.96.0.1", "192.0.2.1", "127.0.0.1"));
    assert!(index.take().announceables.is_empty());
}

#[test]
fn an_address_that_is_refused_is_free_again_with_its_service() {
    let mut index = index(&[hostile("127.0.0.1", "0.0.0.0", "203.0.113.1")]);
    assert_eq!(index.table().frontends.refusals().count(), 2);
    apply(
        &mut index,
        &hostile("10.96.0.1", "192.0.2.1", "203.0.113.1"),
    );
    assert!(index.take().problems.is_empty());
    assert_eq!(index.table().frontends.refusals().count(), 0);
    assert_eq!(
        addresses(&web(&index)),
        ["10.96.0.1 80", "192.0.2.1 80", "203.0.113.1 80", "*:30000"]
    );
}

/// External addresses may be the node's: that is how clusters without load balancers are reached,
/// and what kube-proxy does.
#[test]
fn the_address_of_the_node_is_no_cluster_ip_from_when_it_is_known_to_be_its() {
    let node = |address: &str| {
        json!({"kind": "Node", "metadata": {"name": "here"},
               "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
    };
    let mut index = index(&[hostile("172.30.0.11", "172.30.0.12", "203.0.113.1")]);
    let all = [
        "172.30.0.11 80",
        "172.30.0.12 80",
        "203.0.113.1 80",
        "*:30000",
    ];
    assert_eq!(addresses(&web(&index)), all);
    apply(&mut index, &node("172.30.0.11"));
    let update = index.take();
    let problems: Vec<String> = update.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("an address of this node itself"));
    assert_eq!(addresses(&web(&index)), &all[1..]);
    apply(&mut index, &node("172.30.0.12"));
    index.take();
    assert_eq!(addresses(&web(&index)), all);
}

#[test]
fn service_cidrs_with_addresses_of_the_node_drop_nothing() {
    for bad in [
        "127.0.0.0/16",
        "0.0.0.0/0",
        "127.0.0.1/32",
        "::/0",
        "::1/128",
    ] {
        let mut index = Index::new(settings());
        let object =
            json!({"metadata": {"name": "hostile"}, "spec": {"cidrs": [bad, "10.96.0.0/16"]}});
        index.apply_service_cidr(&serde_json::from_value(object).unwrap());
        let update = index.take();
        assert_eq!(
            index.table().rules.service_cidrs,
            ["10.96.0.0/16".parse::<ipnet::IpNet>().unwrap()],
            "{bad}"
        );
        assert_eq!(update.problems.len(), 1, "{bad}");
    }
}

#[test]
fn explain_says_why_an_address_is_not_served() {
    let index = index(&[hostile("127.0.0.1", "192.0.2.1", "203.0.113.1")]);
    let loopback: IpAddr = "127.0.0.1".parse().unwrap();
    let packet = Packet {
        origin: Origin::Node,
        source: loopback,
        source_port: None,
        destination: loopback,
        port: 80,
        protocol: Protocol::Tcp,
        local: [loopback].into(),
    };
    let Verdict::NotOurs { why } = explain(index.table(), &packet).verdict else {
        panic!("it is served");
    };
    assert_eq!(
        why,
        "127.0.0.1:80/tcp is not served for default/web: it is a loopback address, which no \
         Service may have; give the Service another address"
    );
}
