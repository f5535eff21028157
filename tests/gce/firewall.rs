//! What the resources say is what happens to packets; and what somebody else changed is put right.

use crate::world::{Age, LONG, SHORT, World, if_so};
use portico_fakecloud::gce::Kind;
use portico_testbed::cluster::extra_sources;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

const PODS: [&str; 3] = ["pod1-1", "pod2-1", "pod3-1"];
/// Addresses of the client: its own, and another one.
const OWN: &str = "198.51.100.10";
const OTHER: &str = "198.51.100.101";
/// The end of the name of the firewall for health checks.
const OF_CHECKS: &str = "-http-hc";

/// Somebody changes a field of the only firewall for traffic.
fn meddle(world: &World, value: Value) {
    let (name, mut firewall) = world.resource(Kind::Firewall, OF_CHECKS);
    firewall["sourceRanges"] = value;
    world.cloud.put(Kind::Firewall, &name, firewall);
    world.wait_until_obeyed();
}

fn ranges(world: &World) -> Value {
    world.resource(Kind::Firewall, OF_CHECKS).1["sourceRanges"].clone()
}

/// The firewall drops what comes from there.
fn assert_dropped(world: &World, source: &str, address: IpAddr) {
    let before = world.balancer.dropped();
    assert!(world.ask_from(source, address, SHORT).is_err(), "{source}");
    assert!(world.balancer.dropped() > before, "not by the firewall");
}

#[test]
fn who_may_come_in_is_up_to_the_firewall() {
    let mut world = World::start(Age::New);
    let spec = json!({"loadBalancerSourceRanges": [format!("{OWN}/32")]});
    let address = world.serve("web", spec, &PODS);
    world.wait_for_health(address, &[1, 2, 3], true);
    world.wait_for_ways(address, &[1, 2, 3], &PODS);
    world.ask_many(address);
    assert_dropped(&world, OTHER, address);

    let patch = json!({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}}).to_string();
    world.rig.kubectl(
        &["patch", "service", "web", "--type=merge", "-p", &patch],
        "",
    );
    world.wait_until("the other one gets in", || {
        world.ask_from(OTHER, address, SHORT).map(drop)
    });
    assert_eq!(ranges(&world), json!(["198.51.100.0/24"]));
    world.ask_many(address);

    // Somebody closes it: nobody gets in until the controller looks.
    meddle(&world, json!(["192.0.2.0/24"]));
    assert_dropped(&world, OWN, address);
    world.restart_controller();
    world.wait_until("the firewall is right again", || {
        let found = ranges(&world);
        if_so(found == json!(["198.51.100.0/24"]), found)
    });
    world.wait_until_obeyed();
    world.ask_many(address);
    world.delete("web");
}

/// The checkers are kept out: nobody is healthy, and so everybody gets traffic.
#[test]
fn a_lost_firewall_of_checks_is_no_outage_and_is_made_again() {
    let mut world = World::start(Age::New);
    let address = world.serve("web", json!({"sessionAffinity": "ClientIP"}), &PODS);
    world.wait_for_health(address, &[1, 2, 3], true);
    world.wait_for_ways(address, &[1, 2, 3], &PODS);
    // One client, one node; several clients, several nodes.
    assert_eq!(world.ask_many(address).0.len(), 1);
    let entry = |source: String| {
        let seen = world.ask_from(&source, address, LONG).unwrap();
        world
            .rig
            .cluster
            .addresses
            .owner(seen.source.ip())
            .unwrap()
            .to_owned()
    };
    assert!(
        extra_sources("client", false)
            .map(entry)
            .collect::<BTreeSet<_>>()
            .len()
            > 1
    );

    let requests = world.keep_asking(address);
    let name = world
        .names(Kind::Firewall)
        .into_iter()
        .find(|name| name.ends_with(OF_CHECKS))
        .unwrap();
    let mut firewall = world.cloud.get(Kind::Firewall, &name).unwrap();
    firewall["sourceRanges"] = json!(["192.0.2.0/24"]);
    world.cloud.put(Kind::Firewall, &name, firewall);
    world.wait_for_health(address, &[1, 2, 3], false);
    world.wait_for_sends(address, &[1, 2, 3]);
    world.ask_many(address);
    world.restart_controller();
    world.wait_for_health(address, &[1, 2, 3], true);
    world.wait_for_sends(address, &[1, 2, 3]);
    world.ask_many(address);
    requests.end();
    world.delete("web");
}
