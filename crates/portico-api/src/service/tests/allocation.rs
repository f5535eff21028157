//! Conflicts, ranges, exhaustion, dry runs.

use super::harness::{Server, causes, service};
use crate::gates::Gates;
use crate::kinds::{Claim, Kind};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn node_port(port: i32, wanted: i32) -> Value {
    json!({"type": "NodePort", "ports": [{"port": port, "nodePort": wanted}]})
}

fn small(ports: &str) -> Server {
    Server::new("10.0.0.0/29", ports, Gates::default())
}

#[test]
fn refused_requests_name_field_and_range_and_leave_nothing() {
    let mut server = Server::dual_stack();
    server.put("a", node_port(80, 30000)).unwrap();
    server
        .put(
            "b",
            json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}),
        )
        .unwrap();
    let before = server.pool.taken.clone();
    for (spec, cause, text) in [
        (
            node_port(80, 30000),
            "spec.ports[0].nodePort Invalid",
            "provided port is already allocated",
        ),
        (
            node_port(80, 29999),
            "spec.ports[0].nodePort Invalid",
            "The range of valid ports is 30000-32767",
        ),
        (
            node_port(80, 70000),
            "spec.ports[0].nodePort Invalid",
            "The range of valid ports is 30000-32767",
        ),
        (
            json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}),
            "spec.clusterIPs Invalid",
            "failed to allocate IP 10.96.0.9: provided IP is already allocated",
        ),
        (
            json!({"clusterIP": "10.96.255.255", "ports": [{"port": 80}]}),
            "spec.clusterIPs Invalid",
            "The range of valid IPs is 10.96.0.0/16",
        ),
        (
            // The second address conflicts: the first must not leak.
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"], "clusterIP": "fd00:10:96::7",
                "clusterIPs": ["fd00:10:96::7", "10.96.0.9"], "ports": [{"port": 80}]}),
            "spec.clusterIPs Invalid",
            "10.96.0.9: provided IP is already allocated",
        ),
        (
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000, "ports": [{"port": 80}]}),
            "spec.healthCheckNodePort Invalid",
            "provided port is already allocated",
        ),
        (
            json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30005}, {"name": "b", "port": 81, "nodePort": 30005}]}),
            "spec.ports[1].nodePort Invalid",
            "provided port is already allocated",
        ),
    ] {
        let error = server.put("c", spec.clone()).unwrap_err();
        assert!(error.message.contains(text), "{error}");
        assert_eq!(causes(Err(error)), [cause]);
        assert_eq!(server.pool.taken, before);
    }
}

#[test]
fn a_range_can_be_used_up_and_used_again() {
    let mut server = small("30000-30002");
    for name in ["a", "b", "c"] {
        server.put(name, node_port(80, 0)).unwrap();
    }
    let error = server.put("d", node_port(80, 0)).unwrap_err();
    assert!(
        error.message.contains("range 30000-30002 is full"),
        "{error}"
    );
    assert_eq!(causes(Err(error)), ["spec.ports[0].nodePort Invalid"]);
    for name in ["d", "e", "f"] {
        server.put(name, json!({"ports": [{"port": 80}]})).unwrap();
    }
    let error = server
        .put("g", json!({"ports": [{"port": 80}]}))
        .unwrap_err();
    assert!(
        error.message.contains("range 10.0.0.0/29 is full"),
        "{error}"
    );
    assert_eq!(causes(Err(error)), ["spec.clusterIPs Invalid"]);
    let freed = server.store["b"]["spec"].clone();
    server.delete("b");
    let again = server.put("g", node_port(80, 0)).unwrap();
    assert_eq!(again["spec"]["clusterIP"], freed["clusterIP"]);
    assert_eq!(again["spec"]["ports"], freed["ports"]);
}

#[test]
fn a_null_range_prevents_any_public_port() {
    let mut server = small("0-0");
    for spec in [
        node_port(80, 0),
        node_port(80, 30000),
        json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
    ] {
        let error = server.put("a", spec).unwrap_err();
        assert!(error.message.contains("--public_service_ports"), "{error}");
        assert_eq!(causes(Err(error)), ["spec.ports[0].nodePort Invalid"]);
    }
    let without = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]});
    server.put("a", without).unwrap();
    server.put("b", json!({"ports": [{"port": 80}]})).unwrap();
}

