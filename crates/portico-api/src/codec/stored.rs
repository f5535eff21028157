//! The form in which objects are stored: JSON without kind, apiVersion and resourceVersion, with
//! the metadata first.
//!
//! All three can then be spliced in as bytes, so that a read or a watch event costs a copy and no
//! parsing.

use serde_json::{Map, Value, json};

const START: &[u8] = b"{\"metadata\":{";

/// Stored bytes that are not what `store` writes.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum Damaged {
    #[error("the stored object is not JSON")]
    Json(#[from] serde_json::Error),
    #[error("the stored object has no metadata in front")]
    Start,
}

/// The bytes to store.
pub fn store(object: &Value) -> Vec<u8> {
    let empty = Map::new();
    let metadata = object
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let mut out = START.to_vec();
    write_members(metadata, &["resourceVersion"], &mut out, false);
    out.push(b'}');
    write_members(
        object.as_object().unwrap_or(&empty),
        &["metadata", "kind", "apiVersion"],
        &mut out,
        true,
    );
    out.push(b'}');
    out
}

/// The members of a map without those in `skip`. `comma`: something stands before them.
fn write_members(map: &Map<String, Value>, skip: &[&str], out: &mut Vec<u8>, mut comma: bool) {
    for (key, value) in map.iter().filter(|(key, _)| !skip.contains(&key.as_str())) {
        if comma {
            out.push(b',');
        }
        comma = true;
        write_json(key, out);
        out.push(b':');
        write_json(value, out);
    }
}

fn write_json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Text and JSON values always serialise, and a vector takes every byte.
    let _ = serde_json::to_writer(out, value);
}

/// The object with its resourceVersion (revision 0: none, it was never stored), still without kind
/// and apiVersion.
pub fn load(stored: &[u8], revision: u64) -> Result<Value, Damaged> {
    let mut object: Value = serde_json::from_slice(stored)?;
    let metadata = object
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
        .ok_or(Damaged::Start)?;
    if revision > 0 {
        metadata.insert("resourceVersion".into(), json!(revision.to_string()));
    }
    Ok(object)
}

/// Append the object as JSON with its resourceVersion and, given `(apiVersion, kind)`, these two.
/// Nothing is parsed.
pub fn render(
    stored: &[u8],
    revision: u64,
    kind: Option<(&str, &str)>,
    out: &mut Vec<u8>,
) -> Result<(), Damaged> {
    let rest = stored.strip_prefix(START).ok_or(Damaged::Start)?;
    out.reserve(stored.len() + 96);
    out.push(b'{');
    if let Some((api_version, kind)) = kind {
        out.extend_from_slice(b"\"kind\":");
        write_json(kind, out);
        out.extend_from_slice(b",\"apiVersion\":");
        write_json(api_version, out);
        out.push(b',');
    }
    out.extend_from_slice(b"\"metadata\":{");
    if revision > 0 {
        out.extend_from_slice(format!("\"resourceVersion\":\"{revision}\"").as_bytes());
        if !rest.starts_with(b"}") {
            out.push(b',');
        }
    }
    out.extend_from_slice(rest);
    Ok(())
}
