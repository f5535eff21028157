use super::*;
use crate::kinds::all;
use serde_json::json;

fn kind(plural: &str, group: &str) -> Box<dyn Kind> {
    all()
        .into_iter()
        .find(|kind| kind.info().plural == plural && kind.info().group == group)
        .unwrap()
}

fn causes(errors: Errors) -> Vec<(String, &'static str)> {
    errors
        .into_iter()
        .map(|error| (error.field, error.problem.reason()))
        .collect()
}

fn create(plural: &str, metadata: Value) -> Vec<(String, &'static str)> {
    let group = if plural == "leases" {
        "coordination.k8s.io"
    } else {
        ""
    };
    causes(validate_create(
        &*kind(plural, group),
        &json!({"metadata": metadata}),
    ))
}

fn update(new: Value, old: Value) -> Vec<(String, &'static str)> {
    causes(validate_update(
        &*kind("endpoints", ""),
        &json!({"metadata": new}),
        &json!({"metadata": old}),
    ))
}

#[test]
fn good_metadata() {
    let metadata = json!({
        "name": "a", "namespace": "n", "labels": {"example.com/a": "x", "b": ""}, "annotations": {"Example.com/A": "any thing"},
        "finalizers": ["example.com/x", "kubernetes"],
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "D", "name": "d", "uid": "1", "controller": true}],
        "managedFields": [{"manager": "me", "operation": "Apply", "fieldsType": "FieldsV1"}],
    });
    assert_eq!(create("endpoints", metadata.clone()), []);
    assert_eq!(update(metadata.clone(), metadata), []);
}

#[test]
fn bad_metadata() {
    const INVALID: &str = "FieldValueInvalid";
    for (extra, field, reason) in [
        (json!({"name": null}), "metadata.name", "FieldValueRequired"),
        (json!({"name": "A"}), "metadata.name", INVALID),
        (
            json!({"generateName": "A.-"}),
            "metadata.generateName",
            INVALID,
        ),
        (
            json!({"namespace": null}),
            "metadata.namespace",
            "FieldValueRequired",
        ),
        (json!({"namespace": "a.b"}), "metadata.namespace", INVALID),
        (json!({"generation": -1}), "metadata.generation", INVALID),
        (json!({"labels": {"a b": ""}}), "metadata.labels", INVALID),
        (json!({"labels": {"a": "-"}}), "metadata.labels", INVALID),
        (
            json!({"annotations": {"-": ""}}),
            "metadata.annotations",
            INVALID,
        ),
        (
            json!({"annotations": {"a": "x".repeat(256 << 10)}}),
            "metadata.annotations",
            "FieldValueTooLong",
        ),
        (
            json!({"finalizers": ["a"]}),
            "metadata.finalizers[0]",
            INVALID,
        ),
        (
            json!({"finalizers": ["orphan", "foregroundDeletion"]}),
            "metadata.finalizers",
            INVALID,
        ),
        (
            json!({"ownerReferences": [{"apiVersion": "a/", "kind": "D", "name": "d", "uid": "1"}]}),
            "metadata.ownerReferences.apiVersion",
            INVALID,
        ),
        (
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "D", "name": "d"}]}),
            "metadata.ownerReferences.uid",
            INVALID,
        ),
        (
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "d", "uid": "1"}]}),
            "metadata.ownerReferences",
            INVALID,
        ),
        (
            json!({"managedFields": [{"operation": "Create"}]}),
            "metadata.managedFields[0].operation",
            INVALID,
        ),
        (
            json!({"managedFields": [{"operation": "Apply", "manager": "a\n"}]}),
            "metadata.managedFields[0].manager",
            INVALID,
        ),
    ] {
        let mut metadata = json!({"name": "a", "namespace": "n"});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        assert_eq!(
            create("endpoints", metadata),
            [(field.to_owned(), reason)],
            "{extra}"
        );
    }
}

#[test]
fn two_controllers() {
    let owner =
        json!({"apiVersion": "v1", "kind": "D", "name": "d", "uid": "1", "controller": true});
    let found = create(
        "endpoints",
        json!({"name": "a", "namespace": "n", "ownerReferences": [owner, owner]}),
    );
    assert_eq!(
        found,
        [("metadata.ownerReferences".to_owned(), "FieldValueInvalid")]
    );
}

#[test]
fn a_cluster_wide_object_has_no_namespace() {
    assert_eq!(create("nodes", json!({"name": "a"})), []);
    let found = create("nodes", json!({"name": "a", "namespace": "n"}));
    assert_eq!(
        found,
        [("metadata.namespace".to_owned(), "FieldValueForbidden")]
    );
}

