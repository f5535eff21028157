//! Objects out of files, and where an API server has them.

use crate::common::text;
use serde_json::Value;

/// The objects of a text with several documents; those with nothing but comments are none.
pub(crate) fn documents(yaml: &str) -> Vec<Value> {
    let parts = format!("\n{yaml}");
    let parts = parts
        .split("\n---")
        .map(|part| serde_saphyr::from_str(part).unwrap_or(Value::Null));
    parts.filter(|part| !part.is_null()).collect()
}

/// The path of the collection that an object belongs to.
pub(crate) fn collection(object: &Value) -> String {
    let version = text(object, "apiVersion");
    let api = if version.contains('/') {
        format!("/apis/{version}")
    } else {
        format!("/api/{version}")
    };
    let place = match text(object, "metadata.namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("{api}{place}/{}s", text(object, "kind").to_lowercase())
}

/// What an object is called in messages.
pub(crate) fn title(object: &Value) -> String {
    format!("{} {}", text(object, "kind"), text(object, "metadata.name"))
}
