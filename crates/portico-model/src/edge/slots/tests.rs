use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Nodes = BTreeMap<String, u32>;

fn listed(nodes: &Nodes) -> Vec<(Arc<str>, u32)> {
    let with_endpoints = nodes.iter().filter(|(_, weight)| **weight > 0);
    with_endpoints
        .map(|(name, weight)| (Arc::from(name.as_str()), *weight))
        .collect()
}

/// The name of the node that has each slot.
fn owners(nodes: &Nodes) -> Vec<String> {
    let listed = listed(nodes);
    let slots = assign(&listed).unwrap();
    slots
        .iter()
        .map(|node| listed[usize::from(*node)].0.to_string())
        .collect()
}

fn moved(before: &Nodes, after: &Nodes) -> usize {
    let both = owners(before).into_iter().zip(owners(after));
    both.filter(|(before, after)| before != after).count()
}

fn cluster() -> impl Strategy<Value = Nodes> {
    proptest::collection::btree_map("[a-z]{1,3}-[0-9]{1,3}", 1u32..8, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shares_are_within_one_percent(nodes in cluster()) {
        let (owners, total) = (owners(&nodes), f64::from(nodes.values().sum::<u32>()));
        for (name, weight) in &nodes {
            let has = owners.iter().filter(|owner| *owner == name).count();
            let off = has as f64 / f64::from(SLOTS) - f64::from(*weight) / total;
            prop_assert!(off.abs() <= 0.01, "{name} is {off} off its share");
        }
    }

    #[test]
    fn every_node_with_an_endpoint_has_a_slot_and_no_other(nodes in cluster()) {
        let owners = owners(&nodes);
        prop_assert_eq!(owners.len(), usize::from(SLOTS));
        prop_assert!(nodes.keys().all(|name| owners.contains(name)));
    }

    /// What happened before makes no difference: the order in which nodes came is not even asked.
    #[test]
    fn a_change_and_its_undoing_end_where_they_began(nodes in cluster(), more in 1u32..5) {
        let before = owners(&nodes);
        let mut changed = nodes.clone();
        changed.insert("new".to_owned(), more);
        owners(&changed);
        changed.remove("new");
        prop_assert_eq!(owners(&changed), before);
    }

    #[test]
    fn a_node_that_comes_takes_its_share_and_little_else_moves(nodes in cluster(), weight in 1u32..8) {
        let mut after = nodes.clone();
        if after.insert("new-node".to_owned(), weight).is_none() {
            let share = f64::from(weight) / f64::from(after.values().sum::<u32>());
            let moved = moved(&nodes, &after) as f64 / f64::from(SLOTS);
            prop_assert!(moved <= share * 1.1 + 0.08, "{moved} moved for a share of {share}");
        }
    }
}

/// The average and the most of slots that move, in percent, when one of ten endpoints leaves.
fn one_of_ten(nodes_of_ten: &[u32]) -> (f64, f64) {
    let mut all = Vec::new();
    for round in 0..10 {
        let named = |(number, weight): (usize, &u32)| (format!("node-{round}-{number}"), *weight);
        let before: Nodes = nodes_of_ten.iter().enumerate().map(named).collect();
        for name in before.keys() {
            let mut after = before.clone();
            after.entry(name.clone()).and_modify(|weight| *weight -= 1);
            all.push(moved(&before, &after) as f64 * 100.0 / f64::from(SLOTS));
        }
    }
    let most = all.iter().copied().fold(0.0, f64::max);
    (all.iter().sum::<f64>() / all.len() as f64, most)
}

#[test]
fn one_of_ten_endpoints_that_leaves_moves_at_most_12_percent_of_slots() {
    for nodes in [&[1; 10][..], &[2; 5], &[4, 3, 3], &[5, 5]] {
        let (average, most) = one_of_ten(nodes);
        println!("{nodes:?}: {average:.1}% on average, {most:.1}% at most");
        assert!(average <= 12.0, "{nodes:?}: {average}");
        assert!(most <= 16.0, "{nodes:?}: {most}");
    }
}

#[test]
fn no_endpoints_and_too_many_nodes_have_no_slots() {
    assert_eq!(assign(&[]), None);
    assert_eq!(assign(&[("a".into(), 0)]), None);
    let many: Nodes = (0..=MOST_NODES).map(|n| (format!("{n:03}"), 1)).collect();
    assert_eq!(assign(&listed(&many)), None);
}

#[test]
fn a_node_may_have_very_many_endpoints() {
    let nodes = Nodes::from([
        ("a".into(), u32::MAX),
        ("b".into(), 1),
        ("c".into(), 1 << 20),
    ]);
    assert!(owners(&nodes).iter().filter(|owner| *owner == "a").count() > 490);
}
