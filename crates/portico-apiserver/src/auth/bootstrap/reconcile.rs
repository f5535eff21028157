//! Bringing a stored role or binding up to what this version starts with.

use super::AUTO_UPDATE;
use super::roles::withdrawn;
use crate::auth::rbac::{Rule, uncovered};
use portico_api::object;
use serde_json::{Map, Value};

/// The object to write so that `existing` has all that `expected` has, or nothing if it does
/// already. What people added stays, but for rules that were withdrawn. An object with the annotation `autoupdate: "false"` is left
/// alone.
pub(crate) fn reconciled(existing: Option<&Value>, expected: &Value) -> Option<Value> {
    let Some(existing) = existing else {
        return Some(expected.clone());
    };
    let annotations = object::at(existing, "metadata.annotations");
    if annotations.get(AUTO_UPDATE).and_then(Value::as_str) == Some("false") {
        return None;
    }
    if existing.get("roleRef") != expected.get("roleRef") {
        // A binding's role cannot be changed; the server deletes and creates it when this comes
        // back.
        return Some(expected.clone());
    }
    let mut merged = existing.clone();
    for key in ["labels", "annotations"] {
        add_missing_keys(&mut merged, expected, key);
    }
    withdraw_rules(&mut merged);
    add_missing_rules(&mut merged, expected);
    add_missing_items(object::map(&mut merged), expected, "subjects");
    merge_aggregation(&mut merged, expected);
    (merged != *existing).then_some(merged)
}

fn add_missing_keys(merged: &mut Value, expected: &Value, key: &str) {
    let Some(wanted) = object::at(expected, "metadata")
        .get(key)
        .and_then(Value::as_object)
    else {
        return;
    };
    let metadata = object::child(merged, "metadata");
    let target = object::map(metadata.entry(key).or_insert_with(|| Map::new().into()));
    for (key, value) in wanted {
        target.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

fn withdraw_rules(merged: &mut Value) {
    let gone = withdrawn(object::namespace(merged), object::name(merged));
    if let Some(Value::Array(rules)) = merged.get_mut("rules") {
        rules.retain(|rule| Rule::parse(rule).is_none_or(|rule| !gone.contains(&rule)));
    }
}

fn add_missing_rules(merged: &mut Value, expected: &Value) {
    let own = Rule::parse_all(object::at(merged, "rules"));
    let missing = uncovered(&own, &Rule::parse_all(object::at(expected, "rules")));
    if !missing.is_empty() {
        let mut rules = object::items(merged, "rules").to_vec();
        rules.extend(missing.iter().map(Rule::to_value));
        object::map(merged).insert("rules".into(), rules.into());
    }
}

fn merge_aggregation(merged: &mut Value, expected: &Value) {
    match expected.get("aggregationRule") {
        // A role that was not meant to gather from others must not.
        None => {
            object::map(merged).remove("aggregationRule");
        }
        Some(wanted) => add_missing_items(
            object::child(merged, "aggregationRule"),
            wanted,
            "clusterRoleSelectors",
        ),
    }
}

/// Append the items of `expected[key]` that are not in the list yet.
fn add_missing_items(merged: &mut Map<String, Value>, expected: &Value, key: &str) {
    let own = merged
        .get(key)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let missing: Vec<Value> = object::items(expected, key)
        .iter()
        .filter(|item| !own.contains(item))
        .cloned()
        .collect();
    if !missing.is_empty() {
        merged.insert(key.to_owned(), [own, missing].concat().into());
    }
}
