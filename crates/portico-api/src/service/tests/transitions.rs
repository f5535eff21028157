//! What a Service keeps and loses when it is changed.

use super::harness::{Server, causes};
use crate::gates::Gates;
use serde_json::{Value, json};

const DUAL: &str = "RequireDualStack";

fn plain() -> Value {
    json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})
}

#[test]
fn what_was_assigned_is_kept() {
    let mut server = Server::dual_stack();
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 443}]});
    let before = server.put("a", local.clone()).unwrap();
    assert_eq!(server.put("a", local).unwrap(), before);
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert_eq!(
            server.patch("a", json!({field: null})).unwrap(),
            before,
            "{field}"
        );
    }
    assert_eq!(
        server
            .patch("a", json!({"clusterIP": null, "clusterIPs": null}))
            .unwrap(),
        before
    );
    // Node ports are known by the name of the port.
    let after = server
        .patch(
            "a",
            json!({"ports": [{"name": "b", "port": 81}, {"name": "c", "port": 80}]}),
        )
        .unwrap();
    let port = |object: &Value, index: usize| object["spec"]["ports"][index]["nodePort"].clone();
    assert_eq!(port(&after, 0), port(&before, 1));
    assert_ne!(port(&after, 1), port(&before, 0));
}

#[test]
fn an_address_may_not_change() {
    let mut server = Server::dual_stack();
    server
        .put(
            "a",
            json!({"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}),
        )
        .unwrap();
    assert_eq!(
        causes(server.patch("a", json!({"clusterIP": "10.96.0.8"}))),
        ["spec.clusterIPs[0] Invalid"]
    );
    assert_eq!(
        causes(server.patch("a", json!({"clusterIP": "None"}))),
        ["spec.clusterIPs[0] Invalid"]
    );
    assert_eq!(
        causes(server.patch("a", json!({"clusterIPs": ["10.96.0.8"]}))),
        ["spec.clusterIPs Invalid"],
        "the two forms disagree"
    );
}

#[test]
fn a_second_family_comes_and_goes() {
    let mut server = Server::dual_stack();
    let single = server.put("a", plain()).unwrap();
    let dual = server.patch("a", json!({"ipFamilyPolicy": DUAL})).unwrap();
    assert_eq!(dual["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(dual["spec"]["clusterIPs"].as_array().unwrap().len(), 2);
    assert_eq!(dual["spec"]["clusterIP"], single["spec"]["clusterIP"]);
    let fewer = json!({"clusterIPs": [single["spec"]["clusterIP"]]});
    assert_eq!(
        causes(server.patch("a", fewer)),
        ["spec.ipFamilyPolicy Invalid"]
    );
    assert_eq!(
        server
            .patch("a", json!({"ipFamilyPolicy": "SingleStack"}))
            .unwrap(),
        single
    );
}

#[test]
fn a_dual_stack_service_taken_through_external_name_is_single_stack() {
    let mut server = Server::dual_stack();
    let mut spec = plain();
    spec["ipFamilyPolicy"] = json!(DUAL);
    server.put("a", spec).unwrap();
    let alias = server
        .patch(
            "a",
            json!({"type": "ExternalName", "externalName": "e.example.com"}),
        )
        .unwrap();
    for gone in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert!(alias["spec"].get(gone).is_none(), "{gone}");
    }
    assert!(server.pool.taken.is_empty());
    let back = server.patch("a", json!({"type": "ClusterIP"})).unwrap();
    assert_eq!(back["spec"]["ipFamilies"], json!(["IPv4"]));
}

#[test]
fn a_cluster_without_the_family_says_so() {
    let mut server = Server::new("10.96.0.0/16", "30000-32767", Gates::default());
    for (more, cause) in [
        (
            json!({"ipFamilyPolicy": DUAL}),
            "spec.ipFamilyPolicy Invalid",
        ),
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0] Invalid",
        ),
        (
            json!({"clusterIP": "fd00::1"}),
            "spec.clusterIPs[0] Invalid",
        ),
    ] {
        let mut spec = plain();
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        assert_eq!(causes(server.put("a", spec)), [cause]);
    }
    let prefer = json!({"ipFamilyPolicy": "PreferDualStack", "selector": {"a": "b"}, "ports": [{"port": 80}]});
    assert_eq!(
        server.put("a", prefer).unwrap()["spec"]["ipFamilies"],
        json!(["IPv4"])
    );
    // Without a selector the endpoints can be of either family, whatever the cluster has.
    let headless = server.put("b", json!({"clusterIP": "None"})).unwrap();
    assert_eq!(headless["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    // The cluster becoming dual-stack changes nothing by itself.
    server.configure("10.96.0.0/16,fd00::/112", "30000-32767", Gates::default());
    let after = server.patch("a", json!({"selector": {"c": "d"}})).unwrap();
    assert_eq!(after["spec"]["ipFamilies"], json!(["IPv4"]));
    assert_eq!(
        server.patch("a", json!({"ipFamilyPolicy": DUAL})).unwrap()["spec"]["ipFamilies"],
        json!(["IPv4", "IPv6"])
    );
}

#[test]
fn leaving_a_type_drops_what_belongs_to_it_unless_it_was_changed() {
    let mut server = Server::dual_stack();
    let balancer =
        json!({"type": "LoadBalancer", "loadBalancerClass": "x.y/z", "ports": [{"port": 80}]});
    server.put("a", balancer.clone()).unwrap();
    let after = server.patch("a", json!({"type": "ClusterIP"})).unwrap();
    for gone in [
        "loadBalancerClass",
        "allocateLoadBalancerNodePorts",
        "externalTrafficPolicy",
    ] {
        assert!(after["spec"].get(gone).is_none(), "{gone}");
    }
    assert!(after["spec"]["ports"][0].get("nodePort").is_none());
    server.put("b", balancer).unwrap();
    for (change, cause) in [
        (
            json!({"type": "ClusterIP", "loadBalancerClass": "other"}),
            "spec.loadBalancerClass Forbidden",
        ),
        (
            json!({"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30001}]}),
            "spec.ports[0].nodePort Forbidden",
        ),
        (
            json!({"type": "ClusterIP", "externalTrafficPolicy": "Local"}),
            "spec.externalTrafficPolicy Invalid",
        ),
        (
            json!({"loadBalancerClass": null}),
            "spec.loadBalancerClass Invalid",
        ),
    ] {
        assert_eq!(causes(server.patch("b", change)), [cause]);
    }
}

#[test]
fn two_ports_cannot_have_one_node_port_for_one_protocol() {
    let mut server = Server::dual_stack();
    server
        .put(
            "a",
            json!({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30001}]}),
        )
        .unwrap();
    let two = |protocol: &str| {
        json!({"ports": [{"name": "a", "port": 80, "protocol": "TCP", "nodePort": 30001},
            {"name": "b", "port": 81, "protocol": protocol, "nodePort": 30001}]})
    };
    assert_eq!(
        causes(server.patch("a", two("TCP"))),
        ["spec.ports[1].nodePort Duplicate"]
    );
    server.patch("a", two("UDP")).unwrap();
}

#[test]
fn becoming_headless_with_two_families_is_refused_with_the_second_address_in_place() {
    let headless =
        json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilyPolicy": "PreferDualStack"});
    for (families, want) in [
        (
            json!(["IPv4"]),
            vec!["spec.clusterIPs[0] Invalid", "spec.clusterIPs Invalid"],
        ),
        (
            json!(["IPv6"]),
            vec!["spec.clusterIPs[0] Invalid", "spec.clusterIPs Invalid"],
        ),
    ] {
        let mut server = Server::dual_stack();
        let mut spec = plain();
        spec["ipFamilies"] = families;
        server.put("a", spec).unwrap();
        let before = server.pool.taken.clone();
        assert_eq!(causes(server.patch("a", headless.clone())), want);
        assert_eq!(server.pool.taken, before);
    }
}

#[test]
fn a_word_that_need_not_be_given_is_unsupported_when_empty() {
    for (field, cause) in [
        (
            json!({"internalTrafficPolicy": ""}),
            "spec.internalTrafficPolicy NotSupported",
        ),
        (
            json!({"trafficDistribution": ""}),
            "spec.trafficDistribution NotSupported",
        ),
        (
            json!({"ipFamilyPolicy": ""}),
            "spec.ipFamilyPolicy NotSupported",
        ),
        (
            json!({"ipFamilies": [""]}),
            "spec.ipFamilies[0] NotSupported",
        ),
        (
            json!({"sessionAffinity": "x"}),
            "spec.sessionAffinity NotSupported",
        ),
    ] {
        let mut spec = plain();
        spec.as_object_mut()
            .unwrap()
            .extend(field.as_object().unwrap().clone());
        assert_eq!(causes(Server::dual_stack().put("a", spec)), [cause]);
    }
}
