//! Objects go through a kind as the registry drives it: the stored spelling, defaults, preparation,
//! validation.

mod address_pools;
mod bgp_peers;
mod config;
mod discovery;
mod events;
mod namespaces;
mod nodes;
mod pods;
mod port_partitions;
mod rbac;
mod service_cidrs;

use super::*;
use crate::codec::conform;
use crate::schema::schema;
use serde_json::{Map, json};

type Cause = (String, &'static str);

const INVALID: &str = "FieldValueInvalid";
const REQUIRED: &str = "FieldValueRequired";
const FORBIDDEN: &str = "FieldValueForbidden";
const DUPLICATE: &str = "FieldValueDuplicate";
const UNSUPPORTED: &str = "FieldValueNotSupported";
const TOO_MANY: &str = "FieldValueTooMany";

/// 2024-01-02T03:14:05Z: ten minutes after every object here was made.
const NOW: i64 = 1_704_165_245;

fn kind(api: &str) -> Box<dyn Kind> {
    let (group, plural) = api.rsplit_once('/').unwrap_or(("", api));
    all()
        .into_iter()
        .find(|kind| (kind.info().group, kind.info().plural) == (group, plural))
        .unwrap()
}

/// Set what lies at a dotted path; null removes it.
fn set(object: &mut Value, path: &str, value: Value) {
    let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
    let parent =
        parent
            .split('.')
            .filter(|key| !key.is_empty())
            .fold(object, |value, key| match key.parse::<usize>() {
                Ok(index) => value.get_mut(index).unwrap(),
                Err(_) => object::map(value).entry(key).or_insert(json!({})),
            });
    match key.parse::<usize>() {
        Ok(index) => parent[index] = value,
        Err(_) if value.is_null() => drop(object::map(parent).remove(key)),
        Err(_) => drop(object::map(parent).insert(key.to_owned(), value)),
    }
}

fn with(object: &Value, changes: &[(&str, Value)]) -> Value {
    let mut object = object.clone();
    changes
        .iter()
        .for_each(|(path, value)| set(&mut object, path, value.clone()));
    object
}

fn inward(kind: &dyn Kind, object: Value, old: Option<&Value>) -> Value {
    let mut object = conform(schema(), kind.info().schema, object).unwrap().0;
    let metadata = object::child(&mut object, "metadata");
    metadata.entry("name").or_insert("a".into());
    if kind.info().namespaced {
        metadata.entry("namespace").or_insert("n".into());
    }
    assert_eq!(kind.to_stored(&mut object, old, false), []);
    kind.default(&mut object, &Gates::default());
    object
}

fn result(object: Value, errors: Errors) -> Result<Value, Vec<Cause>> {
    match errors.is_empty() {
        true => Ok(object),
        false => Err(errors
            .into_iter()
            .map(|error| (error.field, error.problem.reason()))
            .collect()),
    }
}

/// The stored object, or what is wrong.
fn create(api: &str, object: Value) -> Result<Value, Vec<Cause>> {
    let (kind, gates) = (kind(api), Gates::default());
    let mut object = inward(&*kind, object, None);
    metadata::prepare_create(&mut object, "1", "2024-01-02T03:04:05Z");
    kind.prepare_create(&mut object, &gates);
    let mut errors = metadata::validate_create(&*kind, &object);
    errors.extend(kind.validate_create(&object, &gates));
    result(object, errors)
}

fn update(api: &str, new: Value, old: &Value) -> Result<Value, Vec<Cause>> {
    let (kind, gates) = (kind(api), Gates::default());
    let mut new = inward(&*kind, new, Some(old));
    metadata::prepare_update(&mut new, old);
    kind.prepare_update(&mut new, old, &gates);
    let mut errors = metadata::validate_update(&*kind, &new, old);
    errors.extend(kind.validate_update(&new, old, &gates));
    result(new, errors)
}

fn update_status(api: &str, new: Value, old: &Value) -> Result<Value, Vec<Cause>> {
    let (kind, gates) = (kind(api), Gates::default());
    let mut new = inward(&*kind, new, Some(old));
    metadata::prepare_update(&mut new, old);
    kind.prepare_status_update(&mut new, old, &gates);
    let mut errors = metadata::validate_update(&*kind, &new, old);
    errors.extend(kind.validate_status_update(&new, old, &gates));
    result(new, errors)
}

/// Each change to a good object is refused for one reason. The table: path, value, field, reason.
fn refuses(api: &str, good: &Value, table: &[(&str, Value, &str, &'static str)]) {
    create(api, good.clone()).unwrap();
    for (path, value, field, reason) in table {
        let found = create(api, with(good, &[(path, value.clone())]));
        assert_eq!(
            found,
            Err(vec![((*field).to_owned(), *reason)]),
            "{path}: {value}"
        );
    }
}

fn cells(api: &str, object: &Value) -> Vec<Value> {
    let kind = kind(api);
    let cells = kind.row(object, NOW);
    assert_eq!(
        cells.len(),
        kind.info().columns.len(),
        "one cell per column"
    );
    cells
}

#[test]
fn every_kind_has_a_schema_and_distinct_names() {
    let mut seen = std::collections::BTreeSet::new();
    for kind in all() {
        let info = kind.info();
        let ty = schema()
            .get(info.schema)
            .unwrap_or_else(|| panic!("no schema for {}", info.kind));
        let wanted = (
            info.group.to_owned(),
            info.version.to_owned(),
            info.kind.to_owned(),
        );
        assert_eq!(ty.kind, Some(wanted), "{}", info.schema);
        assert!(
            seen.insert((info.group, info.plural)),
            "{} twice",
            info.plural
        );
    }
}

#[test]
fn no_kind_stumbles_over_an_empty_object() {
    for kind in all() {
        for mut object in [
            json!({}),
            json!({"spec": 1, "status": [], "metadata": "x"}),
            Value::Null,
        ] {
            kind.to_stored(&mut object, None, false);
            kind.default(&mut object, &Gates::default());
            kind.prepare_create(&mut object, &Gates::default());
            kind.validate_create(&object, &Gates::default());
            kind.validate_update(&object, &Value::Null, &Gates::default());
            kind.validate_status_update(&object, &Value::Null, &Gates::default());
            kind.warnings(&object, None);
            kind.row(&object, 0);
            kind.from_stored(object);
        }
    }
}

#[test]
fn who_creates_on_put_and_who_answers_a_delete_with_the_object() {
    let named = |wanted: fn(&dyn Kind) -> bool| -> Vec<&str> {
        all()
            .iter()
            .filter(|kind| wanted(&***kind))
            .map(|kind| kind.info().plural)
            .collect()
    };
    assert_eq!(
        named(|kind| kind.info().create_on_update),
        [
            "endpoints",
            "events",
            "events",
            "leases",
            "roles",
            "clusterroles",
            "rolebindings",
            "clusterrolebindings"
        ]
    );
    assert_eq!(
        named(|kind| kind.info().delete_returns_object),
        ["namespaces", "pods", "serviceaccounts"]
    );
    assert_eq!(
        named(|kind| !kind.info().unconditional_update),
        ["leases", "addressblocks"]
    );
}

#[test]
fn helper_sets_paths() {
    let object = json!({"a": [{"b": 1}], "c": 2});
    assert_eq!(
        with(
            &object,
            &[("a.0.b", json!(3)), ("c", Value::Null), ("d.e", json!(4))]
        ),
        json!({"a": [{"b": 3}], "d": {"e": 4}})
    );
    assert_eq!(
        Map::new(),
        *object::map(&mut with(&json!({"x": 1}), &[("x", Value::Null)]))
    );
}
