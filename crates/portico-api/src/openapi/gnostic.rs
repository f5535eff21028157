//! The version 2 document as protobuf, in the message types of gnostic, which kubectl asks for.
//!
//! Only what `definitions` and `paths` write is translated. Free values travel as YAML text, of
//! which JSON is a part.

use crate::codec::proto::wire::Writer;
use serde_json::{Map, Value};

pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    text(&mut out, 1, document.get("swagger"));
    if let Some(info) = document.get("info") {
        let mut message = Writer::default();
        text(&mut message, 1, info.get("title"));
        text(&mut message, 2, info.get("version"));
        out.bytes(2, &message.0);
    }
    out.bytes(8, &named(2, document.get("paths"), path_item));
    out.bytes(9, &named(1, document.get("definitions"), schema));
    out.0
}

fn text(out: &mut Writer, number: u32, value: Option<&Value>) {
    if let Some(text) = value.and_then(Value::as_str) {
        out.bytes(number, text.as_bytes());
    }
}

fn texts(out: &mut Writer, number: u32, value: Option<&Value>) {
    for item in value.and_then(Value::as_array).into_iter().flatten() {
        text(out, number, Some(item));
    }
}

fn flag(out: &mut Writer, number: u32, value: Option<&Value>) {
    if value.and_then(Value::as_bool) == Some(true) {
        out.varint(number, 1);
    }
}

/// A map as a repeated field of name and value.
fn named(number: u32, map: Option<&Value>, encode: fn(&Value) -> Vec<u8>) -> Vec<u8> {
    let mut out = Writer::default();
    for (name, value) in map.and_then(Value::as_object).into_iter().flatten() {
        let mut pair = Writer::default();
        pair.bytes(1, name.as_bytes());
        pair.bytes(2, &encode(value));
        out.bytes(number, &pair.0);
    }
    out.0
}

/// A message around another: the way of `oneof` wrappers.
fn wrapped(number: u32, inner: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(number, inner);
    out.0
}

fn free(value: &Value) -> Vec<u8> {
    wrapped(2, value.to_string().as_bytes())
}

fn extensions(out: &mut Writer, number: u32, value: &Value) {
    let own: Map<String, Value> = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with("x-"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    out.0.extend(named(number, Some(&Value::Object(own)), free));
}

fn path_item(item: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    for (number, method) in [
        (2, "get"),
        (3, "put"),
        (4, "post"),
        (5, "delete"),
        (8, "patch"),
    ] {
        if let Some(value) = item.get(method) {
            out.bytes(number, &operation(value));
        }
    }
    parameters(&mut out, 9, item);
    out.0
}

fn operation(value: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    texts(&mut out, 1, value.get("tags"));
    text(&mut out, 3, value.get("description"));
    text(&mut out, 5, value.get("operationId"));
    texts(&mut out, 6, value.get("produces"));
    texts(&mut out, 7, value.get("consumes"));
    parameters(&mut out, 8, value);
    out.bytes(9, &named(1, value.get("responses"), response));
    texts(&mut out, 10, value.get("schemes"));
    extensions(&mut out, 13, value);
    out.0
}

fn parameters(out: &mut Writer, number: u32, parent: &Value) {
    for value in parent
        .get("parameters")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        out.bytes(number, &wrapped(1, &parameter(value)));
    }
}

fn parameter(value: &Value) -> Vec<u8> {
    match value.get("in").and_then(Value::as_str) {
        Some("body") => {
            let mut out = Writer::default();
            text(&mut out, 2, value.get("name"));
            text(&mut out, 3, value.get("in"));
            flag(&mut out, 4, value.get("required"));
            if let Some(value) = value.get("schema") {
                out.bytes(5, &schema(value));
            }
            wrapped(1, &out.0)
        }
        // The two kinds differ from the fifth field on.
        Some("path") => wrapped(2, &wrapped(4, &plain_parameter(value, 5, 19))),
        _ => wrapped(2, &wrapped(3, &plain_parameter(value, 6, 20))),
    }
}

fn plain_parameter(value: &Value, ty: u32, unique: u32) -> Vec<u8> {
    let mut out = Writer::default();
    flag(&mut out, 1, value.get("required"));
    text(&mut out, 2, value.get("in"));
    text(&mut out, 3, value.get("description"));
    text(&mut out, 4, value.get("name"));
    text(&mut out, ty, value.get("type"));
    flag(&mut out, unique, value.get("uniqueItems"));
    out.0
}

fn response(value: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    text(&mut out, 1, value.get("description"));
    if let Some(value) = value.get("schema") {
        out.bytes(2, &wrapped(1, &schema(value)));
    }
    wrapped(1, &out.0)
}

fn schema(value: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    text(&mut out, 1, value.get("$ref"));
    text(&mut out, 2, value.get("format"));
    text(&mut out, 4, value.get("description"));
    if let Some(default) = value.get("default") {
        out.bytes(5, &free(default));
    }
    texts(&mut out, 19, value.get("required"));
    for word in value
        .get("enum")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        out.bytes(20, &free(word));
    }
    if let Some(inner) = value.get("additionalProperties") {
        out.bytes(21, &wrapped(1, &schema(inner)));
    }
    if let Some(ty) = value.get("type").and_then(Value::as_str) {
        out.bytes(22, &wrapped(1, ty.as_bytes()));
    }
    if let Some(items) = value.get("items") {
        out.bytes(23, &wrapped(1, &schema(items)));
    }
    if let Some(properties) = value.get("properties") {
        out.bytes(25, &named(1, Some(properties), schema));
    }
    extensions(&mut out, 31, value);
    out.0
}
