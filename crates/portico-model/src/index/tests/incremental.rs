//! Changes: what is said to have changed, and that it does not matter in which order things came.

use super::harness::*;
use crate::announce::Announceable;
use crate::index::Index;
use crate::key::ObjectKey;
use crate::objects::{DMZ, VISIBILITY};
use crate::table::ForwardingTable;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[test]
fn nothing_changed_says_nothing() {
    let objects = [service(json!({})), slice("a", json!([here("10.244.0.1")]))];
    let mut index = index(&objects);
    objects.iter().for_each(|object| apply(&mut index, object));
    assert_eq!(index.take(), Default::default());
}

#[test]
fn a_change_and_its_opposite_vanish() {
    let mut index = index(&[service(json!({})), slice("a", json!([here("10.244.0.1")]))]);
    apply(&mut index, &slice("b", json!([here("10.244.0.2")])));
    index.delete_slice("default", "b");
    index.delete_service("default", "web");
    apply(&mut index, &service(json!({})));
    assert_eq!(index.take().changes, []);
}

#[test]
fn a_change_of_one_port_does_not_name_the_others() {
    let ports =
        |second| json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": second}]});
    let mut index = index(&[service(ports(81))]);
    apply(&mut index, &service(ports(82)));
    let changes = index.take().changes;
    assert_eq!(
        changes
            .iter()
            .map(|change| &*change.key.port)
            .collect::<Vec<_>>(),
        ["b"]
    );
}

#[test]
fn nothing_is_kept_of_what_was_deleted() {
    let mut index = index(&[
        service(json!({"externalIPs": ["192.0.2.1"]})),
        slice("a", json!([here("10.244.0.1")])),
    ]);
    index.delete_service("default", "web");
    index.delete_slice("default", "a");
    index.delete_slice("default", "never-there");
    index.take();
    assert_eq!(index.table(), Index::new(settings()).table());
    assert!(index.services.is_empty() && index.slice_owners.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Value),
    DeleteService(u8),
    DeleteSlice(u8),
    DeletePod(u8),
    Take,
}

fn any_service() -> impl Strategy<Value = Value> {
    let policy = || prop_oneof![Just("Cluster"), Just("Local")];
    let addresses = proptest::collection::vec(
        prop_oneof![
            Just("192.0.2.1"),
            Just("192.0.2.2"),
            Just("10.96.0.1"),
            Just("fd00::2")
        ],
        0..3,
    );
    let kind = prop_oneof![
        Just("ClusterIP"),
        Just("NodePort"),
        Just("LoadBalancer"),
        Just("ExternalName")
    ];
    let ingress = prop_oneof![
        Just(json!([])),
        Just(json!([{"ip": "192.0.2.1"}])),
        Just(json!([{"ip": "192.0.2.2", "ipMode": "Proxy"}]))
    ];
    let ports = prop_oneof![
        Just(json!([{"port": 80, "nodePort": 30000}])),
        Just(json!([{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30000}])),
        Just(json!([{"port": 80, "protocol": "UDP"}])),
    ];
    let visibility =
        prop_oneof![3 => Just(None), 1 => Just(Some("namespace")), 1 => Just(Some("dmz"))];
    (0..4u8, policy(), policy(), addresses, kind, ingress, ports, 2023..2025, any::<bool>(), visibility).prop_map(
        |(n, internal, external, addresses, kind, ingress, ports, year, dual, visibility)| {
            let ip = format!("10.96.0.{n}");
            let v6 = format!("fd00:96::{n}");
            let mut spec = json!({"type": kind, "clusterIP": ip, "clusterIPs": [ip], "externalIPs": addresses, "ports": ports,
                "internalTrafficPolicy": internal, "externalTrafficPolicy": external, "healthCheckNodePort": 32000 + u16::from(n)});
            if dual {
                spec = merged(spec, json!({"clusterIPs": [ip, v6], "ipFamilies": ["IPv4", "IPv6"]}));
            }
            let mut object = renamed(load_balancer(spec, ingress), &format!("s{n}"));
            object["metadata"]["creationTimestamp"] = json!(format!("{year}-01-01T00:00:00Z"));
            if let Some(word) = visibility {
                object["metadata"]["annotations"] = json!({VISIBILITY: word});
            }
            object
        },
    )
}

fn any_slice() -> impl Strategy<Value = Value> {
    let endpoint = (
        0..4u8,
        any::<bool>(),
        any::<Option<bool>>(),
        any::<bool>(),
        prop_oneof![Just(None), Just(Some("z1")), Just(Some("z2"))],
    )
        .prop_map(|(n, local, ready, terminating, zone)| {
            let address = format!("10.244.0.{n}");
            let mut endpoint = if local {
                here(&address)
            } else {
                there(&address)
            };
            endpoint["conditions"] = json!({"ready": ready, "terminating": terminating});
            if let Some(zone) = zone {
                endpoint["hints"] = json!({"forZones": [{"name": zone}]});
            }
            endpoint
        });
    let ports = prop_oneof![
        Just(json!([{"name": "", "port": 8080}])),
        Just(json!([{"name": "a", "port": 8080}, {"name": "b", "port": 8081}])),
        Just(json!([{"name": "", "port": 8080, "protocol": "UDP"}])),
    ];
    (
        0..5u8,
        0..4u8,
        proptest::collection::vec(endpoint, 0..4),
        ports,
    )
        .prop_map(|(n, owner, endpoints, ports)| {
            let object = slice(&format!("slice{n}"), json!(endpoints));
            labelled(
                merged(object, json!({"ports": ports})),
                "kubernetes.io/service-name",
                &format!("s{owner}"),
            )
        })
}