#[test]
fn disjoint_ranges_are_both_used() {
    let mut server = small("30000-30001,40000-40001");
    let ports = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}, {"name": "c", "port": 3}, {"name": "d", "port": 4}]);
    let service = server
        .put("a", json!({"type": "NodePort", "ports": ports}))
        .unwrap();
    let got: BTreeSet<i64> = service["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|port| port["nodePort"].as_i64())
        .collect();
    assert_eq!(got, BTreeSet::from([30000, 30001, 40000, 40001]));
    assert!(
        server
            .put("b", node_port(80, 35000))
            .unwrap_err()
            .message
            .contains("30000-30001,40000-40001")
    );
}

#[test]
fn a_dry_run_sees_node_port_conflicts_only_and_keeps_nothing() {
    let mut server = Server::dual_stack();
    server
        .put("a", json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 30000}]}))
        .unwrap();
    let before = server.pool.taken.clone();
    server
        .dry_run(
            "b",
            json!({"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}),
        )
        .unwrap();
    assert_eq!(
        causes(server.dry_run("b", node_port(80, 30000))),
        ["spec.ports[0].nodePort Invalid"]
    );
    let local =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let shown = server.dry_run("b", local).unwrap();
    assert!(
        shown["spec"]["healthCheckNodePort"].is_i64() && shown["spec"]["clusterIP"].is_string()
    );
    assert_eq!(server.pool.taken, before);
}

#[test]
fn node_ports_of_an_external_name_are_data_and_must_be_claimed_later() {
    let mut server = Server::dual_stack();
    let mut alias = node_port(80, 30000);
    alias["type"] = json!("ExternalName");
    alias["externalName"] = json!("e.example.com");
    server.put("a", alias).unwrap();
    assert!(server.pool.taken.is_empty());
    server.put("b", node_port(80, 30000)).unwrap();
    assert_eq!(
        causes(server.patch("a", json!({"type": "NodePort"}))),
        ["spec.ports[0].nodePort Invalid"]
    );
    server.delete("b");
    server.patch("a", json!({"type": "NodePort"})).unwrap();
    assert!(server.pool.taken.contains(&Claim::NodePort(30000)));
}

#[test]
fn ports_of_one_number_share_a_node_port_on_create() {
    let mut server = Server::dual_stack();
    let dns = |udp: i32, tcp: i32| {
        json!({"type": "NodePort", "ports": [
            {"name": "u", "port": 53, "protocol": "UDP", "nodePort": udp}, {"name": "t", "port": 53, "nodePort": tcp}]})
    };
    for (name, udp, tcp, want) in [
        ("a", 0, 0, None),
        ("b", 30001, 0, Some(30001)),
        ("c", 0, 30002, Some(30002)),
        ("d", 30003, 30003, Some(30003)),
    ] {
        let service = server.put(name, dns(udp, tcp)).unwrap();
        let ports = &service["spec"]["ports"];
        assert_eq!(ports[0]["nodePort"], ports[1]["nodePort"], "{name}");
        assert!(
            want.is_none_or(|want| ports[0]["nodePort"] == want),
            "{name}"
        );
        assert_eq!(
            server.kind().owned(&service).len(),
            2,
            "{name}: one address, one port"
        );
    }
    // Another Service cannot have the number for its own protocol.
    let sctp =
        json!({"type": "NodePort", "ports": [{"port": 53, "protocol": "SCTP", "nodePort": 30003}]});
    assert_eq!(
        causes(server.put("e", sctp)),
        ["spec.ports[0].nodePort Invalid"]
    );
}

#[test]
fn an_object_that_cannot_be_read_is_refused_and_not_a_panic() {
    let mut server = Server::dual_stack();
    for spec in [
        json!([]),
        json!({"ports": [{"port": "x"}]}),
        json!({"ports": {}}),
        json!({"clusterIPs": [1]}),
        json!(7),
    ] {
        assert!(server.replace(service("a", spec)).is_err());
    }
    assert!(server.replace(json!("x")).is_err());
}

#[test]
fn a_dry_run_does_not_look_whether_a_node_port_is_one() {
    let mut server = Server::dual_stack();
    for port in [1, 29999, 65536, 70000, -1] {
        assert_eq!(
            server.dry_run("a", node_port(80, port)).unwrap()["spec"]["ports"][0]["nodePort"],
            port
        );
        assert_eq!(
            causes(server.put("a", node_port(80, port))),
            ["spec.ports[0].nodePort Invalid"],
            "{port}"
        );
    }
}
