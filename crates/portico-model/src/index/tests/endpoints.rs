//! Which endpoints a port has, and which of them this node uses.

use super::harness::*;
use crate::table::{Family, Outcome, Protocol};
use serde_json::{Value, json};

fn cluster_of(endpoints: Value) -> Vec<String> {
    shown(&web(&index(&[service(json!({})), slice("a", endpoints)])).cluster)
}

fn with_conditions(conditions: Value) -> Value {
    json!([{"addresses": ["10.244.0.1"], "nodeName": "here", "conditions": conditions}])
}

#[test]
fn conditions() {
    for (rule, conditions, used) in [
        ("no conditions mean ready", json!({}), true),
        (
            "ready wins over not serving and terminating",
            json!({"ready": true, "serving": false, "terminating": true}),
            true,
        ),
        ("not ready", json!({"ready": false}), false),
        (
            "serving but not ready",
            json!({"ready": false, "serving": true}),
            false,
        ),
        (
            "terminating but serving, and nobody is ready",
            json!({"ready": false, "serving": true, "terminating": true}),
            true,
        ),
        (
            "missing serving means serving",
            json!({"ready": false, "terminating": true}),
            true,
        ),
        (
            "terminating and not serving",
            json!({"ready": false, "serving": false, "terminating": true}),
            false,
        ),
    ] {
        assert_eq!(
            !cluster_of(with_conditions(conditions)).is_empty(),
            used,
            "{rule}"
        );
    }
}

#[test]
fn a_terminating_endpoint_is_used_only_if_nobody_is_ready_and_lingers_otherwise() {
    let index = index(&[
        service(json!({})),
        slice(
            "a",
            json!([ending(here("10.244.0.1")), there("10.244.1.1")]),
        ),
    ]);
    let port = web(&index);
    assert_eq!(shown(&port.cluster), ["10.244.1.1:8080"]);
    assert_eq!(shown(&port.lingering), ["10.244.0.1:8080*"]);
}

#[test]
fn an_endpoint_without_a_node_is_local_nowhere() {
    assert_eq!(
        cluster_of(json!([{"addresses": ["10.244.0.1"]}])),
        ["10.244.0.1:8080"]
    );
    assert_eq!(
        cluster_of(json!([here("10.244.0.1")])),
        ["10.244.0.1:8080*"]
    );
}

#[test]
fn only_the_first_address_of_an_endpoint_counts() {
    assert_eq!(
        cluster_of(json!([{"addresses": ["10.244.0.1", "10.244.0.2"]}])),
        ["10.244.0.1:8080"]
    );
}

#[test]
fn an_endpoint_in_two_slices_counts_once_and_the_one_that_is_not_ending_wins() {
    for (a, b) in [
        (
            json!([ending(here("10.244.0.1"))]),
            json!([here("10.244.0.1")]),
        ),
        (
            json!([here("10.244.0.1")]),
            json!([ending(here("10.244.0.1"))]),
        ),
    ] {
        let index = index(&[
            service(json!({})),
            slice("a", a),
            slice("b", b),
            slice("c", json!([there("10.244.1.1")])),
        ]);
        let port = web(&index);
        assert_eq!(
            shown(&port.cluster),
            ["10.244.0.1:8080*", "10.244.1.1:8080"]
        );
        assert!(port.lingering.is_empty());
    }
}

#[test]
fn ports_are_matched_by_name_and_protocol_in_each_slice() {
    let mut a = slice("a", json!([here("10.244.0.1")]));
    a["ports"] = json!([{"name": "web", "port": 8080, "protocol": "TCP"}, {"name": "other", "port": 1, "protocol": "TCP"}]);
    let mut b = slice("b", json!([there("10.244.1.1")]));
    b["ports"] = json!([{"name": "web", "port": 9090, "protocol": "TCP"}, {"name": "web", "port": 2, "protocol": "UDP"}]);
    let index = index(&[
        service(json!({"ports": [{"name": "web", "port": 80, "protocol": "TCP"}]})),
        a,
        b,
    ]);
    let port = index
        .table()
        .ports
        .get(&key("web", Protocol::Tcp, Family::V4))
        .unwrap();
    assert_eq!(
        shown(&port.cluster),
        ["10.244.0.1:8080*", "10.244.1.1:9090"]
    );
}

#[test]
fn slices_that_do_not_count() {
    let endpoints = || json!([here("10.244.0.1")]);
    let service_label = |mut slice: Value, value: &str| {
        slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": value});
        slice
    };
    for (rule, object, counts) in [
        ("an ordinary one", slice("a", endpoints()), true),
        (
            "another proxy's name counts on Services only",
            labelled(
                slice("a", endpoints()),
                "service.kubernetes.io/service-proxy-name",
                "x",
            ),
            true,
        ),
        (
            "headless",
            labelled(
                slice("a", endpoints()),
                "service.kubernetes.io/headless",
                "",
            ),
            false,
        ),
        (
            "of another Service",
            service_label(slice("a", endpoints()), "other"),
            false,
        ),
        (
            "of no Service",
            service_label(slice("a", endpoints()), ""),
            false,
        ),
        (
            "of names",
            merged(
                slice("a", json!([here("host.example.com")])),
                json!({"addressType": "FQDN"}),
            ),
            false,
        ),
        (
            "without ports",
            merged(slice("a", endpoints()), json!({"ports": null})),
            false,
        ),
        (
            "without endpoints",
            merged(slice("a", endpoints()), json!({"endpoints": null})),
            false,
        ),
    ] {
        let port = web(&index(&[service(json!({})), object]));
        assert_eq!(!port.cluster.is_empty(), counts, "{rule}");
    }
}

