//! What there is to announce of Services.

use super::harness::*;
use crate::announce::Announceable;
use crate::index::Index;
use crate::table::{Family, PerFamily};
use serde_json::{Value, json};

fn local(ingress: Value) -> Value {
    load_balancer(
        json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}),
        ingress,
    )
}

fn of_web(index: &Index) -> Announceable {
    index
        .announceables()
        .get(&name("web"))
        .map(|found| Announceable::clone(found))
        .unwrap_or_default()
}

fn nodes(index: &Index) -> Vec<String> {
    of_web(index)
        .nodes
        .get(Family::V4)
        .iter()
        .map(|node| node.to_string())
        .collect()
}

#[test]
fn addresses_that_packets_arrive_with_are_announced() {
    let ingress = json!([{"ip": "192.0.2.9"}, {"ip": "192.0.2.1", "ipMode": "VIP"}, {"ip": "192.0.2.5", "ipMode": "Proxy"}]);
    let index = announcing(&[
        load_balancer(json!({}), ingress),
        slice("a", json!([there("10.244.1.1")])),
    ]);
    let expected = Announceable {
        addresses: ["192.0.2.1", "192.0.2.9"]
            .iter()
            .map(|ip| ip.parse().unwrap())
            .collect(),
        local: false,
        served: PerFamily {
            v4: true,
            v6: false,
        },
        nodes: PerFamily::default(),
    };
    assert_eq!(of_web(&index), expected);
}

#[test]
fn without_an_address_of_a_load_balancer_there_is_nothing() {
    let proxied = load_balancer(json!({}), json!([{"ip": "192.0.2.5", "ipMode": "Proxy"}]));
    for object in [
        service(json!({"externalIPs": ["192.0.2.1"]})),
        proxied,
        load_balancer(json!({}), json!([])),
    ] {
        assert!(announcing(&[object]).announceables().is_empty());
    }
}

#[test]
fn who_does_not_announce_does_not_remember_where_endpoints_are() {
    let objects = [
        local(json!([{"ip": "192.0.2.1"}])),
        slice("a", json!([here("10.244.0.1")])),
    ];
    let (index, update) = index_with(settings(), &objects);
    assert!(index.announceables().is_empty() && update.announceables.is_empty());
}

#[test]
fn local_names_the_nodes_with_ready_endpoints() {
    let unready = merged(
        there("10.244.1.2"),
        json!({"conditions": {"ready": false}, "nodeName": "third"}),
    );
    let mut index = announcing(&[
        local(json!([{"ip": "192.0.2.1"}])),
        slice(
            "a",
            json!([
                there("10.244.1.1"),
                here("10.244.0.1"),
                here("10.244.0.2"),
                unready
            ]),
        ),
        slice("b", json!([here("10.244.0.3")])),
    ]);
    assert_eq!(nodes(&index), ["here", "there"]);
    // A terminating endpoint counts only where none is ready.
    apply(
        &mut index,
        &slice(
            "a",
            json!([ending(there("10.244.1.1")), here("10.244.0.1")]),
        ),
    );
    index.take();
    assert_eq!(nodes(&index), ["here"]);
    index.delete_slice("default", "b");
    apply(
        &mut index,
        &slice("a", json!([ending(there("10.244.1.1"))])),
    );
    assert_eq!(index.take().announceables.len(), 1);
    assert_eq!(nodes(&index), ["there"]);
    assert!(of_web(&index).served.v4);
    index.delete_slice("default", "a");
    index.take();
    assert_eq!((nodes(&index), of_web(&index).served.v4), (vec![], false));
}

#[test]
fn endpoints_that_come_and_go_are_no_news_where_they_do_not_matter() {
    let mut index = announcing(&[
        load_balancer(json!({}), json!([{"ip": "192.0.2.1"}])),
        slice("a", json!([here("10.244.0.1")])),
    ]);
    apply(&mut index, &slice("b", json!([there("10.244.1.1")])));
    assert_eq!(index.take().announceables, []);
    index.delete_service("default", "web");
    assert_eq!(index.take().announceables, [(name("web"), None)]);
}

#[test]
fn each_family_has_its_own_endpoints() {
    let six = merged(
        slice("six", json!([there("fd00:10::1")])),
        json!({"addressType": "IPv6"}),
    );
    let mut spec = dual_stack();
    spec["externalTrafficPolicy"] = json!("Local");
    let ingress = json!([{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]);
    let index = announcing(&[
        load_balancer(spec, ingress),
        slice("a", json!([here("10.244.0.1")])),
        six,
    ]);
    let found = of_web(&index);
    assert_eq!(found.served, PerFamily { v4: true, v6: true });
    assert_eq!(
        (&*found.nodes.v4, &*found.nodes.v6),
        (&["here".into()][..], &["there".into()][..])
    );
}
