//! Nodes that are too old to say how they are: traffic goes to all of them, as it did before
//! anybody asked.

use crate::rig::NODES;
use crate::world::{Age, World, if_so};
use portico_fakecloud::gce::Kind;
use serde_json::json;
use std::collections::BTreeSet;

const PODS: [&str; 3] = ["pod1-1", "pod2-1", "pod3-1"];

fn nodes(numbers: &[u8]) -> BTreeSet<String> {
    numbers
        .iter()
        .map(|number| format!("node{number}"))
        .collect()
}

#[test]
fn an_upgrade_and_its_rollback_are_no_outage() {
    let mut world = World::start(Age::Old);
    let address = world.serve("web", json!({}), &PODS);
    world.wait_for_ways(address, &[1, 2, 3], &PODS);
    let requests = world.keep_asking(address);
    assert_eq!(
        (
            world.in_pool("healthChecks"),
            world.names(Kind::HttpHealthCheck).len()
        ),
        (0, 0)
    );
    assert_eq!(world.ask_many(address).0, nodes(&[1, 2, 3]));
    // Nobody notices, and what is in its kernel still forwards.
    world.stop_node("node1");
    assert_eq!(world.ask_many(address).0, nodes(&[1, 2, 3]));
    world.start_node("node1", Age::Old);

    // While one is old, nobody is asked.
    world.exchange_node("node1", Age::New);
    world.exchange_node("node2", Age::New);
    assert_eq!(world.ask_many(address).0, nodes(&[1, 2, 3]));
    assert_eq!(
        (
            world.in_pool("healthChecks"),
            world.names(Kind::HttpHealthCheck).len()
        ),
        (0, 0)
    );
    world.exchange_node("node3", Age::New);
    world.wait_until("the check is attached", || {
        if_so(world.in_pool("healthChecks") == 1, ())
    });
    world.wait_for_health(address, &[1, 2, 3], true);
    world.wait_for_sends(address, &[1, 2, 3]);
    assert_eq!(world.ask_many(address).0, nodes(&[1, 2, 3]));

    // An old one among new ones takes the check off again, and traffic goes to all as before.
    world.exchange_node("node1", Age::Old);
    world.wait_until("the check is off", || {
        if_so(world.in_pool("healthChecks") == 0, ())
    });
    world.wait_for_ways(address, &[1, 2, 3], &PODS);
    assert_eq!(world.ask_many(address).0, nodes(&[1, 2, 3]));
    world.exchange_node("node2", Age::Old);
    world.exchange_node("node3", Age::Old);
    assert_eq!(world.ask_many(address).0, nodes(&[1, 2, 3]));
    assert_eq!(world.in_pool("healthChecks"), 0, "it stays off");

    // And forward again.
    for name in NODES {
        world.exchange_node(name, Age::New);
    }
    world.wait_until("the check is attached again", || {
        if_so(world.in_pool("healthChecks") == 1, ())
    });
    world.wait_for_health(address, &[1, 2, 3], true);
    world.wait_for_sends(address, &[1, 2, 3]);
    assert_eq!(world.ask_many(address).0, nodes(&[1, 2, 3]));
    requests.end();
    world.delete("web");
}
