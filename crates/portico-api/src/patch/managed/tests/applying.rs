//! Server-side apply.

use super::*;

fn apply(manager: &str, now: &str, live: Option<&Value>, spec: Value) -> Result<Value, ApiError> {
    owners(manager, now).apply(live, &applied(spec), false)
}

fn port(number: u16) -> Value {
    json!({"port": number, "protocol": "TCP", "targetPort": number})
}

#[test]
fn a_first_apply_creates() {
    let object = apply(
        "me",
        "t0",
        None,
        json!({"ports": [{"port": 80}], "selector": {"a": "b"}}),
    )
    .unwrap();
    // What is always written is there, and has no owner.
    assert_eq!(
        object["spec"],
        json!({"ports": [{"port": 80, "targetPort": 0}], "selector": {"a": "b"}})
    );
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "manager": "me", "operation": "Apply", "apiVersion": "v1", "time": "t0", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {
                "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
                "f:selector": {},
            }},
        }])
    );
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let mut live = apply(
        "me",
        "t0",
        None,
        json!({"ports": [{"port": 80}], "type": "ClusterIP"}),
    )
    .unwrap();
    // What the server adds afterwards has no owner.
    live["spec"]["ports"][0]["protocol"] = json!("TCP");
    live["spec"]["clusterIP"] = json!("1.1.1.1");
    let again = apply(
        "me",
        "t1",
        Some(&live),
        json!({"ports": [{"port": 80}], "type": "ClusterIP"}),
    )
    .unwrap();
    assert_eq!(again, live);
}

#[test]
fn what_is_left_out_goes() {
    let mut live = apply(
        "me",
        "t0",
        None,
        json!({"ports": [port(80), port(81)], "externalName": "x", "type": "ClusterIP"}),
    )
    .unwrap();
    live["spec"]["clusterIP"] = json!("1.1.1.1");
    let new = apply(
        "me",
        "t1",
        Some(&live),
        json!({"ports": [port(81)], "type": "ClusterIP"}),
    )
    .unwrap();
    assert_eq!(
        new["spec"],
        json!({"ports": [port(81)], "type": "ClusterIP", "clusterIP": "1.1.1.1"})
    );
    assert_eq!(managers(&new), [("me", "Apply", "t1")]);
}

#[test]
fn what_others_hold_stays() {
    let live = apply(
        "one",
        "t0",
        None,
        json!({"type": "ClusterIP", "externalName": "x", "ports": [port(80)]}),
    )
    .unwrap();
    // The same value is shared, without a conflict and without a change.
    let live = apply(
        "two",
        "t1",
        Some(&live),
        json!({"externalName": "x", "ports": [port(80)]}),
    )
    .unwrap();
    assert_eq!(
        managers(&live),
        [("two", "Apply", ""), ("one", "Apply", "t0")]
    );
    let new = apply("one", "t2", Some(&live), json!({"type": "ClusterIP"})).unwrap();
    assert_eq!(
        new["spec"],
        json!({"type": "ClusterIP", "externalName": "x", "ports": [port(80)]})
    );
    assert_eq!(
        owned(&new, "one", "Apply"),
        json!({"f:spec": {"f:type": {}}})
    );
    let new = apply("two", "t3", Some(&new), json!({})).unwrap();
    assert_eq!(new["spec"], json!({"type": "ClusterIP"}));
    // An empty struct is a field too.
    assert_eq!(owned(&new, "two", "Apply"), json!({"f:spec": {}}));
    assert_eq!(
        managers(&new),
        [("one", "Apply", "t0"), ("two", "Apply", "t3")]
    );
}

#[test]
fn an_item_goes_with_its_only_owner_even_if_others_own_parts_of_it() {
    let live = apply("one", "t0", None, json!({"ports": [port(80)]})).unwrap();
    let live = update("two", "t1", &live, |new| {
        new["spec"]["ports"][0]["name"] = json!("x")
    });
    let new = apply("one", "t2", Some(&live), json!({"type": "ClusterIP"})).unwrap();
    assert_eq!(new["spec"], json!({"type": "ClusterIP"}));
    assert_eq!(managers(&new), [("one", "Apply", "t2")]);
}

