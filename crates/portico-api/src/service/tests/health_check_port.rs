//! KEP-4144, sentence by sentence.

use super::harness::{Server, causes};
use crate::gates::Gates;
use serde_json::{Value, json};

const OFF: Gates = Gates {
    service_lb_health_check_node_port_control: false,
    load_balancer_ip_mode: true,
};

fn local(more: Value) -> Value {
    let mut spec =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    spec
}

fn port(object: &Value) -> Option<i64> {
    object["spec"]["healthCheckNodePort"].as_i64()
}

fn switch(object: &Value) -> Option<bool> {
    object["spec"]["allocateLoadBalancerHCNodePort"].as_bool()
}

#[test]
fn defaults_to_true_preserving_existing_behavior() {
    let mut server = Server::dual_stack();
    let service = server.put("a", local(json!({}))).unwrap();
    assert_eq!(
        (switch(&service), port(&service).is_some()),
        (Some(true), true)
    );
    // Where there is no health-check port to speak of, nothing is shown.
    for spec in [
        json!({"type": "LoadBalancer"}),
        json!({"type": "NodePort", "externalTrafficPolicy": "Local"}),
        json!({}),
    ] {
        let mut spec = spec;
        spec["ports"] = json!([{"port": 80}]);
        let service = server.put("b", spec).unwrap();
        assert_eq!((switch(&service), port(&service)), (None, None));
    }
}

#[test]
fn on_create_if_false_do_not_allocate() {
    let mut server = Server::dual_stack();
    let service = server
        .put("a", local(json!({"allocateLoadBalancerHCNodePort": false})))
        .unwrap();
    assert_eq!((switch(&service), port(&service)), (Some(false), None));
    assert!(
        service["spec"]["ports"][0]["nodePort"].is_i64(),
        "node ports are another matter"
    );
    let service = server
        .put("b", local(json!({"allocateLoadBalancerHCNodePort": true})))
        .unwrap();
    assert!(port(&service).is_some());
}

#[test]
fn on_create_a_port_that_is_asked_for_is_respected_even_if_false() {
    let mut server = Server::dual_stack();
    let spec =
        local(json!({"allocateLoadBalancerHCNodePort": false, "healthCheckNodePort": 30005}));
    assert_eq!(port(&server.put("a", spec.clone()).unwrap()), Some(30005));
    assert_eq!(
        causes(server.put("b", spec)),
        ["spec.healthCheckNodePort Invalid"]
    );
}

#[test]
fn on_update_if_false_do_not_deallocate_existing() {
    let mut server = Server::dual_stack();
    let before = server.put("a", local(json!({}))).unwrap();
    let after = server
        .patch("a", json!({"allocateLoadBalancerHCNodePort": false}))
        .unwrap();
    assert_eq!((switch(&after), port(&after)), (Some(false), port(&before)));
    let after = server.patch("a", json!({"selector": {"x": "y"}})).unwrap();
    assert_eq!(port(&after), port(&before));
}

#[test]
fn on_update_removing_the_field_deallocates_and_does_not_re_allocate_if_false() {
    let mut server = Server::dual_stack();
    let before = server
        .put("a", local(json!({"healthCheckNodePort": 30005})))
        .unwrap();
    assert_eq!(port(&before), Some(30005));
    let after = server
        .patch(
            "a",
            json!({"allocateLoadBalancerHCNodePort": false, "healthCheckNodePort": null}),
        )
        .unwrap();
    assert_eq!(port(&after), None);
    // It is free for others, and does not come back by itself.
    server
        .put(
            "b",
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30005}]}),
        )
        .unwrap();
    assert_eq!(
        port(&server.patch("a", json!({"selector": {"x": "y"}})).unwrap()),
        None
    );
}

#[test]
fn on_update_removing_the_field_keeps_the_port_if_true() {
    let mut server = Server::dual_stack();
    let before = server.put("a", local(json!({}))).unwrap();
    assert_eq!(
        port(
            &server
                .patch("a", json!({"healthCheckNodePort": null}))
                .unwrap()
        ),
        port(&before)
    );
}

