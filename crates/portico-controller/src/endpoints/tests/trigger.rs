use jiff::Timestamp;

use super::{super::trigger::TriggerTimes, *};

fn at(second: u8) -> String {
    format!("2026-01-01T00:00:{second:02}Z")
}

fn ready_at(second: u8) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(second)}]}})
}

fn look(times: &mut TriggerTimes, world: &World) -> Option<String> {
    times
        .look(&web(), &world.index().snapshot(&web()))
        .map(|time: Timestamp| time.to_string())
}

#[test]
fn the_earliest_change_since_the_last_look() {
    let mut times = TriggerTimes::default();
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", ready_at(9));
    assert_eq!(
        look(&mut times, &world),
        Some(at(0)),
        "a new Service counts from its creation"
    );
    assert_eq!(look(&mut times, &world), None, "nothing changed");
    world
        .pod("p2", "10.1.0.2", ready_at(12))
        .pod("p3", "10.1.0.3", ready_at(11));
    assert_eq!(
        look(&mut times, &world),
        Some(at(11)),
        "the earlier of two new Pods"
    );
    world.pod("p1", "10.1.0.1", ready_at(20));
    assert_eq!(look(&mut times, &world), Some(at(20)), "a Pod that changed");
    world.pods.remove("p1");
    assert_eq!(
        look(&mut times, &world),
        None,
        "a removal has no known time"
    );
}

#[test]
fn a_service_created_anew_counts_from_its_creation() {
    let mut times = TriggerTimes::default();
    let mut world = World::new();
    look(&mut times, &world);
    world.service = None;
    assert_eq!(look(&mut times, &world), None);
    world.service = Some(service(json!({"metadata": {"creationTimestamp": at(30)}})));
    assert_eq!(look(&mut times, &world), Some(at(30)));
}
