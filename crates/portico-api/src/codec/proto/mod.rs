//! Protobuf bodies: the Kubernetes envelope around messages whose fields the schema numbers.
//!
//! Decoding makes the JSON value that the same object would have, and sends it through `conform`;
//! encoding is the inverse. Kinds without protobuf numbers (`portico.dev`) have no such form.

mod decode;
mod encode;
pub(crate) mod wire;

use super::conform;
use crate::bounds;
use crate::schema::Schema;
use serde_json::Value;
use wire::{Reader, Writer};

const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read; for the message of a 400.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ProtoError(pub String);

fn error(text: impl Into<String>) -> ProtoError {
    ProtoError(text.into())
}

/// What an envelope says about its content.
#[derive(Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The `apiVersion` of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// The protobuf message of the object.
    pub message: &'a [u8],
}

/// Whether objects of this type can be written as protobuf at all.
pub fn is_supported(schema: &Schema, type_name: &str) -> bool {
    schema
        .get(type_name)
        .is_some_and(|ty| ty.fields.iter().any(|field| field.number > 0))
}

/// Open the envelope: which kind is inside, and its bytes.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, ProtoError> {
    let unknown = body.strip_prefix(MAGIC).ok_or_else(|| {
        error(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 \
             115 0]",
        )
    })?;
    let mut envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        message: &[],
    };
    let mut reader = Reader::new(unknown);
    while let Some((number, value)) = reader.field()? {
        match number {
            1 => {
                let mut type_meta = Reader::new(value.bytes()?);
                while let Some((number, value)) = type_meta.field()? {
                    match number {
                        1 => envelope.api_version = value.text()?,
                        2 => envelope.kind = value.text()?,
                        _ => {}
                    }
                }
            }
            2 => envelope.message = value.bytes()?,
            3 if !value.bytes()?.is_empty() => {
                return Err(error("encoded content is not supported"));
            }
            _ => {}
        }
    }
    Ok(envelope)
}

/// The object in a body, with `apiVersion` and `kind` as the envelope has them.
pub fn decode(schema: &Schema, type_name: &str, body: &[u8]) -> Result<Value, ProtoError> {
    let envelope = open(body)?;
    let mut object = decode::message(schema, type_name, envelope.message)?;
    for (key, text) in [
        ("apiVersion", envelope.api_version),
        ("kind", envelope.kind),
    ] {
        if !text.is_empty() {
            object.insert(key.into(), text.into());
        }
    }
    // `any` fields are JSON of their own, which their place in the message makes deeper.
    let object = Value::Object(object);
    bounds::check(&object).map_err(|e| error(e.to_string()))?;
    let (value, _) = conform(schema, type_name, object).map_err(|e| error(e.to_string()))?;
    Ok(value)
}

/// The object in its envelope. `apiVersion` and `kind` are taken from the object.
pub fn encode(schema: &Schema, type_name: &str, object: &Value) -> Vec<u8> {
    let mut type_meta = Writer::default();
    for (number, key) in [(1, "apiVersion"), (2, "kind")] {
        type_meta.bytes(number, crate::object::text(object, key).as_bytes());
    }
    let mut unknown = Writer::default();
    unknown.bytes(1, &type_meta.0);
    unknown.bytes(2, &encode::message(schema, type_name, object));
    unknown.bytes(3, b"");
    unknown.bytes(4, b"");
    [MAGIC, &unknown.0].concat()
}

/// Encodes one frame of a watch: its length, then the event around an encoded object.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Writer::default();
    raw.bytes(1, object);
    let mut message = Writer::default();
    message.bytes(1, event.as_bytes());
    message.bytes(2, &raw.0);
    let length = u32::try_from(message.0.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), &message.0].concat()
}

#[cfg(test)]
mod tests;