#[test]
fn a_lease_takes_any_qualified_finalizer() {
    assert_eq!(
        create(
            "leases",
            json!({"name": "a", "namespace": "n", "finalizers": ["hold"]})
        ),
        []
    );
}

#[test]
fn updates_keep_identity() {
    let old = json!({"name": "a", "namespace": "n", "uid": "1", "creationTimestamp": "2024-01-02T03:04:05Z", "generation": 2});
    for (key, value) in [
        ("name", json!("b")),
        ("uid", json!("2")),
        ("generation", json!(1)),
        ("deletionTimestamp", json!("x")),
    ] {
        let mut new = old.clone();
        new[key] = value;
        assert_eq!(
            update(new, old.clone()),
            [(format!("metadata.{key}"), "FieldValueInvalid")],
            "{key}"
        );
    }
}

#[test]
fn finalizers_are_not_added_late() {
    let old = json!({"name": "a", "namespace": "n", "deletionTimestamp": "2024-01-02T03:04:05Z", "finalizers": ["a.b/c", "a.b/d"]});
    let mut new = old.clone();
    new["finalizers"] = json!(["a.b/d"]);
    assert_eq!(update(new.clone(), old.clone()), []);
    new["finalizers"] = json!(["a.b/d", "a.b/e"]);
    assert_eq!(
        update(new, old),
        [("metadata.finalizers".to_owned(), "FieldValueForbidden")]
    );
}

#[test]
fn a_lease_update_needs_a_version() {
    let lease = kind("leases", "coordination.k8s.io");
    let object = json!({"metadata": {"name": "a", "namespace": "n"}});
    let found = causes(validate_update(&*lease, &object, &object));
    assert_eq!(
        found,
        [("metadata.resourceVersion".to_owned(), "FieldValueInvalid")]
    );
}

#[test]
fn preparation() {
    let mut created = json!({"metadata": {"name": "a", "uid": "mine", "deletionTimestamp": "x", "generation": 7}});
    prepare_create(&mut created, "1", "2024-01-02T03:04:05Z");
    let wanted = json!({"name": "a", "uid": "1", "creationTimestamp": "2024-01-02T03:04:05Z", "generation": 7});
    assert_eq!(created["metadata"], wanted);
    let mut changed = json!({"metadata": {"name": "a", "uid": "2", "creationTimestamp": "1999-01-01T00:00:00Z", "generation": 1}});
    prepare_update(&mut changed, &created);
    assert_eq!(
        changed["metadata"],
        json!({"name": "a", "uid": "2", "creationTimestamp": "2024-01-02T03:04:05Z", "generation": 7})
    );
}

#[test]
fn generated_names() {
    assert_eq!(generated_name("web-", 0), "web-bbbbb");
    assert_eq!(
        generated_name(&"x".repeat(100), 26),
        format!("{}9bbbb", "x".repeat(58))
    );
    assert_eq!(generated_name(&"ü".repeat(50), 0).len(), 63);
}

#[test]
fn an_update_may_not_start_a_deletion_and_may_keep_any_prefix() {
    let old = json!({"name": "a", "namespace": "n", "uid": "1", "generateName": "A.-"});
    assert_eq!(update(old.clone(), old.clone()), []);
    for (field, value) in [
        ("deletionTimestamp", json!("2024-01-02T03:04:05Z")),
        ("deletionGracePeriodSeconds", json!(0)),
    ] {
        let mut new = json!({"metadata": old});
        new["metadata"][field] = value;
        prepare_update(&mut new, &json!({"metadata": old}));
        let want = (format!("metadata.{field}"), "FieldValueInvalid");
        assert_eq!(update(new["metadata"].clone(), old.clone()), [want]);
    }
}

/// What a body of 3 MiB can hold. One error for each controller had the list of all of them in it:
/// together more than any machine's memory.
#[test]
fn many_owners_cost_no_more_than_their_number() {
    let owner = |number: usize| json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": number.to_string(), "controller": true});
    let owners: Vec<Value> = (0..30_000).map(owner).collect();
    let mut object = json!({"metadata": {"name": "a", "ownerReferences": owners}});
    drop_repeated_owners(&mut object);
    assert_eq!(
        object::items(&object, "metadata.ownerReferences").len(),
        30_000
    );
    let found = super::owners(
        object::items(&object, "metadata.ownerReferences"),
        &Path::new("metadata"),
    );
    assert_eq!(found.len(), 1);
}