/// Few addresses, so that several pods claim one.
fn any_pod() -> impl Strategy<Value = Value> {
    let address = prop_oneof![
        Just(None),
        Just(Some("10.244.0.1")),
        Just(Some("10.244.0.2"))
    ];
    (0..4u8, address, any::<bool>(), any::<bool>()).prop_map(|(n, address, dmz, leaving)| {
        let namespace = if n % 2 == 0 { "default" } else { "other" };
        let labels = if dmz { json!({DMZ: ""}) } else { json!({}) };
        let since = leaving.then_some("2026-01-01T00:00:00Z");
        json!({"metadata": {"namespace": namespace, "name": format!("pod{n}"), "labels": labels, "deletionTimestamp": since},
               "spec": {"nodeName": "here"}, "status": {"podIP": address.unwrap_or_default()}})
    })
}

fn any_node() -> impl Strategy<Value = Value> {
    prop_oneof![Just("z1"), Just("z2"), Just("")]
        .prop_map(|zone| json!({"metadata": {"name": "here", "labels": {"topology.kubernetes.io/zone": zone}}}))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any_service().prop_map(Step::Apply),
        4 => any_slice().prop_map(Step::Apply),
        1 => any_node().prop_map(Step::Apply),
        2 => any_pod().prop_map(Step::Apply),
        1 => (0..4u8).prop_map(Step::DeletePod),
        1 => (0..4u8).prop_map(Step::DeleteService),
        1 => (0..5u8).prop_map(Step::DeleteSlice),
        3 => Just(Step::Take),
    ];
    proptest::collection::vec(step, 0..30)
}

/// Follows the objects that are there beside the index, and the table of a consumer that only sees
/// the changes.
#[derive(Default)]
struct Follower {
    objects: BTreeMap<String, Value>,
    table: ForwardingTable,
    announceables: BTreeMap<ObjectKey, Arc<Announceable>>,
}

impl Follower {
    fn step(&mut self, index: &mut Index, step: Step) {
        match step {
            Step::Apply(object) => {
                apply(index, &object);
                self.objects
                    .insert(object["metadata"]["name"].to_string(), object);
            }
            Step::DeleteService(n) => {
                index.delete_service("default", &format!("s{n}"));
                self.objects.remove(&format!("\"s{n}\""));
            }
            Step::DeleteSlice(n) => {
                index.delete_slice("default", &format!("slice{n}"));
                self.objects.remove(&format!("\"slice{n}\""));
            }
            Step::DeletePod(n) => {
                let namespace = if n % 2 == 0 { "default" } else { "other" };
                index.delete_pod(namespace, &format!("pod{n}"));
                self.objects.remove(&format!("\"pod{n}\""));
            }
            Step::Take => self.take(index),
        }
    }

    fn take(&mut self, index: &mut Index) {
        let update = index.take();
        assert!(update.changes.is_sorted_by(|a, b| a.key < b.key));
        for (name, now) in update.announceables {
            assert_ne!(self.announceables.get(&name), now.as_ref());
            match now {
                Some(now) => self.announceables.insert(name, now),
                None => self.announceables.remove(&name),
            };
        }
        for change in update.changes {
            assert_ne!(change.before, change.after);
            assert_eq!(self.table.ports.get(&change.key), change.before.as_ref());
            match change.after {
                Some(after) => self.table.ports.insert(change.key, after),
                None => self.table.ports.remove(&change.key),
            };
        }
    }
}

fn no_frontend_is_owned_twice(table: &ForwardingTable) {
    let mut seen = BTreeSet::new();
    for (key, port) in table.ports.iter() {
        assert!(!port.frontends.is_empty());
        for frontend in &port.frontends {
            assert!(
                seen.insert(crate::table::FrontendKey::of(frontend, key)),
                "{key}: {frontend:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_sequence_of_changes_ends_where_building_from_scratch_does(steps in steps()) {
        let mut index = Index::new(settings()).with_announcing();
        let mut follower = Follower::default();
        steps.into_iter().for_each(|step| follower.step(&mut index, step));
        follower.take(&mut index);
        let objects: Vec<Value> = follower.objects.values().cloned().collect();
        let scratch = announcing(&objects);
        prop_assert_eq!(index.announceables(), scratch.announceables());
        prop_assert_eq!(index.announceables(), &follower.announceables);
        prop_assert_eq!(index.table(), scratch.table());
        prop_assert_eq!(index.health_checks(), scratch.health_checks());
        prop_assert_eq!(index.conflicts(), scratch.conflicts());
        prop_assert_eq!(&follower.table.ports, &index.table().ports);
        no_frontend_is_owned_twice(index.table());
    }
}
