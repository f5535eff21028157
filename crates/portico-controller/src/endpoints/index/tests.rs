use serde_json::json;

use super::*;
use crate::endpoints::tests::{World, light, node, not_ready, pod, service, terminating, web};

/// An index with the Service `web` on `app=a` and one Pod, with nothing left to do.
fn settled() -> Index {
    let mut world = World::new();
    world.pod("p1", "10.1.0.1", json!({}));
    let mut index = world.index();
    index.take_touched();
    index
}

fn touched(index: &mut Index) -> Vec<String> {
    index
        .take_touched()
        .iter()
        .map(|key| key.name.to_string())
        .collect()
}

fn other_service(name: &str, selector: serde_json::Value) -> Service {
    service(json!({"metadata": {"name": name}, "spec": {"selector": selector}}))
}

#[test]
fn changes_of_a_pod_that_touch_its_service() {
    for (name, patch) in [
        ("readiness", not_ready()),
        ("termination", terminating()),
        (
            "address",
            json!({"status": {"podIPs": [{"ip": "10.1.0.9"}]}}),
        ),
        ("node", json!({"spec": {"nodeName": "n2"}})),
        ("end", json!({"status": {"phase": "Failed"}})),
        (
            "leaves the selector",
            json!({"metadata": {"labels": {"app": "b"}}}),
        ),
    ] {
        let mut index = settled();
        index.apply_pod(&pod("p1", "10.1.0.1", patch));
        assert_eq!(touched(&mut index), ["web"], "{name}");
    }
}

#[test]
fn changes_of_a_pod_that_touch_nothing() {
    for (name, patch) in [
        ("version", json!({"metadata": {"resourceVersion": "99"}})),
        (
            "annotation",
            json!({"metadata": {"annotations": {"a": "b"}}}),
        ),
        (
            "status of a container",
            json!({"status": {"containerStatuses": []}}),
        ),
    ] {
        let mut index = settled();
        index.apply_pod(&pod("p1", "10.1.0.1", patch));
        assert!(touched(&mut index).is_empty(), "{name}");
    }
}

#[test]
fn a_pod_touches_every_service_that_selects_it_and_no_other() {
    let mut index = settled();
    index.apply_service(light(other_service(
        "both",
        json!({"app": "a", "tier": "front"}),
    )));
    index.apply_service(light(other_service(
        "tier",
        json!({"app": null, "tier": "front"}),
    )));
    index.apply_service(light(other_service(
        "miss",
        json!({"app": "a", "tier": "back"}),
    )));
    index.apply_service(light(service(
        json!({"metadata": {"name": "none"}, "spec": {"selector": null}}),
    )));
    index.take_touched();
    let front = json!({"metadata": {"labels": {"app": "a", "tier": "front"}}});
    index.apply_pod(&pod("p2", "10.1.0.2", front.clone()));
    assert_eq!(touched(&mut index), ["both", "tier", "web"]);
    index.apply_pod(&pod(
        "p2",
        "10.1.0.2",
        json!({"metadata": {"labels": {"app": null, "tier": "front"}}}),
    ));
    assert_eq!(
        touched(&mut index),
        ["both", "tier", "web"],
        "those it left and those it stays in"
    );
    index.delete_pod(&pod("p2", "10.1.0.2", json!({})));
    assert_eq!(touched(&mut index), ["tier"]);
    let mut elsewhere = front;
    elsewhere["metadata"]["namespace"] = json!("other");
    index.apply_pod(&pod("p2", "10.1.0.2", elsewhere));
    assert!(touched(&mut index).is_empty(), "another namespace");
}

