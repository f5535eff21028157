//! OpenAPI descriptions of what is served, from the schema: version 2 as JSON and protobuf, version
//! 3 with one document per group.
//!
//! kubectl reads them to explain, validate, compute patches and find out which parameters a server
//! knows; client generators read them too.

mod definitions;
mod gnostic;
mod paths;

use crate::kinds::Info;
use crate::schema::Schema;
use fnv::FnvHasher;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::hash::Hasher;

/// A kind that is served, and the verbs of its main resource (`get`, `list`, `create`, `update`,
/// `patch`, `delete`, `deletecollection`, `watch`).
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// The names of the kind.
    pub info: &'a Info,
    /// The verbs that are served.
    pub verbs: &'a [&'a str],
}

/// The content type of the protobuf form.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// What clients write in `Accept` for it. kubectl still sends the second, which is no valid media
/// type: never answer it.
pub const V2_PROTOBUF_ACCEPTED: [&str; 2] = [
    V2_PROTOBUF,
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// All documents, ready to be answered.
#[derive(Debug)]
pub struct Documents {
    /// `/openapi/v2` as JSON.
    pub v2: Vec<u8>,
    /// The same as protobuf, for clients that accept a type of `V2_PROTOBUF_ACCEPTED`.
    pub v2_protobuf: Vec<u8>,
    /// `/openapi/v3`: where the documents of the groups are.
    pub v3_index: Vec<u8>,
    /// The documents below `/openapi/v3/`, by `api/v1` or `apis/GROUP/VERSION`.
    pub v3: BTreeMap<String, Vec<u8>>,
}

/// In which version of OpenAPI something is written.
#[derive(Clone, Copy, PartialEq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, definition: &str) -> String {
        match self {
            Self::V2 => format!("#/definitions/{definition}"),
            Self::V3 => format!("#/components/schemas/{definition}"),
        }
    }
}

impl Documents {
    /// The documents for these kinds.
    pub fn build(schema: &Schema, served: &[Served<'_>]) -> Self {
        let v2 = v2(schema, served);
        let mut groups: BTreeMap<String, Vec<Served<'_>>> = BTreeMap::new();
        for one in served {
            groups.entry(group_path(one.info)).or_default().push(*one);
        }
        let v3 = groups
            .into_iter()
            .map(|(path, served)| (path, text(&v3(schema, &served))))
            .collect();
        Self {
            v2_protobuf: gnostic::document(&v2),
            v2: text(&v2),
            v3_index: text(&v3_index(&v3)),
            v3,
        }
    }
}

fn text(document: &Value) -> Vec<u8> {
    document.to_string().into_bytes()
}

/// `api/v1` or `apis/discovery.k8s.io/v1`.
fn group_path(info: &Info) -> String {
    format!(
        "{}/{}",
        if info.group.is_empty() { "api" } else { "apis" },
        info.api_version()
    )
}

fn about() -> Value {
    json!({"title": "Portico", "version": env!("CARGO_PKG_VERSION")})
}

fn v2(schema: &Schema, served: &[Served<'_>]) -> Value {
    json!({
        "swagger": "2.0",
        "info": about(),
        "paths": all_paths(served, Dialect::V2, schema),
        "definitions": definitions::all(schema, served, Dialect::V2),
    })
}

fn v3(schema: &Schema, served: &[Served<'_>]) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": about(),
        "paths": all_paths(served, Dialect::V3, schema),
        "components": {"schemas": definitions::all(schema, served, Dialect::V3)},
    })
}

fn all_paths(served: &[Served<'_>], dialect: Dialect, schema: &Schema) -> Value {
    let mut all = Map::new();
    for one in served {
        paths::add(one, dialect, schema, &mut all);
    }
    Value::Object(all)
}

/// The hash in the address changes with the document, so that clients may keep it for ever.
fn v3_index(documents: &BTreeMap<String, Vec<u8>>) -> Value {
    let paths: Map<String, Value> = documents
        .iter()
        .map(|(path, document)| {
            let address = format!("/openapi/v3/{path}?hash={:016X}", stable_hash(document));
            (path.clone(), json!({"serverRelativeURL": address}))
        })
        .collect();
    json!({"paths": paths})
}

/// The same in every process, so that all API servers of a cluster name the same address.
fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests;