#[test]
fn a_slice_that_moves_to_another_service_leaves_the_first() {
    let mut index = index(&[service(json!({})), slice("a", json!([here("10.244.0.1")]))]);
    apply(
        &mut index,
        &labelled(
            slice("a", json!([here("10.244.0.1")])),
            "kubernetes.io/service-name",
            "other",
        ),
    );
    index.take();
    assert_eq!(
        frontend(&web(&index), crate::table::FrontendKind::ClusterIp).inside,
        Outcome::Reject
    );
    index.delete_slice("default", "a");
    index.take();
    assert!(index.slice_names().is_empty());
}

fn hinted(endpoint: Value, zones: &[&str], nodes: &[&str]) -> Value {
    let named = |names: &[&str]| {
        names
            .iter()
            .map(|name| json!({"name": name}))
            .collect::<Vec<_>>()
    };
    merged(
        endpoint,
        json!({"hints": {"forZones": named(zones), "forNodes": named(nodes)}}),
    )
}

fn node_in(zone: Option<&str>) -> Value {
    let labels = zone.map_or(
        json!({}),
        |zone| json!({"topology.kubernetes.io/zone": zone}),
    );
    json!({"metadata": {"name": "here", "labels": labels}})
}

#[test]
fn topology_hints() {
    let (a, b) = ("10.244.0.1", "10.244.1.1");
    let all = vec!["10.244.0.1:8080*", "10.244.1.1:8080"];
    for (rule, zone, endpoints, wanted) in [
        (
            "the node's own zone",
            Some("z1"),
            vec![
                hinted(here(a), &["z1"], &[]),
                hinted(there(b), &["z2"], &[]),
            ],
            vec![all[0]],
        ),
        (
            "not the endpoint's zone counts but its hint",
            Some("z1"),
            vec![
                hinted(merged(here(a), json!({"zone": "z1"})), &["z2"], &[]),
                hinted(there(b), &["z1", "z3"], &[]),
            ],
            vec![all[1]],
        ),
        (
            "a node without a zone",
            None,
            vec![
                hinted(here(a), &["z1"], &[]),
                hinted(there(b), &["z2"], &[]),
            ],
            all.clone(),
        ),
        (
            "nobody for this zone",
            Some("z9"),
            vec![
                hinted(here(a), &["z1"], &[]),
                hinted(there(b), &["z2"], &[]),
            ],
            all.clone(),
        ),
        (
            "one endpoint without hints",
            Some("z1"),
            vec![hinted(here(a), &["z1"], &[]), there(b)],
            all.clone(),
        ),
        (
            "an unready endpoint without hints does not matter",
            Some("z1"),
            vec![
                hinted(here(a), &["z1"], &[]),
                hinted(there(b), &["z2"], &[]),
                merged(
                    there("10.244.2.1"),
                    json!({"conditions": {"ready": false, "serving": false}}),
                ),
            ],
            vec![all[0]],
        ),
        (
            "the node before the zone",
            Some("z1"),
            vec![
                hinted(here(a), &["z1"], &["there"]),
                hinted(there(b), &["z2"], &["here", "third"]),
            ],
            vec![all[1]],
        ),
        (
            "hints for other nodes fall back to the zone",
            Some("z1"),
            vec![
                hinted(here(a), &["z1"], &["x"]),
                hinted(there(b), &["z2"], &["y"]),
            ],
            vec![all[0]],
        ),
        (
            "one without a hint for a node falls back to the zone",
            Some("z1"),
            vec![
                hinted(here(a), &["z1"], &[]),
                hinted(there(b), &["z2"], &["here"]),
            ],
            vec![all[0]],
        ),
    ] {
        let objects = [
            node_in(zone),
            service(json!({})),
            slice("a", json!(endpoints)),
        ];
        assert_eq!(shown(&web(&index(&objects)).cluster), wanted, "{rule}");
    }
}

#[test]
fn hints_are_ignored_for_terminating_fallback_and_for_local_policy() {
    let endpoints = json!([
        ending(hinted(here("10.244.0.1"), &["z1"], &[])),
        ending(hinted(there("10.244.1.1"), &["z2"], &[]))
    ]);
    let index_ = index(&[
        node_in(Some("z2")),
        service(json!({})),
        slice("a", endpoints),
    ]);
    assert_eq!(web(&index_).cluster.len(), 2);
    let endpoints = json!([
        hinted(here("10.244.0.1"), &["z1"], &[]),
        hinted(there("10.244.1.1"), &["z2"], &[])
    ]);
    let node_port = json!({"type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "nodePort": 30000}]});
    let port = web(&index(&[
        node_in(Some("z2")),
        service(node_port),
        slice("a", endpoints),
    ]));
    assert_eq!(
        (shown(&port.local), shown(&port.cluster)),
        (
            vec!["10.244.0.1:8080*".into()],
            vec!["10.244.1.1:8080".into()]
        )
    );
}

#[test]
fn a_new_zone_of_the_node_rebuilds_what_depends_on_it() {
    let endpoints = json!([
        hinted(here("10.244.0.1"), &["z1"], &[]),
        hinted(there("10.244.1.1"), &["z2"], &[])
    ]);
    let mut index = index(&[
        node_in(Some("z1")),
        service(json!({})),
        slice("a", endpoints),
    ]);
    assert_eq!(shown(&web(&index).lingering), ["10.244.1.1:8080"]);
    apply(&mut index, &node_in(Some("z2")));
    assert_eq!(index.take().changes.len(), 1);
    assert_eq!(shown(&web(&index).cluster), ["10.244.1.1:8080"]);
}
