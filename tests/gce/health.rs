//! A node whose daemon is gone or stuck gets no traffic any more, by its health check and not by
//! its Node object.

use crate::resources::Instance;
use crate::rig::{NODES, slices};
use crate::world::{Age, World, if_so};
use portico_fakecloud::gce::Kind;
use portico_testbed::{Flow, Protocol};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

const OLD: [&str; 3] = ["pod1-1", "pod2-1", "pod3-1"];
const NEW: [&str; 3] = ["pod1-2", "pod2-2", "pod3-2"];

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

/// It was taken for unhealthy after as many bad answers as the health check says.
fn assert_threshold(world: &World, address: IpAddr, node: Instance) {
    let check = world.resource(Kind::HttpHealthCheck, "!").1;
    let changes = world.balancer.health((address, node)).unwrap().changes;
    let threshold = u32::try_from(check["unhealthyThreshold"].as_u64().unwrap()).unwrap();
    assert_eq!((threshold, changes.last()), (3, Some(&(false, 3))));
}

/// The first pod of each of these nodes is gone.
fn lose_first_pods(world: &World, nodes: &[&str]) {
    nodes
        .iter()
        .for_each(|node| world.rig.host(node).link_down("veth1").unwrap());
}

#[test]
fn a_node_without_its_daemon_gets_no_traffic() {
    let mut world = World::start(Age::New);
    let address = world.serve("web", json!({}), &OLD);
    world.wait_for_health(address, &[1, 2, 3], true);
    world.wait_for_ways(address, &[1, 2, 3], &OLD);
    assert_eq!(world.ask_many(address), (names(&NODES), names(&OLD)));

    world.stop_node("node1");
    world.wait_for_sends(address, &[2, 3]);
    assert_threshold(&world, address, 1);
    // What the node forwards to is not there any more: it would fail whoever came.
    world.rig.apply(&slices("web", &NEW));
    world.wait_for_ways(address, &[2, 3], &NEW);
    lose_first_pods(&world, &NODES);
    assert!(world.ask_through(1, address).is_err());
    assert_eq!(
        world.ask_many(address),
        (names(&["node2", "node3"]), names(&NEW))
    );

    world.go_stale("node1");
    // The controller has seen it when it has made what came later.
    let other = world.serve("other", json!({}), &NEW);
    let pools = world.cloud.all(Kind::TargetPool);
    assert_eq!(pools.len(), 2);
    assert!(
        pools
            .iter()
            .all(|(_, pool)| pool["instances"].as_array().unwrap().len() == 3),
        "it may come back"
    );
    world.wait_for_health(other, &[2, 3], true);
    world.wait_for_ways(other, &[2, 3], &NEW);
    assert_eq!(world.ask_many(address).0, names(&["node2", "node3"]));
    assert_eq!(world.ask_many(other).0, names(&["node2", "node3"]));
    world
        .rig
        .kubectl(&["delete", "service", "other", "--timeout=60s"], "");

    world.start_node("node1", Age::New);
    world.wait_for_ways(address, &[1, 2, 3], &NEW);
    assert_eq!(world.ask_many(address), (names(&NODES), names(&NEW)));
    world.delete("web");
}

#[test]
fn a_node_with_a_stuck_daemon_gets_no_traffic_of_a_local_service() {
    let mut world = World::start(Age::New);
    let address = world.serve(
        "web",
        json!({"externalTrafficPolicy": "Local"}),
        &["pod2-1", "pod3-1"],
    );
    // The one without endpoints says so.
    world.wait_for_health(address, &[2, 3], true);
    world.wait_for_ways(address, &[2, 3], &["pod2-1", "pod3-1"]);
    assert_eq!(
        world.ask_many(address),
        (names(&["client"]), names(&["pod2-1", "pod3-1"]))
    );
    assert!(world.ask_through(1, address).is_err());

    world.rig.node("node2").signal(libc::SIGSTOP);
    world.wait_for_sends(address, &[3]);
    assert_threshold(&world, address, 2);
    world.rig.apply(&slices("web", &["pod1-1", "pod3-1"]));
    lose_first_pods(&world, &["node2"]);
    world.wait_for_ways(address, &[1, 3], &["pod1-1", "pod3-1"]);
    assert!(world.ask_through(2, address).is_err());
    assert_eq!(
        world.ask_many(address),
        (names(&["client"]), names(&["pod1-1", "pod3-1"]))
    );
    world.go_stale("node2");
    assert_eq!(
        world.ask_many(address),
        (names(&["client"]), names(&["pod1-1", "pod3-1"]))
    );

    // It finds out that it has no endpoints any more, and says so.
    world.rig.node("node2").signal(libc::SIGCONT);
    let check = world.resource(Kind::HttpHealthCheck, "!").1;
    let port = u16::try_from(check["port"].as_u64().unwrap()).unwrap();
    let node = world.rig.cluster.addresses.of("node2", "ip").unwrap();
    world.wait_for_status(
        "cp",
        Flow::new(Protocol::Tcp, SocketAddr::new(node, port)),
        503,
    );
    // One answer may have been on its way; what comes after it is as new.
    let asked = world.balancer.health((address, 2)).unwrap().asked;
    world.wait_until("it is asked again", || {
        let health = world.balancer.health((address, 2)).unwrap();
        if_so(!health.healthy && health.asked > asked + 1, health)
    });
    world.wait_for_sends(address, &[1, 3]);
    assert_eq!(
        world.ask_many(address),
        (names(&["client"]), names(&["pod1-1", "pod3-1"]))
    );
    world.delete("web");
}
