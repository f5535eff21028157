//! Small helpers to look into API objects, which the server handles as JSON values.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The value at a dotted path, or null: `at(service, "spec.clusterIP")`.
pub fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.')
        .try_fold(object, |value, key| value.get(key))
        .unwrap_or(&NULL)
}

/// The text at a dotted path, or "".
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// `metadata.name`; empty where it is not set.
pub fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

/// `metadata.namespace`; empty where it is not set.
pub fn namespace(object: &Value) -> &str {
    text(object, "metadata.namespace")
}

/// The items at a dotted path, or none.
pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// The object below `key`, made if it is not there.
pub fn child<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    map(map(object)
        .entry(key)
        .or_insert_with(|| Value::Object(Map::new())))
}

/// The value as a map; anything else becomes an empty one.
pub fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Copy `key` from one object to another, removing it where the source has none.
pub fn copy_key(from: &Value, to: &mut Value, key: &str) {
    match from.get(key) {
        Some(value) => map(to).insert(key.to_owned(), value.clone()),
        None => map(to).remove(key),
    };
}