#[test]
fn a_changed_selector_finds_its_pods() {
    let mut index = settled();
    index.apply_pod(&pod(
        "p2",
        "10.1.0.2",
        json!({"metadata": {"labels": {"app": "b"}}}),
    ));
    let names = |index: &Index| -> Vec<String> {
        index
            .snapshot(&web())
            .pods
            .iter()
            .map(|pod| pod.key.name.to_string())
            .collect()
    };
    assert_eq!(names(&index), ["p1"]);
    index.apply_service(light(service(json!({"spec": {"selector": {"app": "b"}}}))));
    assert_eq!(touched(&mut index), ["web"]);
    assert_eq!(names(&index), ["p2"]);
    index.apply_pod(&pod("p1", "10.1.0.1", not_ready()));
    assert!(touched(&mut index).is_empty(), "no longer selected");
    index.apply_pod(&pod(
        "p3",
        "10.1.0.3",
        json!({"metadata": {"labels": {"app": "b"}}}),
    ));
    assert_eq!(touched(&mut index), ["web"]);
}

#[test]
fn a_service_is_touched_by_what_matters_in_it() {
    for (name, patch, expected) in [
        (
            "spec",
            json!({"spec": {"publishNotReadyAddresses": true}}),
            true,
        ),
        (
            "labels",
            json!({"metadata": {"labels": {"team": "x"}}}),
            true,
        ),
        (
            "created anew",
            json!({"metadata": {"uid": "service-2"}}),
            true,
        ),
        ("on its way out", terminating(), true),
        (
            "version",
            json!({"metadata": {"resourceVersion": "99"}}),
            false,
        ),
        (
            "status",
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}),
            false,
        ),
    ] {
        let mut index = settled();
        index.apply_service(light(service(patch)));
        assert_eq!(!touched(&mut index).is_empty(), expected, "{name}");
    }
}

#[test]
fn a_node_touches_the_services_of_its_pods() {
    let mut index = settled();
    index.apply_node(&node("n1", Some("east")));
    assert!(touched(&mut index).is_empty(), "same zone");
    index.apply_node(&node("n2", Some("south")));
    assert!(touched(&mut index).is_empty(), "no Pod there");
    index.apply_node(&node("n1", Some("north")));
    assert_eq!(touched(&mut index), ["web"]);
    index.delete_node(&node("n1", None));
    assert!(touched(&mut index).is_empty(), "it may come back");
    index.apply_node(&node("n1", Some("north")));
    assert_eq!(
        touched(&mut index),
        ["web"],
        "a Pod may have been left out while it was away"
    );
}

#[test]
fn a_slice_that_changes_service_touches_both() {
    let mut world = World::new();
    world.pods(1, 1);
    world.sync();
    let mut index = world.index();
    index.take_touched();
    let mut slice = world.only_slice().clone();
    slice.metadata.resource_version = Some("100".into());
    slice
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(LABEL_SERVICE_NAME.into(), "other".into());
    index.apply_slice(slice.clone());
    assert_eq!(touched(&mut index), ["other", "web"]);
    index.delete_slice(&slice);
    assert_eq!(touched(&mut index), ["other"]);
}

#[test]
fn what_a_list_does_not_contain_is_gone() {
    let mut index = settled();
    for kind in [Kind::Pod, Kind::Service, Kind::Node] {
        index.begin_list(kind);
    }
    index.apply_pod(&pod("p2", "10.1.0.2", json!({})));
    index.apply_service(light(service(json!({}))));
    index.apply_node(&node("n2", None));
    for kind in [Kind::Pod, Kind::Service, Kind::Node] {
        index.finish_list(kind);
    }
    assert_eq!(touched(&mut index), ["web"]);
    let snapshot = index.snapshot(&web());
    assert_eq!(snapshot.pods.len(), 1);
    assert_eq!(&*snapshot.pods[0].key.name, "p2");
    assert_eq!(snapshot.zones.keys().collect::<Vec<_>>(), ["n2"]);
    index.begin_list(Kind::Service);
    index.finish_list(Kind::Service);
    assert_eq!(touched(&mut index), ["web"]);
    assert!(index.snapshot(&web()).service.is_none());
}
