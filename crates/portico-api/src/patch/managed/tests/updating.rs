//! Ownership by create, update and patch.

use super::*;

#[test]
fn a_new_object_belongs_to_its_creator() {
    let mut object = service(
        json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "selector": {"a": "b"}, "type": "ClusterIP"}),
    );
    object["metadata"]["labels"] = json!({"x": "y"});
    object["metadata"]["finalizers"] = json!(["f"]);
    let object = create("me", object);
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{
            "manager": "me", "operation": "Update", "apiVersion": "v1", "time": "t0", "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:finalizers": {".": {}, "v:\"f\"": {}},
                    "f:labels": {".": {}, "f:x": {}},
                },
                "f:spec": {
                    "f:ports": {
                        ".": {},
                        "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}},
                    },
                    "f:selector": {},
                    "f:type": {},
                },
            },
        }])
    );
}

#[test]
fn an_unnamed_creator_is_unknown() {
    assert_eq!(
        managers(&create("", service(json!({"type": "ClusterIP"})))),
        [("unknown", "Update", "t0")]
    );
}

#[test]
fn a_change_moves_ownership() {
    let live = create(
        "one",
        service(json!({"type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "1.1.1.1"})),
    );
    let new = update("two", "t1", &live, |new| {
        new["spec"]["sessionAffinity"] = json!("ClientIP");
        new["spec"]["externalName"] = json!("x");
        object::map(&mut new["spec"]).remove("clusterIP");
    });
    assert_eq!(
        owned(&new, "one", "Update"),
        json!({"f:spec": {"f:type": {}}})
    );
    assert_eq!(
        owned(&new, "two", "Update"),
        json!({"f:spec": {"f:externalName": {}, "f:sessionAffinity": {}}})
    );
    assert_eq!(
        managers(&new),
        [("one", "Update", "t0"), ("two", "Update", "t1")]
    );
}

#[test]
fn managers_that_own_nothing_vanish() {
    let live = create("one", service(json!({"type": "ClusterIP"})));
    let new = update("two", "t1", &live, |new| {
        new["spec"]["type"] = json!("NodePort")
    });
    assert_eq!(managers(&new), [("two", "Update", "t1")]);
}

#[test]
fn an_update_that_changes_nothing_changes_nothing() {
    let live = create("one", service(json!({"type": "ClusterIP"})));
    assert_eq!(update("two", "t1", &live, |_| {}), live);
    // A client that knows nothing of managedFields does not delete them.
    assert_eq!(
        update("two", "t1", &live, |new| drop(take_managed(new))),
        live
    );
}

#[test]
fn removing_gives_the_remover_nothing() {
    let live = create(
        "one",
        service(json!({"type": "ClusterIP", "externalName": "x"})),
    );
    let new = update("two", "t1", &live, |new| {
        object::map(&mut new["spec"]).remove("externalName");
    });
    assert_eq!(managers(&new), [("one", "Update", "t0")]);
    assert_eq!(
        owned(&new, "one", "Update"),
        json!({"f:spec": {"f:type": {}}})
    );
}

#[test]
fn list_items_are_owned_one_by_one() {
    let live = create(
        "one",
        service(
            json!({"ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}]}),
        ),
    );
    let new = update("two", "t1", &live, |new| {
        new["spec"]["ports"] =
            json!([{"port": 82, "protocol": "TCP"}, {"port": 80, "protocol": "TCP", "name": "x"}]);
    });
    let item = |port: u16| format!("k:{{\"port\":{port},\"protocol\":\"TCP\"}}");
    let whole = || json!({".": {}, "f:port": {}, "f:protocol": {}});
    assert_eq!(
        owned(&new, "one", "Update"),
        json!({"f:spec": {"f:ports": {".": {}, item(80): whole()}}})
    );
    assert_eq!(
        owned(&new, "two", "Update"),
        json!({"f:spec": {"f:ports": {item(80): {"f:name": {}}, item(82): whole()}}})
    );
}

#[test]
fn duplicates_are_one_value() {
    let double = json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]);
    let live = create("one", service(json!({"ports": double})));
    let key = "k:{\"port\":80,\"protocol\":\"TCP\"}";
    assert_eq!(
        owned(&live, "one", "Update"),
        json!({"f:spec": {"f:ports": {".": {}, key: {}}}})
    );
    assert_eq!(update("two", "t1", &live, |_| {}), live);
    let single = update("two", "t1", &live, |new| {
        new["spec"]["ports"] = json!([{"port": 80, "name": "b"}])
    });
    assert_eq!(
        owned(&single, "one", "Update"),
        json!({"f:spec": {"f:ports": {}}})
    );
    assert_eq!(
        owned(&single, "two", "Update"),
        json!({"f:spec": {"f:ports": {key: {".": {}, "f:name": {}, "f:port": {}}}}})
    );
    let again = update("three", "t2", &single, |new| {
        new["spec"]["ports"] = double.clone()
    });
    assert_eq!(
        owned(&again, "three", "Update"),
        json!({"f:spec": {"f:ports": {key: {}}}})
    );
    assert_eq!(owned(&again, "two", "Update"), json!(null));
}

#[test]
fn each_subresource_owns_its_half() {
    let live = create("one", service(json!({"type": "LoadBalancer"})));
    let status = |new: &mut Value| {
        new["status"]["loadBalancer"] = json!({"ingress": [{"ip": "1.1.1.1"}]});
        new["spec"]["type"] = json!("NodePort");
    };
    assert_eq!(
        owned(
            &update("two", "t1", &live, |new| new["status"] = json!({"x": 1})),
            "two",
            "Update"
        ),
        json!(null)
    );

    let mut new = live.clone();
    status(&mut new);
    Owners {
        subresource: "status",
        ..owners("two", "t1")
    }
    .update(Some(&live), &mut new);
    let entry = &new["metadata"]["managedFields"][1];
    assert_eq!(
        (&entry["manager"], &entry["subresource"]),
        (&json!("two"), &json!("status"))
    );
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}})
    );
    assert_eq!(
        owned(&new, "one", "Update"),
        json!({"f:spec": {"f:type": {}}})
    );
    // Sent managedFields count only on the object itself.
    let mut reset = new.clone();
    reset["metadata"]["managedFields"] = json!([]);
    Owners {
        subresource: "status",
        ..owners("two", "t2")
    }
    .update(Some(&new), &mut reset);
    assert_eq!(reset, new);
}

