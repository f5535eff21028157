use super::*;
use crate::schema::schema;
use serde_json::json;

fn service(object: Value, patch: Value) -> Result<Value> {
    apply(schema(), "Service", object, &patch)
}

fn ports(live: &[u16], patch: Value) -> Result<Vec<u64>> {
    let live: Vec<Value> = live.iter().map(|port| json!({"port": port})).collect();
    let patched = service(json!({"spec": {"ports": live}}), json!({"spec": patch}))?;
    Ok(crate::object::items(&patched, "spec.ports")
        .iter()
        .filter_map(|port| port["port"].as_u64())
        .collect())
}

#[test]
fn maps_merge_and_obey_directives() {
    let live = || json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"type": "NodePort", "selector": {"x": "y"}}});
    for (patch, path, expected) in [
        (
            json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
            "metadata.labels",
            json!({"b": "2", "c": "3"}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "replace", "c": "3"}}}),
            "metadata.labels",
            json!({"c": "3"}),
        ),
        (
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            "metadata.labels",
            json!({}),
        ),
        (json!({"metadata": {"labels": null}}), "metadata", json!({})),
        (
            json!({"metadata": {"annotations": {"a": null, "b": "1"}}}),
            "metadata.annotations",
            json!({"b": "1"}),
        ),
        (
            json!({"metadata": {"annotations": {"$patch": "delete"}}}),
            "metadata.annotations",
            json!(null),
        ),
        (
            json!({"spec": {"$retainKeys": ["type"], "type": "ClusterIP"}}),
            "spec",
            json!({"type": "ClusterIP"}),
        ),
        (json!({"spec": {"type": 1}}), "spec.type", json!(1)),
        (json!({"spec": "x"}), "spec", json!("x")),
        (json!(null), "spec.type", json!("NodePort")),
    ] {
        let patched = service(live(), patch.clone()).unwrap();
        assert_eq!(*crate::object::at(&patched, path), expected, "{patch}");
    }
}

#[test]
fn lists_merge_by_key_in_the_order_of_the_patch() {
    for (live, patch, expected) in [
        (
            &[80, 443][..],
            json!({"ports": [{"port": 80}, {"port": 53}]}),
            &[80, 53, 443][..],
        ),
        (&[80, 443], json!({"ports": [{"port": 443}]}), &[80, 443]),
        (
            &[1, 2, 3],
            json!({"ports": [{"port": 3}, {"port": 1}]}),
            &[2, 3, 1],
        ),
        (&[1, 2, 3], json!({"ports": [{"port": 9}]}), &[9, 1, 2, 3]),
        (
            &[1, 2, 3],
            json!({"ports": [{"port": 2, "$patch": "delete"}]}),
            &[1, 3],
        ),
        (
            &[1, 2, 3],
            json!({"ports": [{"port": 7, "$patch": "delete"}]}),
            &[1, 2, 3],
        ),
        (
            &[1, 2],
            json!({"ports": [{"port": 5}, {"$patch": "replace"}]}),
            &[5],
        ),
        (&[1, 2], json!({"ports": [{"$patch": "replace"}]}), &[]),
        (&[1, 2], json!({"ports": []}), &[1, 2]),
        (&[1, 2], json!({"ports": null}), &[]),
        (
            &[],
            json!({"ports": [{"port": 5}, {"port": 6, "$patch": "delete"}]}),
            &[5],
        ),
        (&[1, 1, 2], json!({"ports": [{"port": 2}]}), &[1, 1, 2]),
        (
            &[1, 2, 3],
            json!({"$setElementOrder/ports": [{"port": 3}, {"port": 1}]}),
            &[2, 3, 1],
        ),
        (
            &[1, 2, 3],
            json!({"$setElementOrder/ports": [{"port": 3}, {"port": 4}, {"port": 1}], "ports": [{"port": 4}]}),
            &[2, 3, 4, 1],
        ),
        (
            &[],
            json!({"$setElementOrder/ports": [{"port": 2}, {"port": 1}], "ports": [{"port": 1}]}),
            &[1],
        ),
    ] {
        assert_eq!(
            ports(live, patch.clone()).unwrap(),
            expected,
            "{live:?} {patch}"
        );
    }
}