#[test]
fn disabled_ports_can_safely_be_re_enabled() {
    let mut server = Server::dual_stack();
    server
        .put("a", local(json!({"allocateLoadBalancerHCNodePort": false})))
        .unwrap();
    let after = server
        .patch("a", json!({"allocateLoadBalancerHCNodePort": true}))
        .unwrap();
    assert!(port(&after).is_some());
    // Leaving the switch out of a whole object is the default again.
    server
        .put("b", local(json!({"allocateLoadBalancerHCNodePort": false})))
        .unwrap();
    let after = server.put("b", local(json!({}))).unwrap();
    assert_eq!((switch(&after), port(&after).is_some()), (Some(true), true));
    // A chosen port is possible on the way back, a change of it is not.
    server
        .put("c", local(json!({"allocateLoadBalancerHCNodePort": false})))
        .unwrap();
    assert_eq!(
        port(
            &server
                .patch("c", json!({"healthCheckNodePort": 30007}))
                .unwrap()
        ),
        Some(30007)
    );
    assert_eq!(
        causes(server.patch("c", json!({"healthCheckNodePort": 30008}))),
        ["spec.healthCheckNodePort Forbidden"]
    );
}

#[test]
fn on_delete_ports_are_deallocated_regardless() {
    let mut server = Server::dual_stack();
    for (name, switch) in [("a", true), ("b", false)] {
        server
            .put(name, local(json!({"healthCheckNodePort": 30005})))
            .unwrap();
        server
            .patch(name, json!({"allocateLoadBalancerHCNodePort": switch}))
            .unwrap();
        server.delete(name);
    }
    assert!(server.pool.taken.is_empty());
}

#[test]
fn with_the_gate_off_new_services_cannot_use_the_field() {
    let mut server = Server::dual_stack();
    server.with_gates(OFF);
    let service = server
        .put("a", local(json!({"allocateLoadBalancerHCNodePort": false})))
        .unwrap();
    assert_eq!((switch(&service), port(&service).is_some()), (None, true));
    let service = server
        .patch("a", json!({"allocateLoadBalancerHCNodePort": false}))
        .unwrap();
    assert_eq!((switch(&service), port(&service).is_some()), (None, true));
}

#[test]
fn with_the_gate_off_existing_services_keep_it_and_may_be_updated() {
    let mut server = Server::dual_stack();
    server
        .put("a", local(json!({"allocateLoadBalancerHCNodePort": false})))
        .unwrap();
    server.with_gates(OFF);
    let service = server.patch("a", json!({"selector": {"x": "y"}})).unwrap();
    assert_eq!((switch(&service), port(&service)), (Some(false), None));
    let service = server
        .patch("a", json!({"allocateLoadBalancerHCNodePort": true}))
        .unwrap();
    assert_eq!(
        (switch(&service), port(&service).is_some()),
        (Some(true), true)
    );
    // Re-enabled, the value is what it was.
    server.with_gates(Gates::default());
    assert_eq!(
        switch(&server.patch("a", json!({"selector": null})).unwrap()),
        Some(true)
    );
}

#[test]
fn the_field_belongs_to_load_balancers() {
    let mut server = Server::dual_stack();
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}], "allocateLoadBalancerHCNodePort": false});
    assert_eq!(
        causes(server.put("a", spec)),
        ["spec.allocateLoadBalancerHCNodePort Forbidden"]
    );
    for value in [true, false] {
        server
            .put("b", local(json!({"allocateLoadBalancerHCNodePort": value})))
            .unwrap();
        // It goes with the type, and the default goes with local traffic.
        let service = server
            .patch("b", json!({"externalTrafficPolicy": "Cluster"}))
            .unwrap();
        assert_eq!(
            (switch(&service), port(&service)),
            ((!value).then_some(false), None)
        );
        server
            .patch("b", json!({"externalTrafficPolicy": "Local"}))
            .unwrap();
        assert_eq!(
            switch(&server.patch("b", json!({"type": "NodePort"})).unwrap()),
            None
        );
        server.delete("b");
    }
}