#[test]
fn clients_can_rewrite_and_reset_owners() {
    let live = create("one", service(json!({"type": "ClusterIP"})));
    let decoded = crate::codec::conform(schema(), "ObjectMeta", json!({"managedFields": []}))
        .unwrap()
        .0;
    for reset in [json!([]), json!([{}]), decoded["managedFields"].clone()] {
        let mut new = update("two", "t1", &live, |new| {
            new["metadata"]["managedFields"] = reset
        });
        assert!(new["metadata"].get("managedFields").is_none());
        // From then on it is not tracked.
        let untracked = new.clone();
        new["spec"]["type"] = json!("NodePort");
        owners("two", "t2").update(Some(&untracked), &mut new);
        assert!(new["metadata"].get("managedFields").is_none());
    }
    let entry = |manager: &str| json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:type": {}}}});
    let new = update("two", "t1", &live, |new| {
        new["metadata"]["managedFields"] = json!([entry("three")])
    });
    assert_eq!(managers(&new), [("three", "Apply", "")]);
    for (name, value) in [
        ("operation", json!("Guess")),
        ("fieldsType", json!("")),
        ("apiVersion", json!("")),
        ("fieldsV1", json!({"x": {}})),
    ] {
        let mut bad = entry("three");
        bad[name] = value;
        assert_eq!(
            update("two", "t1", &live, |new| new["metadata"]["managedFields"] =
                json!([bad])),
            live,
            "{name}"
        );
    }
}

#[test]
fn owners_of_another_version_are_dropped() {
    let mut live = create("one", service(json!({"type": "ClusterIP"})));
    let mut old = live["metadata"]["managedFields"][0].clone();
    (old["apiVersion"], old["manager"]) = (json!("v0"), json!("old"));
    live["metadata"]["managedFields"]
        .as_array_mut()
        .unwrap()
        .push(old);
    let new = update("two", "t1", &live, |new| {
        new["spec"]["externalName"] = json!("x")
    });
    assert_eq!(
        managers(&new),
        [("one", "Update", "t0"), ("two", "Update", "t1")]
    );
}

#[test]
fn granular_owners_of_what_became_atomic_own_it_whole() {
    let mut live = create(
        "one",
        service(json!({"type": "ClusterIP", "selector": {"a": "b"}})),
    );
    live["metadata"]["managedFields"][0]["fieldsV1"] =
        json!({"f:spec": {"f:selector": {".": {}, "f:a": {}}}});
    let new = update("two", "t1", &live, |new| {
        new["spec"]["externalName"] = json!("x")
    });
    assert_eq!(
        owned(&new, "one", "Update"),
        json!({"f:spec": {"f:selector": {}}})
    );
}

#[test]
fn old_updaters_are_summed_up() {
    let mut live = create("m00", service(json!({"type": "ClusterIP"})));
    for count in 1..13 {
        let (name, now) = (format!("m{count:02}"), format!("t{count:02}"));
        live = update(&name, &now, &live, |new| {
            new["metadata"]["labels"][&name] = json!("x")
        });
    }
    let names: Vec<_> = managers(&live).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(
        names,
        [
            "ancient-changes",
            "m04",
            "m05",
            "m06",
            "m07",
            "m08",
            "m09",
            "m10",
            "m11",
            "m12"
        ]
    );
    assert_eq!(managers(&live)[0], ("ancient-changes", "Update", "t03"));
    let labels = json!({".": {}, "f:m01": {}, "f:m02": {}, "f:m03": {}});
    assert_eq!(
        owned(&live, "ancient-changes", "Update"),
        json!({"f:metadata": {"f:labels": labels}, "f:spec": {"f:type": {}}})
    );
}

#[test]
fn times_alone_are_no_change() {
    let live = create("one", service(json!({"type": "ClusterIP"})));
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("t9");
    let later = new.clone();
    keep_times(&live, &mut new);
    assert_eq!(new, live);

    let mut new = later.clone();
    new["spec"]["type"] = json!("NodePort");
    keep_times(&live, &mut new);
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "t9");

    let mut new = later;
    new["metadata"]["managedFields"][0]["manager"] = json!("two");
    keep_times(&live, &mut new);
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "t9");
}
