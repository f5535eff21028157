//! Which node serves whom from outside.

use super::harness::*;
use crate::edge::{Edge, Surroundings, Way};
use crate::index::{DetectLocal, Index, Settings};
use crate::table::PerFamily;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

fn surroundings() -> Surroundings {
    let near = PerFamily {
        v4: Some("172.30.0.12".parse().unwrap()),
        v6: None,
    };
    Surroundings {
        announced: vec!["192.0.2.0/28".parse().unwrap()],
        neighbours: [("there".into(), near)].into(),
    }
}

fn web_at(address: &str) -> Value {
    load_balancer(json!({}), json!([{"ip": address}]))
}

/// Of `default/web`, on a node with these objects and surroundings.
fn edge(objects: &[Value]) -> Option<Arc<Edge>> {
    let mut index = announcing(objects);
    index.set_surroundings(Some(surroundings()));
    index.take();
    web(&index).edge.clone()
}

fn both() -> Value {
    slice(
        "a",
        json!([here("10.244.0.1"), here("10.244.0.2"), there("10.244.1.1")]),
    )
}

#[test]
fn nodes_have_slots_by_their_ready_endpoints() {
    let ends = ending(there("10.244.1.2"));
    let more = slice(
        "b",
        json!([ends, {"addresses": ["10.244.9.1"], "nodeName": "far"}]),
    );
    let edge = edge(&[web_at("192.0.2.1"), both(), more]).unwrap();
    let nodes: Vec<_> = edge
        .nodes
        .iter()
        .map(|node| (&*node.name, node.endpoints, node.way))
        .collect();
    let near = Way::Neighbour("172.30.0.12".parse().unwrap());
    assert_eq!(
        nodes,
        [
            ("far", 1, Way::None),
            ("here", 2, Way::Here),
            ("there", 1, near)
        ]
    );
    assert!(!edge.by_address);
}

#[test]
fn the_node_with_the_slot_has_its_own_pool() {
    let mut index = announcing(&[web_at("192.0.2.1"), both()]);
    assert!(web(&index).local.is_empty() && web(&index).edge.is_none());
    index.set_surroundings(Some(surroundings()));
    let update = index.take();
    assert!(update.rules && index.table().rules.edge.v4);
    assert_eq!(
        shown(&web(&index).local),
        ["10.244.0.1:8080*", "10.244.0.2:8080*"]
    );
    index.set_surroundings(None);
    index.take();
    assert!(web(&index).edge.is_none() && !index.table().rules.edge.v4);
}

#[test]
fn where_there_is_no_edge() {
    assert!(edge(&[web_at("192.0.2.1"), both()]).is_some());
    let mut annotated = web_at("192.0.2.1");
    annotated["metadata"]["annotations"] = json!({"portico.dev/edge": "off"});
    assert!(edge(&[annotated, both()]).is_none(), "left out");
    assert!(
        edge(&[web_at("192.0.2.77"), both()]).is_none(),
        "not announced"
    );
    assert!(
        edge(&[service(json!({})), both()]).is_none(),
        "no load balancer"
    );
    let nowhere = slice("b", json!([{"addresses": ["192.0.2.200"]}]));
    let objects = [web_at("192.0.2.1"), both(), nowhere];
    assert!(edge(&objects).is_none(), "an endpoint on no node");
    assert!(edge(&[web_at("192.0.2.1")]).is_none(), "no endpoint");
    let settings = Settings {
        detect_local: DetectLocal::NodeCidr,
        ..settings()
    };
    let mut index = Index::new(settings).with_announcing();
    index.set_surroundings(Some(surroundings()));
    [web_at("192.0.2.1"), both()]
        .iter()
        .for_each(|object| apply(&mut index, object));
    index.take();
    assert!(
        web(&index).edge.is_none(),
        "pods cannot be told from others"
    );
}

#[test]
fn affinity_is_by_address() {
    let sticky = load_balancer(
        json!({"sessionAffinity": "ClientIP"}),
        json!([{"ip": "192.0.2.1"}]),
    );
    assert!(edge(&[sticky, both()]).unwrap().by_address);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever a node heard before, in whatever order, whichever node it is.
    #[test]
    fn all_nodes_agree(
        before in proptest::collection::vec((0usize..4, 0usize..5), 0..12),
        last in proptest::collection::vec(0usize..5, 4),
        order in Just((0..4).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let of_slice = |slice_number: usize, endpoints: usize| {
            let endpoint = |number: usize| json!({
                "addresses": [format!("10.244.{slice_number}.{}", number + 1)],
                "nodeName": format!("node-{}", (slice_number + number) % 3),
            });
            let endpoints: Vec<Value> = (0..endpoints).map(endpoint).collect();
            slice(&format!("slice-{slice_number}"), json!(endpoints))
        };
        let mut tables = Vec::new();
        for (node, history) in [("node-0", &before[..]), ("node-1", &[]), ("other", &before[..before.len() / 2])] {
            let settings = Settings { node_name: node.into(), ..settings() };
            let mut index = Index::new(settings).with_announcing();
            index.set_surroundings(Some(surroundings()));
            apply(&mut index, &web_at("192.0.2.1"));
            for (slice, endpoints) in history {
                apply(&mut index, &of_slice(*slice, *endpoints));
                index.take();
            }
            let places = if node == "other" { order.clone() } else { (0..4).collect() };
            for slice in places {
                apply(&mut index, &of_slice(slice, last[slice]));
            }
            index.take();
            tables.push(web(&index).edge.as_ref().map(|edge| Arc::clone(&edge.slots)));
        }
        prop_assert!(tables.iter().all(|table| *table == tables[0]));
        prop_assert_eq!(tables[0].is_some(), last.iter().any(|endpoints| *endpoints > 0));
    }
}
