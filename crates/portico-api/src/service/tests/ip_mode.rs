//! KEP-1860.

use super::harness::{Server, causes};
use crate::gates::Gates;
use serde_json::{Value, json};

const OFF: Gates = Gates {
    service_lb_health_check_node_port_control: true,
    load_balancer_ip_mode: false,
};

fn server(gates: Gates) -> Server {
    let mut server = Server::dual_stack();
    server.with_gates(gates);
    server
        .put(
            "a",
            json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
        )
        .unwrap();
    server
}

fn ingress(object: &Value) -> &Value {
    &object["status"]["loadBalancer"]["ingress"]
}

#[test]
fn defaults_to_vip_if_the_gate_is_enabled_nil_otherwise() {
    let points = json!([{"ip": "192.0.2.1"}, {"hostname": "lb.example.com"}]);
    let answer = server(Gates::default())
        .report("a", points.clone())
        .unwrap();
    assert_eq!(
        ingress(&answer),
        &json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "lb.example.com"}])
    );
    assert_eq!(
        ingress(&server(OFF).report("a", points.clone()).unwrap()),
        &points
    );
}

#[test]
fn it_fails_if_ip_mode_is_set_without_the_ip_field() {
    for (point, cause) in [
        (
            json!({"hostname": "a.example.com", "ipMode": "VIP"}),
            "ipMode Forbidden",
        ),
        (
            json!({"ip": "192.0.2.1", "ipMode": "Tunnel"}),
            "ipMode NotSupported",
        ),
        (json!({"ip": "192.0.2.300"}), "ip Invalid"),
        (json!({"hostname": "192.0.2.1"}), "hostname Invalid"),
        (json!({"hostname": "192.000.2.1"}), "hostname Invalid"),
    ] {
        let found = causes(server(Gates::default()).report("a", json!([point])));
        assert_eq!(found, [format!("status.loadBalancer.ingress[0].{cause}")]);
    }
}

#[test]
fn once_enabled_stored_services_get_it_when_they_are_read() {
    let mut server = server(OFF);
    server.report("a", json!([{"ip": "192.0.2.1"}])).unwrap();
    server.with_gates(Gates::default());
    assert_eq!(
        ingress(&server.get("a")),
        &json!([{"ip": "192.0.2.1", "ipMode": "VIP"}])
    );
    // A whole update of such an object is good, too.
    let object = server.get("a");
    assert_eq!(
        ingress(&server.put_status(false, object).unwrap()),
        &json!([{"ip": "192.0.2.1", "ipMode": "VIP"}])
    );
}

#[test]
fn disabled_it_cannot_come_into_use_but_stays_where_it_is() {
    let proxy = json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}]);
    let mut unused = server(OFF);
    assert_eq!(
        ingress(&unused.report("a", proxy.clone()).unwrap()),
        &json!([{"ip": "192.0.2.1"}])
    );
    let mut used = server(Gates::default());
    used.report("a", proxy.clone()).unwrap();
    used.with_gates(OFF);
    assert_eq!(ingress(&used.get("a")), &proxy);
    assert_eq!(ingress(&used.report("a", proxy.clone()).unwrap()), &proxy);
    used.with_gates(Gates::default());
    assert_eq!(ingress(&used.get("a")), &proxy);
}

#[test]
fn only_load_balancers_have_ingress_points() {
    let mut server = server(Gates::default());
    server.report("a", json!([{"ip": "192.0.2.1"}])).unwrap();
    let after = server.patch("a", json!({"type": "NodePort"})).unwrap();
    assert_eq!(after["status"], json!({"loadBalancer": {}}));
    assert_eq!(
        causes(server.report("a", json!([{"ip": "192.0.2.1"}]))),
        ["status.loadBalancer.ingress Forbidden"]
    );
}
