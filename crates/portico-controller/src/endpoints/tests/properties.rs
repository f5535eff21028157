//! Whatever happens to Pods and settings, one round of writes makes the slices right, and a second
//! finds nothing to do.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
struct PodState {
    ready: bool,
    terminating: bool,
    selected: bool,
    node: u8,
    port: u16,
    dual: bool,
}

fn pod_state() -> impl Strategy<Value = PodState> {
    let bits = (
        any::<bool>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.9),
    );
    (bits, 0..4u8, 8080..8082u16, any::<bool>()).prop_map(
        |((ready, terminating, selected), node, port, dual)| PodState {
            ready,
            terminating,
            selected,
            node,
            port,
            dual,
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Pods(Vec<(u8, Option<PodState>)>),
    Service {
        dual: bool,
        distribution: Option<&'static str>,
        publish: bool,
        team: u8,
    },
    Corrupt(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let pods = prop::collection::vec((0..60u8, prop::option::weighted(0.7, pod_state())), 0..40)
        .prop_map(Step::Pods);
    let distribution =
        prop::sample::select(vec![None, Some("PreferClose"), Some("PreferSameNode")]);
    let service = (any::<bool>(), distribution, any::<bool>(), 0..2u8).prop_map(
        |(dual, distribution, publish, team)| Step::Service {
            dual,
            distribution,
            publish,
            team,
        },
    );
    prop_oneof![6 => pods, 1 => service, 1 => any::<u8>().prop_map(Step::Corrupt)]
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Pods(pods) => pods
            .into_iter()
            .for_each(|(id, state)| set_pod(world, id, state)),
        Step::Service {
            dual,
            distribution,
            publish,
            team,
        } => {
            let families = if dual {
                json!(["IPv4", "IPv6"])
            } else {
                json!(["IPv4"])
            };
            world.service = Some(service(json!({
                "metadata": {"labels": {"team": team.to_string()}},
                "spec": {
                    "ipFamilies": families,
                    "trafficDistribution": distribution,
                    "publishNotReadyAddresses": publish,
                    "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
                },
            })));
        }
        Step::Corrupt(seed) => corrupt(world, seed),
    }
}

fn set_pod(world: &mut World, id: u8, state: Option<PodState>) {
    let name = format!("p{id}");
    let Some(state) = state else {
        return drop(world.pods.remove(&name));
    };
    let mut ips = vec![json!({"ip": format!("10.1.0.{id}")})];
    ips.extend(state.dual.then(|| json!({"ip": format!("fd00::{id:x}")})));
    let mut patch = json!({
        "metadata": {"labels": {"app": if state.selected { "a" } else { "b" }}},
        "spec": {
            "nodeName": format!("n{}", state.node),
            "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": state.port}]}],
        },
        "status": {"podIPs": ips, "conditions": [{"type": "Ready", "status": if state.ready { "True" } else { "False" }}]},
    });
    if state.terminating {
        merge(&mut patch, terminating());
    }
    world.pod(&name, "", patch);
}

/// What another writer, or a write that was answered too late, may leave behind.
fn corrupt(world: &mut World, seed: u8) {
    let names: Vec<String> = world.slices.keys().cloned().collect();
    let Some(name) = names.get(usize::from(seed) % names.len().max(1)) else {
        return;
    };
    match seed % 3 {
        0 => drop(world.slices.remove(name)),
        1 => {
            let mut copy = world.slices[name].clone();
            copy.metadata.uid = None;
            world.store(&format!("{name}-copy"), copy);
        }
        _ => world
            .slices
            .get_mut(name)
            .unwrap()
            .endpoints
            .as_mut()
            .unwrap()
            .truncate(1),
    }
}

/// The wanted endpoints, worked out from the Pods alone: family, port, address, ready.
fn expected(world: &World) -> BTreeSet<(String, Option<i32>, String, bool)> {
    let spec = world.service.as_ref().unwrap().spec.as_ref().unwrap();
    let publish = spec.publish_not_ready_addresses == Some(true);
    let families = spec.ip_families.as_ref().unwrap();
    let named = matches!(
        spec.ports.as_ref().unwrap()[0].target_port,
        Some(IntOrString::String(_))
    );
    let mut wanted = BTreeSet::new();
    for pod in world
        .pods
        .values()
        .map(PodFacts::of)
        .filter(|pod| pod.labels["app"] == "a")
    {
        if !publish && !world.nodes.contains_key(pod.node.as_deref().unwrap()) {
            continue;
        }
        let port = if named {
            pod.named_port("web", "TCP")
        } else {
            Some(8080)
        };
        let ready = publish || (pod.ready && !pod.terminating);
        for ip in &pod.ips {
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            if families.iter().any(|listed| listed == family) {
                wanted.insert((family.to_string(), port, ip.to_string(), ready));
            }
        }
    }
    wanted
}

fn found(world: &World) -> Vec<(String, Option<i32>, String, bool)> {
    let mut all = Vec::new();
    for slice in world.slices.values() {
        let port = slice
            .ports
            .as_ref()
            .unwrap()
            .first()
            .and_then(|port| port.port);
        for endpoint in slice.endpoints.iter().flatten() {
            let ready = endpoint.conditions.as_ref().unwrap().ready.unwrap();
            all.push((
                slice.address_type.clone(),
                port,
                endpoint.addresses[0].clone(),
                ready,
            ));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn one_round_makes_it_right(steps in prop::collection::vec(step(), 1..12), max in 1..20usize) {
        let mut world = World::new();
        world.max_per_slice = max;
        for step in steps {
            take(&mut world, step);
            world.sync();
            let endpoints = found(&world);
            let unique: BTreeSet<_> = endpoints.iter().cloned().collect();
            prop_assert_eq!(unique.len(), endpoints.len(), "an endpoint is in two slices");
            prop_assert_eq!(unique, expected(&world));
            prop_assert!(world.sizes().iter().all(|size| *size <= max));
            let second = world.plan();
            prop_assert!(second.is_empty(), "second plan: {second:?}");
        }
    }

    #[test]
    fn legacy_endpoints_settle_too(steps in prop::collection::vec(step(), 1..12)) {
        let mut world = World::new();
        for step in steps {
            take(&mut world, step);
            world.sync_endpoints();
            prop_assert_eq!(world.plan_endpoints(), EndpointsPlan::Keep);
        }
    }
}