#[test]
fn a_list_goes_with_its_last_owner_and_takes_what_nobody_owns() {
    let mut live = apply(
        "one",
        "t0",
        None,
        json!({"ports": [port(80)], "type": "ClusterIP"}),
    )
    .unwrap();
    live["spec"]["ports"][0]["nodePort"] = json!(30000);
    live["spec"]["ports"]
        .as_array_mut()
        .unwrap()
        .push(json!({"port": 9, "protocol": "UDP", "targetPort": 9}));
    let new = apply("one", "t1", Some(&live), json!({"type": "ClusterIP"})).unwrap();
    assert_eq!(new["spec"].get("ports"), None);
    // While a manager owns anything in it, what has no owner stays.
    let live = update("two", "t1", &live, |new| {
        new["spec"]["ports"][0]["name"] = json!("x")
    });
    let new = apply("one", "t1", Some(&live), json!({"type": "ClusterIP"})).unwrap();
    assert_eq!(
        new["spec"]["ports"],
        json!([{"port": 9, "protocol": "UDP", "targetPort": 9}])
    );
}

#[test]
fn a_different_value_conflicts() {
    let live = apply(
        "one",
        "t0",
        None,
        json!({"sessionAffinity": "ClientIP", "ports": [port(80)]}),
    )
    .unwrap();
    let error = apply("two", "t1", Some(&live), json!({"sessionAffinity": "None"})).unwrap_err();
    assert_eq!((error.code, error.reason), (409, "Conflict"));
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.sessionAffinity"
    );
    let cause = json!({"field": ".spec.sessionAffinity", "reason": "FieldManagerConflict", "message": "conflict with \"one\""});
    assert_eq!(error.details["causes"], json!([cause]));

    let live = update("up", "t1", &live, |new| {
        new["spec"]["ports"][0]["name"] = json!("x")
    });
    let wanted = json!({"sessionAffinity": "None", "ports": [{"port": 80, "name": "y"}]});
    let error = apply("two", "t1", Some(&live), wanted.clone()).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.sessionAffinity\nconflicts with \"up\" using v1:\n\
         - .spec.ports[port=80,protocol=\"TCP\"].name"
    );

    let forced = owners("two", "t2")
        .apply(Some(&live), &applied(wanted), true)
        .unwrap();
    assert_eq!(forced["spec"]["sessionAffinity"], "None");
    assert_eq!(
        forced["spec"]["ports"],
        json!([{"port": 80, "protocol": "TCP", "targetPort": 80, "name": "y"}])
    );
    assert_eq!(
        managers(&forced),
        [("one", "Apply", "t0"), ("two", "Apply", "t2")]
    );
    let item = json!({".": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}});
    assert_eq!(
        owned(&forced, "one", "Apply"),
        json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": item}}})
    );
}

#[test]
fn the_same_name_applies_and_updates_as_two() {
    let live = create("me", service(json!({"type": "ClusterIP"})));
    let error = apply("me", "t1", Some(&live), json!({"type": "NodePort"})).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"me\" using v1: .spec.type"
    );
    let live = apply("me", "t1", Some(&live), json!({"type": "ClusterIP"})).unwrap();
    assert_eq!(
        managers(&live),
        [("me", "Apply", ""), ("me", "Update", "t0")]
    );
}

#[test]
fn an_untracked_object_belongs_to_before() {
    let live = service(json!({"type": "ClusterIP", "externalName": "x"}));
    let error = apply("me", "t1", Some(&live), json!({"type": "NodePort"})).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .spec.type"
    );
    let new = apply(
        "me",
        "t1",
        Some(&live),
        json!({"type": "ClusterIP", "clusterIP": "1.1.1.1"}),
    )
    .unwrap();
    assert_eq!(
        managers(&new),
        [
            ("me", "Apply", "t1"),
            ("before-first-apply", "Update", "t1")
        ]
    );
    assert_eq!(
        owned(&new, "before-first-apply", "Update"),
        json!({"f:spec": {"f:externalName": {}, "f:type": {}}})
    );
}

#[test]
fn items_are_interleaved() {
    for (live, wanted, expected) in [
        (&[1, 2, 3][..], &[3, 1][..], &[2, 3, 1][..]),
        (&[1, 2, 3], &[4], &[1, 2, 3, 4]),
        (&[1, 2, 3], &[1, 4, 3], &[1, 2, 4, 3]),
        (&[1, 2, 3], &[4, 2], &[1, 4, 2, 3]),
        (&[], &[2, 1], &[2, 1]),
        (&[1, 2], &[2, 1], &[2, 1]),
        (&[1, 2, 3, 4], &[4, 3, 2, 1], &[4, 3, 2, 1]),
    ] {
        let list =
            |numbers: &[u16]| -> Value { numbers.iter().map(|number| port(*number)).collect() };
        let live = create("one", service(json!({"ports": list(live)})));
        let new = apply("two", "t1", Some(&live), json!({"ports": list(wanted)})).unwrap();
        assert_eq!(new["spec"]["ports"], list(expected), "{live} {wanted:?}");
    }
}

