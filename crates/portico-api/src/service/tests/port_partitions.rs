//! Node ports are unique in the port partition of their Service.

use super::harness::{Server, causes, in_partition, service};
use crate::gates::Gates;
use crate::kinds::Claim;
use serde_json::{Value, json};

fn public(name: &str, node_port: i32, partition: Option<&str>) -> Value {
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": node_port}]});
    in_partition(service(name, spec), partition)
}

fn port(object: &Value) -> i64 {
    object["spec"]["ports"][0]["nodePort"].as_i64().unwrap()
}

#[test]
fn the_same_port_is_one_services_in_each_partition() {
    let mut server = Server::dual_stack();
    for (name, partition) in [("a", None), ("b", Some("left")), ("c", Some("right"))] {
        server.replace(public(name, 30000, partition)).unwrap();
    }
    for (partition, words) in [
        (None, "provided port is already allocated"),
        (
            Some("left"),
            "provided port is already allocated in port partition \"left\"",
        ),
    ] {
        let error = server.replace(public("d", 30000, partition)).unwrap_err();
        assert!(error.message.ends_with(words), "{error}");
    }
    assert!(server.pool.taken.contains(&Claim::NodePort(30000)));
    let left = Claim::PartitionPort("left".into(), 30000);
    assert!(server.pool.taken.contains(&left));
    server.delete("b");
    assert!(!server.pool.taken.contains(&left));
    server
        .replace(public("d", 30000, Some("left")))
        .expect("it was given back");
}

#[test]
fn each_partition_has_the_whole_range() {
    let mut server = Server::new("10.96.0.0/16", "30000-30003", Gates::default());
    for partition in [None, Some("left"), Some("right")] {
        let name = |index| format!("{}-{index}", partition.unwrap_or("all"));
        let mut ports: Vec<i64> = (0..4)
            .map(|index| port(&server.replace(public(&name(index), 0, partition)).unwrap()))
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, [30000, 30001, 30002, 30003]);
        let error = server
            .replace(public("one-more", 0, partition))
            .unwrap_err();
        assert!(
            error.message.contains("range 30000-30003 is full"),
            "{error}"
        );
    }
}

#[test]
fn a_service_moves_with_its_ports_if_they_are_free_there() {
    let mut server = Server::dual_stack();
    server.replace(public("a", 30000, None)).unwrap();
    server.replace(public("b", 30000, Some("left"))).unwrap();
    assert_eq!(port(&server.move_to("a", Some("right")).unwrap()), 30000);
    assert!(!server.pool.taken.contains(&Claim::NodePort(30000)));
    assert_eq!(
        causes(server.move_to("a", Some("left"))),
        ["spec.ports[0].nodePort Invalid"]
    );
    // Who does not ask for the number gets another one.
    let moved = server.replace(public("a", 0, Some("left"))).unwrap();
    assert_ne!(port(&moved), 30000);
    // An empty name is none.
    let back = server.move_to("a", Some("")).unwrap();
    assert_eq!(port(&back), port(&moved));
    let shared = Claim::NodePort(u16::try_from(port(&back)).unwrap());
    assert!(server.pool.taken.contains(&shared));
}

#[test]
fn the_health_check_port_is_in_the_partition_and_moves_as_well() {
    let mut server = Server::dual_stack();
    let local = |partition| {
        let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
        in_partition(service("a", spec), partition)
    };
    let check = |object: &Value| object["spec"]["healthCheckNodePort"].as_u64().unwrap();
    let created = server.replace(local(Some("left"))).unwrap();
    let number = u16::try_from(check(&created)).unwrap();
    assert!(
        server
            .pool
            .taken
            .contains(&Claim::PartitionPort("left".into(), number))
    );
    let moved = server.replace(local(Some("right"))).unwrap();
    let number = u16::try_from(check(&moved)).unwrap();
    assert!(
        server
            .pool
            .taken
            .contains(&Claim::PartitionPort("right".into(), number))
    );
    // In one partition it stays, as everywhere.
    let again = server.replace(local(Some("right"))).unwrap();
    assert_eq!(check(&again), check(&moved));
}

#[test]
fn a_partition_has_the_name_of_an_object() {
    let mut server = Server::dual_stack();
    for bad in ["../x", "a/b", "Left", "a b", &"a".repeat(254)] {
        let found = causes(server.replace(public("a", 0, Some(bad))));
        let field = "metadata.annotations[portico.dev/port-partition] Invalid";
        assert!(found.iter().all(|cause| cause == field), "{bad}: {found:?}");
    }
}

#[test]
fn without_node_ports_nothing_is_claimed_in_it() {
    let mut server = Server::dual_stack();
    let inside = service("a", json!({"ports": [{"port": 80}]}));
    server.replace(in_partition(inside, Some("left"))).unwrap();
    assert!(
        !server
            .pool
            .taken
            .iter()
            .any(|claim| matches!(claim, Claim::PartitionPort(..) | Claim::NodePort(_)))
    );
}

#[test]
fn addresses_of_node_ports_are_networks_and_ranges() {
    let mut server = Server::dual_stack();
    let on = |text: &str| {
        let mut object = public("a", 0, None);
        object["metadata"]["annotations"] = json!({"portico.dev/node-port-addresses": text});
        object
    };
    for good in ["192.0.2.0/24", "192.0.2.0/24, 2001:db8::1-2001:db8::9", " "] {
        server.replace(on(good)).unwrap();
    }
    let field = "metadata.annotations[portico.dev/node-port-addresses] Invalid";
    for (bad, count) in [
        ("192.0.2.1", 1),
        ("x,192.0.2.0/24,y", 2),
        ("192.0.2.0/24,", 1),
    ] {
        assert_eq!(causes(server.replace(on(bad))), vec![field; count], "{bad}");
    }
    // What another server let in does not stand in the way of other changes.
    let mut old = server.get("a");
    old["metadata"]["annotations"] = json!({"portico.dev/node-port-addresses": "all"});
    server.store.insert("a".to_owned(), old);
    server
        .patch("a", json!({"sessionAffinity": "ClientIP"}))
        .unwrap();
}
