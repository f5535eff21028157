//! Answers: objects, lists, tables and watch events, written in the form the client asked for.
//!
//! The common case (JSON, whole object, stored spelling) copies stored bytes and never parses them.

use crate::negotiate::{Accept, Form, Include, Wire, not_acceptable};
use crate::registry::{List, Registry};
use bytes::Bytes;
use portico_api::codec::{proto, stored};
use portico_api::kinds::Kind;
use portico_api::object;
use portico_api::schema::schema;
use portico_api::status::{ApiError, Result};
use portico_store::Entry;
use serde_json::{Map, Value, json};

/// Can the stored bytes be sent as they are?
pub(crate) fn plain(kind: &dyn Kind, accept: Accept) -> bool {
    let same_spelling = kind.info().group == kind.stored_info().group;
    same_spelling && accept.wire == Wire::Json && accept.form == Form::Object && !accept.pretty
}

/// Renders one object.
pub(crate) fn one(
    registry: &Registry,
    kind: &dyn Kind,
    entry: &Entry,
    accept: Accept,
) -> Result<Vec<u8>> {
    if plain(kind, accept) {
        let mut out = Vec::with_capacity(entry.value.len() + 128);
        append(kind, entry, true, &mut out);
        return Ok(out);
    }
    if let Form::Table(include) = accept.form {
        let rows = Rows {
            registry,
            kind,
            include,
            accept,
            with_columns: true,
        };
        return value(&rows.table_of_one(load(entry)?), accept);
    }
    let object = registry.outward(kind, load(entry)?);
    match accept.form {
        Form::Object => written(kind.info().schema, object, accept),
        Form::Metadata => value(&metadata_only(&object, accept), accept),
        Form::MetadataList => {
            let why =
                "you requested PartialObjectMetadataList, but the requested object is not a list";
            Err(not_acceptable(&format!("{why} ({})", info_name(kind))))
        }
        Form::Table(_) => Err(ApiError::internal("a table was already made")),
    }
}

/// Append one object in plain JSON; items of a list do not repeat their kind.
pub(crate) fn append(kind: &dyn Kind, entry: &Entry, with_kind: bool, out: &mut Vec<u8>) {
    let info = kind.info();
    let api_version = info.api_version();
    let kind = with_kind.then_some((api_version.as_str(), info.kind));
    if let Err(error) = stored::render(&entry.value, entry.modified, kind, out) {
        tracing::error!(key = %entry.key, %error, "a stored object is damaged");
        out.extend_from_slice(b"null");
    }
}

/// About how many bytes a list takes when it is written plainly.
pub(crate) fn list_size(list: &List) -> usize {
    let items = list.entries.iter().map(|entry| entry.value.len() + 48);
    256 + items.sum::<usize>()
}

/// A list.
pub(crate) fn list(
    registry: &Registry,
    kind: &dyn Kind,
    list: &List,
    accept: Accept,
) -> Result<Vec<u8>> {
    let info = kind.info();
    let metadata = list_metadata(list);
    if plain(kind, accept) {
        let mut out = Vec::with_capacity(list_size(list));
        let head = format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{metadata},\"items\":[",
            info.kind,
            info.api_version()
        );
        out.extend_from_slice(head.as_bytes());
        for (index, entry) in list.entries.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            append(kind, entry, false, &mut out);
        }
        out.extend_from_slice(b"]}\n");
        return Ok(out);
    }
    let stored: Vec<Value> = list.entries.iter().map(load).collect::<Result<_>>()?;
    if let Form::Table(include) = accept.form {
        let rows = Rows {
            registry,
            kind,
            include,
            accept,
            with_columns: true,
        };
        return value(&rows.table(&stored, metadata), accept);
    }
    let objects: Vec<Value> = stored
        .into_iter()
        .map(|object| registry.outward(kind, object))
        .collect();
    match accept.form {
        Form::Table(_) => Err(ApiError::internal("a table was already made")),
        Form::Metadata => {
            let why = "you requested PartialObjectMetadata, but the requested object is a list";
            Err(not_acceptable(&format!("{why} ({}List)", info_name(kind))))
        }
        Form::MetadataList => {
            let items: Vec<Value> = objects
                .iter()
                .map(|object| metadata_only(object, accept))
                .collect();
            let (kind, api_version) = ("PartialObjectMetadataList", accept.version.api_version());
            value(
                &json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}),
                accept,
            )
        }
        Form::Object => {
            let bare = |mut object: Value| {
                let map = object::map(&mut object);
                map.remove("kind");
                map.remove("apiVersion");
                object
            };
            let items: Vec<Value> = objects.into_iter().map(bare).collect();
            let kind = format!("{}List", info.kind);
            let whole = json!({"kind": kind, "apiVersion": info.api_version(), "metadata": metadata, "items": items});
            written(&format!("{}List", info.schema), whole, accept)
        }
    }
}