#[test]
fn items_merge_their_fields() {
    let live = json!({"spec": {"ports": [{"port": 80, "name": "http", "targetPort": 80}]}});
    let patch = json!({"spec": {"ports": [{"port": 80, "targetPort": 8080, "name": null}]}});
    assert_eq!(
        service(live, patch).unwrap(),
        json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}})
    );
}

#[test]
fn plain_values_merge_or_replace_as_the_schema_says() {
    let live = || json!({"metadata": {"finalizers": ["a", "b", "c"]}, "spec": {"externalIPs": ["1.1.1.1"]}});
    for (patch, path, expected) in [
        (
            json!({"metadata": {"finalizers": ["d", "b"]}}),
            "metadata.finalizers",
            json!(["d", "a", "b", "c"]),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}}),
            "metadata.finalizers",
            json!(["a", "c"]),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"], "finalizers": ["d"]}}),
            "metadata.finalizers",
            json!(["d", "a", "c"]),
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["c", "b", "a"]}}),
            "metadata.finalizers",
            json!(["c", "b", "a"]),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/nothing": ["b"]}}),
            "metadata.nothing",
            json!(null),
        ),
        (
            json!({"spec": {"externalIPs": ["2.2.2.2"]}}),
            "spec.externalIPs",
            json!(["2.2.2.2"]),
        ),
        (
            json!({"spec": {"$deleteFromPrimitiveList/externalIPs": ["1.1.1.1"]}}),
            "spec.externalIPs",
            json!([]),
        ),
    ] {
        let patched = service(live(), patch.clone()).unwrap();
        assert_eq!(*crate::object::at(&patched, path), expected, "{patch}");
    }
}

#[test]
fn mistakes_are_client_errors() {
    for (patch, code) in [
        (json!([]), 400),
        (json!({"$patch": "merge"}), 400),
        (json!({"$patch": 1}), 400),
        (json!({"spec": {"ports": [{"name": "x"}]}}), 400),
        (json!({"spec": {"ports": [{"$patch": "delete"}]}}), 400),
        (
            json!({"spec": {"ports": [{"port": 80, "$patch": "merge"}]}}),
            400,
        ),
        (
            json!({"spec": {"ports": [{"port": 80, "$patch": "upsert"}]}}),
            400,
        ),
        (json!({"spec": {"ports": ["x"]}}), 400),
        (json!({"spec": {"ports": [null]}}), 400),
        (json!({"metadata": {"finalizers": [["x"]]}}), 400),
        (json!({"spec": {"$retainKeys": "type"}}), 400),
        (
            json!({"spec": {"$retainKeys": ["type"], "clusterIP": "x"}}),
            400,
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["x"]}}),
            400,
        ),
        (json!({"spec": {"$setElementOrder": []}}), 400),
        (json!({"spec": {"$setElementOrder/ports": "x"}}), 400),
        (
            json!({"spec": {"$setElementOrder/ports": [{"name": "x"}]}}),
            400,
        ),
        (
            json!({"spec": {"$setElementOrder/ports": [{"port": 1}], "ports": [{"port": 2}]}}),
            400,
        ),
        (
            json!({"spec": {"$setElementOrder/ports": [{"port": 1}], "ports": null}}),
            400,
        ),
    ] {
        let live = json!({"metadata": {"finalizers": ["a"]}, "spec": {"ports": [{"port": 80}], "type": "ClusterIP"}});
        assert_eq!(
            service(live, patch.clone()).unwrap_err().code,
            code,
            "{patch}"
        );
    }
    let error = apply(
        schema(),
        "Service",
        json!({"metadata": {"finalizers": [["a"]]}}),
        &json!({"metadata": {"finalizers": [["x"]]}}),
    );
    assert_eq!(error.unwrap_err().code, 422);
}