#[test]
fn live_duplicates_are_tolerated() {
    let item = |port: u16, target: u16| json!({"port": port, "targetPort": target});
    let live = create(
        "one",
        service(json!({"ports": [item(80, 1), item(80, 2), item(81, 3)]})),
    );
    let new = apply("two", "t1", Some(&live), json!({"ports": [item(82, 4)]})).unwrap();
    assert_eq!(
        new["spec"]["ports"],
        json!([item(80, 1), item(80, 2), item(81, 3), item(82, 4)])
    );
    let wanted = applied(json!({"ports": [item(80, 5)]}));
    let new = owners("two", "t1")
        .apply(Some(&live), &wanted, true)
        .unwrap();
    assert_eq!(new["spec"]["ports"], json!([item(80, 5), item(81, 3)]));
}

#[test]
fn mistakes_are_bad_requests() {
    let mut managed = applied(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    let mut metadata = applied(json!({}));
    metadata["metadata"]["finalizers"] = json!(["x", "x"]);
    for (object, expected) in [
        (managed, "metadata.managedFields must be nil"),
        (
            json!({"apiVersion": "v2", "kind": "Service"}),
            "invalid object type",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod"}),
            "invalid object type",
        ),
        (json!({}), "invalid object type"),
        (
            applied(json!({"nope": 1})),
            ".spec.nope: field not declared in schema",
        ),
        (
            applied(json!({"type": 1})),
            ".spec.type: expected string, got 1",
        ),
        (applied(json!({"ports": "x"})), ".spec.ports: expected list"),
        (applied(json!({"ports": [1]})), "non-map elements"),
        (applied(json!({"ports": [null]})), "non-map elements"),
        (
            applied(json!({"ports": [{"port": "x"}]})),
            ".spec.ports[port=\"x\",protocol=\"TCP\"].port: expected numeric",
        ),
        (
            applied(json!({"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]})),
            "duplicate entries for key [port=80,protocol=\"TCP\"]",
        ),
        (
            applied(json!({"selector": {"a": {}}})),
            ".spec.selector.a: expected string",
        ),
        (
            applied(json!({"clusterIPs": [1]})),
            ".spec.clusterIPs[0]: expected string",
        ),
        (applied(json!(1)), ".spec: expected map"),
        (metadata, "duplicate entries for key [=\"x\"]"),
    ] {
        let error = owners("me", "t0").apply(None, &object, true).unwrap_err();
        assert_eq!(error.code, 400, "{object}");
        assert!(error.message.contains(expected), "{}", error.message);
    }
}

#[test]
fn kubectl_takes_over_what_it_applied_itself() {
    let last = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"type": "ClusterIP", "externalName": "x"}});
    let mut live = service(json!({"type": "ClusterIP", "externalName": "x"}));
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    let live = create("kubectl-client-side-apply", live);
    let wanted = json!({"type": "NodePort", "externalName": "x"});
    assert_eq!(
        apply("other", "t1", Some(&live), wanted.clone())
            .unwrap_err()
            .code,
        409
    );
    let new = apply("kubectl", "t1", Some(&live), wanted.clone()).unwrap();
    assert_eq!(new["spec"]["type"], "NodePort");
    let annotation =
        &new["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(
        serde_json::from_str::<Value>(annotation.as_str().unwrap()).unwrap(),
        applied(wanted)
    );

    // A field that another manager changed since is a conflict again.
    let live = update("editor", "t1", &live, |new| {
        new["spec"]["externalName"] = json!("y")
    });
    let error = apply(
        "kubectl",
        "t2",
        Some(&live),
        json!({"type": "NodePort", "externalName": "z"}),
    )
    .unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"editor\" using v1: .spec.externalName"
    );
}