fn list_metadata(list: &List) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".into(), list.revision.to_string().into());
    if let Some(token) = &list.continue_token {
        metadata.insert("continue".into(), token.as_str().into());
        metadata.extend(
            list.remaining
                .map(|count| ("remainingItemCount".to_owned(), json!(count))),
        );
    }
    Value::Object(metadata)
}

/// A watch event about one object, as a line of JSON (or a frame of protobuf). Only the first Table
/// of a watch tells what its columns are.
pub(crate) fn event(
    registry: &Registry,
    kind: &dyn Kind,
    word: &str,
    entry: &Entry,
    accept: Accept,
    with_columns: bool,
) -> Result<Bytes> {
    if plain(kind, accept) {
        let mut out = Vec::with_capacity(entry.value.len() + 160);
        out.extend_from_slice(format!("{{\"type\":\"{word}\",\"object\":").as_bytes());
        append(kind, entry, true, &mut out);
        out.extend_from_slice(b"}\n");
        return Ok(out.into());
    }
    let stored = load(entry)?;
    let object = match accept.form {
        Form::Object => registry.outward(kind, stored),
        Form::Metadata | Form::MetadataList => metadata_only(&stored, accept),
        Form::Table(include) => Rows {
            registry,
            kind,
            include,
            accept,
            with_columns,
        }
        .table_of_one(stored),
    };
    event_of(word, kind.info().schema, object, accept)
}

/// A watch event about anything: a bookmark or an error.
pub(crate) fn event_of(
    word: &str,
    type_name: &str,
    object: Value,
    accept: Accept,
) -> Result<Bytes> {
    if accept.wire == Wire::Protobuf {
        let object = proto::encode(schema(), type_name, &object);
        return Ok(proto::watch_frame(word, &object).into());
    }
    let mut line =
        serde_json::to_vec(&json!({"type": word, "object": object})).map_err(ApiError::internal)?;
    line.push(b'\n');
    Ok(line.into())
}

/// Any value in the wanted encoding; `type_name` is needed for protobuf.
pub(crate) fn written(type_name: &str, object: Value, accept: Accept) -> Result<Vec<u8>> {
    if accept.wire == Wire::Protobuf {
        return Ok(proto::encode(schema(), type_name, &object));
    }
    value(&object, accept)
}

/// Any value as JSON (which is also YAML).
pub(crate) fn value(value: &Value, accept: Accept) -> Result<Vec<u8>> {
    let text = match (accept.wire, accept.pretty) {
        (Wire::Yaml, _) => serde_saphyr::to_string(value)
            .map(String::into_bytes)
            .map_err(ApiError::internal)?,
        (_, true) => serde_json::to_vec_pretty(value).map_err(ApiError::internal)?,
        (_, false) => serde_json::to_vec(value).map_err(ApiError::internal)?,
    };
    Ok(text)
}

fn load(entry: &Entry) -> Result<Value> {
    stored::load(&entry.value, entry.modified).map_err(ApiError::internal)
}

fn info_name(kind: &dyn Kind) -> &'static str {
    kind.info().kind
}

fn metadata_only(object: &Value, accept: Accept) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": accept.version.api_version(),
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

/// How the rows of a Table are made. Cells come from the stored spelling.
struct Rows<'a> {
    registry: &'a Registry,
    kind: &'a dyn Kind,
    include: Include,
    accept: Accept,
    with_columns: bool,
}

impl Rows<'_> {
    fn table_of_one(&self, stored: Value) -> Value {
        let version = stored
            .pointer("/metadata/resourceVersion")
            .filter(|version| *version != "");
        let metadata =
            version.map_or_else(|| json!({}), |version| json!({"resourceVersion": version}));
        self.table(&[stored], metadata)
    }

    fn table(&self, stored: &[Value], metadata: Value) -> Value {
        let now = crate::clock::now();
        let rows: Vec<Value> = stored.iter().map(|object| self.row(object, now)).collect();
        let columns: Option<Vec<Value>> = self
            .with_columns
            .then(|| self.kind.info().columns.iter().map(column).collect());
        json!({
            "kind": "Table", "apiVersion": self.accept.version.api_version(), "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }

    fn row(&self, object: &Value, now: i64) -> Value {
        let mut row = json!({"cells": self.kind.row(object, now)});
        match self.include {
            Include::None => {}
            Include::Metadata => row["object"] = metadata_only(object, self.accept),
            Include::Object => row["object"] = self.registry.outward(self.kind, object.clone()),
        }
        row
    }
}

fn column(column: &portico_api::kinds::Column) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": column.format,
        "description": column.description, "priority": column.priority,
    })
}
