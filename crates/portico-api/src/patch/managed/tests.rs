use super::*;
use crate::schema::schema;
use crate::status::ApiError;
use proptest::prelude::*;
use serde_json::json;

mod applying;
mod updating;

fn owners<'a>(manager: &'a str, now: &'a str) -> Owners<'a> {
    Owners {
        schema: schema(),
        type_name: "Service",
        api_version: "v1",
        manager,
        subresource: "",
        now,
    }
}

/// A Service as it is stored: with what is always written.
fn service(spec: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n", "uid": "u"},
        "spec": spec, "status": {"loadBalancer": {}},
    })
}

fn applied(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec})
}

fn create(manager: &str, mut object: Value) -> Value {
    owners(manager, "t0").update(None, &mut object);
    object
}

fn update(manager: &str, now: &str, live: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut new = live.clone();
    change(&mut new);
    owners(manager, now).update(Some(live), &mut new);
    new
}

/// The fields of a manager, or null.
fn owned(object: &Value, manager: &str, operation: &str) -> Value {
    let entries = object::items(object, "metadata.managedFields");
    let entry = entries
        .iter()
        .find(|entry| entry["manager"] == manager && entry["operation"] == operation);
    entry.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

fn managers(object: &Value) -> Vec<(&str, &str, &str)> {
    object::items(object, "metadata.managedFields")
        .iter()
        .map(|entry| {
            (
                object::text(entry, "manager"),
                object::text(entry, "operation"),
                object::text(entry, "time"),
            )
        })
        .collect()
}

#[test]
fn the_manager_is_named_by_parameter_or_agent() {
    for (parameter, agent, expected) in [
        ("me", "kubectl/v1.36", "me"),
        ("", "kubectl/v1.36 (linux/amd64)", "kubectl"),
        ("", "curl", "curl"),
        ("", "", ""),
        ("", "a\u{7}b\u{200b}c d\\é/1", "abc d\\é"),
    ] {
        assert_eq!(manager_name(parameter, agent), expected);
    }
    assert_eq!(manager_name("", &"é".repeat(100)).len(), 128);
    assert_eq!(
        manager_name("", &format!("x{}", "é".repeat(100))).len(),
        127
    );
}

#[test]
fn bad_manager_names_are_reported() {
    let path = field::Path::new("fieldManager");
    assert!(manager_problems(&path, "kubectl client-side").is_empty());
    assert_eq!(manager_problems(&path, &"x".repeat(129)).len(), 1);
    assert_eq!(manager_problems(&path, "a\nb\u{0}").len(), 2);
}