#[test]
fn metadata_stays_when_labels_go() {
    let object = |labels: Value| {
        let mut object = applied(json!({"type": "ClusterIP"}));
        object["metadata"]["labels"] = labels;
        object
    };
    let mut live = owners("me", "t0")
        .apply(None, &object(json!({"a": "1", "b": "2"})), false)
        .unwrap();
    (
        live["metadata"]["uid"],
        live["metadata"]["creationTimestamp"],
    ) = (json!("u"), json!("2026-01-01T00:00:00Z"));
    let new = owners("me", "t1")
        .apply(Some(&live), &object(json!({"b": "2"})), false)
        .unwrap();
    assert_eq!(new["metadata"]["labels"], json!({"b": "2"}));
    let new = owners("me", "t2")
        .apply(Some(&new), &applied(json!({"type": "ClusterIP"})), false)
        .unwrap();
    assert_eq!(new["metadata"].get("labels"), None);
    assert_eq!(
        (&new["metadata"]["uid"], &new["metadata"]["name"]),
        (&json!("u"), &json!("a"))
    );
}

fn word() -> impl Strategy<Value = Value> {
    "[a-c]".prop_map(Value::from)
}

fn spec() -> impl Strategy<Value = Value> {
    let port = (1..4u16, prop::option::of(word()), prop::option::of(1..3u16)).prop_map(
        |(port, name, target)| {
            let mut item = json!({"port": port});
            name.into_iter().for_each(|name| item["name"] = name);
            target
                .into_iter()
                .for_each(|target| item["targetPort"] = json!(target));
            (port, item)
        },
    );
    let fields = prop::collection::btree_map("type|externalName|clusterIP", word(), 0..3);
    let labels = prop::collection::btree_map("[a-c]", word(), 0..3);
    (prop::collection::vec(port, 0..4), fields, labels).prop_map(|(ports, fields, selector)| {
        let mut spec: Map<String, Value> = fields.into_iter().collect();
        let mut distinct: Vec<(u16, Value)> = Vec::new();
        for (port, item) in ports {
            if distinct.iter().all(|(other, _)| *other != port) {
                distinct.push((port, item));
            }
        }
        let ports: Vec<Value> = distinct.into_iter().map(|(_, item)| item).collect();
        if !ports.is_empty() {
            spec.insert("ports".into(), ports.into());
        }
        if !selector.is_empty() {
            spec.insert("selector".into(), selector.into_iter().collect());
        }
        Value::Object(spec)
    })
}

/// Every applied value is in the result; lists by key, all else by name.
fn contains(result: &Value, applied: &Value) -> bool {
    match (result, applied) {
        (Value::Object(result), Value::Object(applied)) => applied.iter().all(|(name, value)| {
            result
                .get(name)
                .is_some_and(|result| contains(result, value))
        }),
        (Value::Array(result), Value::Array(applied)) => applied
            .iter()
            .all(|item| result.iter().any(|result| contains(result, item))),
        _ => result == applied,
    }
}

proptest! {
    #[test]
    fn apply_holds_its_promises(first in spec(), second in spec(), third in spec()) {
        let live = owners("one", "t0").apply(None, &applied(first), false).unwrap();
        let live = update("two", "t1", &live, |new| new["spec"] = second);
        let wanted = applied(third);
        let new = owners("three", "t2").apply(Some(&live), &wanted, true).unwrap();
        prop_assert!(contains(&new["spec"], &wanted["spec"]), "{} {}", new, wanted);
        // No conflict is possible any more, and applying again changes nothing.
        prop_assert_eq!(owners("three", "t3").apply(Some(&new), &wanted, false).unwrap(), new.clone());
        // What an applier gives up completely is as if it had never been, or is held by others.
        let gone = owners("three", "t4").apply(Some(&new), &applied(json!({})), false).unwrap();
        prop_assert_eq!(owned(&gone, "three", "Apply"), json!({"f:spec": {}}));
    }

    #[test]
    fn an_update_owns_all_that_is_there(first in spec(), second in spec()) {
        let mut live = service(first);
        // So that the object has an owner and is tracked.
        live["metadata"]["labels"] = json!({"a": "b"});
        let live = create("one", live);
        let new = update("two", "t1", &live, |new| new["spec"] = second);
        // Together the managers own exactly what a sole creator would.
        let sets: Vec<Value> = ["one", "two"].iter().map(|name| owned(&new, name, "Update")).collect();
        let union = sets.iter().filter_map(Set::from_json).fold(Set::default(), Set::union);
        let mut alone = new.clone();
        take_managed(&mut alone);
        let alone = create("one", alone);
        let sole = owned(&alone, "one", "Update");
        prop_assert_eq!(union, Set::from_json(&sole).unwrap_or_default());
    }
}
