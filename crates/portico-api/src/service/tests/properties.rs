//! Whatever is asked for, nothing is owned twice and nothing leaks. The harness checks this after
//! every step.

use super::harness::Server;
use crate::gates::Gates;
use crate::service::spelling;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn one_of(values: &[Value]) -> impl Strategy<Value = Value> + use<> {
    prop::sample::select(values.to_vec())
}

/// A spec that is often valid, from a small world so that conflicts are common. Null is a field
/// left out.
fn spec() -> impl Strategy<Value = Value> {
    let types = one_of(&[
        json!("ClusterIP"),
        json!("NodePort"),
        json!("LoadBalancer"),
        json!("ExternalName"),
        json!(null),
    ]);
    let addresses = one_of(&[
        json!(null),
        json!(null),
        json!("10.0.0.3"),
        json!("10.0.0.4"),
        json!("None"),
        json!("fd00::5"),
    ]);
    let families = one_of(&[
        json!(null),
        json!(["IPv4"]),
        json!(["IPv6"]),
        json!(["IPv6", "IPv4"]),
    ]);
    let policies = one_of(&[
        json!(null),
        json!("SingleStack"),
        json!("PreferDualStack"),
        json!("RequireDualStack"),
    ]);
    let traffic = one_of(&[json!(null), json!("Cluster"), json!("Local")]);
    let switch = || one_of(&[json!(null), json!(true), json!(false)]);
    let health = one_of(&[json!(null), json!(null), json!(30001), json!(30003)]);
    let port = (
        prop::sample::select(vec!["a", "b"]),
        prop::sample::select(vec![80, 81]),
        prop::sample::select(vec!["TCP", "UDP"]),
        prop::sample::select(vec![0, 0, 30001, 30002, 30009]),
    );
    let ports = prop::collection::vec(port, 1..3);
    (
        types,
        addresses,
        families,
        policies,
        traffic,
        (switch(), switch()),
        health,
        ports,
    )
        .prop_map(
            |(
                type_,
                address,
                families,
                policy,
                traffic,
                (node_ports, health_switch),
                health,
                ports,
            )| {
                let mut spec = Map::new();
                let ports: Vec<Value> = ports
                .into_iter()
                .map(|(name, port, protocol, node_port)| {
                    json!({"name": name, "port": port, "protocol": protocol, "nodePort": node_port})
                })
                .collect();
                for (key, value) in [
                    ("type", type_),
                    ("clusterIP", address),
                    ("ipFamilies", families),
                    ("ipFamilyPolicy", policy),
                    ("externalTrafficPolicy", traffic),
                    ("allocateLoadBalancerNodePorts", node_ports),
                    ("allocateLoadBalancerHCNodePort", health_switch),
                    ("healthCheckNodePort", health),
                    ("ports", json!(ports)),
                ] {
                    if !value.is_null() {
                        spec.insert(key.to_owned(), value);
                    }
                }
                spec.insert("externalName".to_owned(), json!("e.example.com"));
                Value::Object(spec)
            },
        )
}

#[derive(Clone, Debug)]
enum Step {
    Put(&'static str, Value),
    Patch(&'static str, Value),
    DryRun(&'static str, Value),
    Move(&'static str, Option<&'static str>),
    Delete(&'static str),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]);
    // A patch changes a few of the fields.
    let patch = (spec(), any::<u16>()).prop_map(|(spec, bits)| {
        let Value::Object(spec) = spec else {
            return spec;
        };
        spec.into_iter()
            .enumerate()
            .filter(|(index, _)| bits >> index & 1 == 1)
            .map(|(_, pair)| pair)
            .collect()
    });
    let partition = prop::sample::select(vec![None, Some("p"), Some("q"), Some("not/a/name")]);
    prop_oneof![
        4 => (name(), spec()).prop_map(|(name, spec)| Step::Put(name, spec)),
        4 => (name(), patch).prop_map(|(name, spec)| Step::Patch(name, spec)),
        1 => (name(), spec()).prop_map(|(name, spec)| Step::DryRun(name, spec)),
        2 => (name(), partition).prop_map(|(name, partition)| Step::Move(name, partition)),
        1 => name().prop_map(Step::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn claims_are_what_live_services_own(steps in prop::collection::vec(step(), 1..40), seed: u64) {
        let mut server = Server::new("10.0.0.0/29,fd00::/125", "30000-30005", Gates::default());
        server.pool.seed = seed;
        for step in steps {
            let before = (server.store.clone(), server.pool.taken.clone());
            let kept = match step {
                Step::Put(name, spec) => server.put(name, spec).is_err(),
                Step::Patch(name, spec) if server.store.contains_key(name) => server.patch(name, spec).is_err(),
                Step::DryRun(name, spec) => { let _ = server.dry_run(name, spec); true }
                Step::Move(name, to) if server.store.contains_key(name) => server.move_to(name, to).is_err(),
                Step::Delete(name) if server.store.contains_key(name) => { server.delete(name); false }
                _ => true,
            };
            if kept {
                prop_assert_eq!((&server.store, &server.pool.taken), (&before.0, &before.1));
            }
        }
        for object in server.store.clone().into_values() {
            // What is stored can be written back, in either spelling, and stays the same.
            prop_assert_eq!(&server.replace(object.clone()).unwrap(), &object);
            let view = spelling::to_portico(&object);
            prop_assert_eq!(&server.put_portico(view.clone()).unwrap(), &view);
            prop_assert_eq!(&server.store[crate::object::name(&object)], &object);
        }
        for name in server.store.keys().cloned().collect::<Vec<_>>() {
            server.delete(&name);
        }
        prop_assert!(server.pool.taken.is_empty());
    }
}
