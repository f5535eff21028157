//! Messages to JSON values. Recursion follows the schema, in which no type contains itself.

use super::wire::{Raw, Reader};
use super::{ProtoError, error};
use crate::codec::time::Moment;
use crate::schema::{Field, Schema, Type, TypeDef};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

pub(super) fn message(
    schema: &Schema,
    type_name: &str,
    bytes: &[u8],
) -> Result<Map<String, Value>, ProtoError> {
    let ty = schema
        .get(type_name)
        .ok_or_else(|| error(format!("no type {type_name:?} in the schema")))?;
    let mut object = Map::new();
    read_into(schema, ty, bytes, &mut object)?;
    Ok(object)
}

/// Fields that the schema does not number are skipped. A message that comes twice is merged.
fn read_into(
    schema: &Schema,
    ty: &TypeDef,
    bytes: &[u8],
    object: &mut Map<String, Value>,
) -> Result<(), ProtoError> {
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        let Some(field) = ty.fields.iter().find(|field| field.number == number) else {
            continue;
        };
        read_field(schema, field, raw, object)
            .map_err(|ProtoError(text)| error(format!("{}.{}: {text}", ty.local, field.name)))?;
    }
    Ok(())
}

fn read_field(
    schema: &Schema,
    field: &Field,
    raw: Raw<'_>,
    object: &mut Map<String, Value>,
) -> Result<(), ProtoError> {
    if let (Type::Object(name), true) = (&field.ty, field.inline) {
        let ty = schema
            .get(name)
            .ok_or_else(|| error(format!("no type {name:?} in the schema")))?;
        return read_into(schema, ty, raw.bytes()?, object);
    }
    let slot = object.entry(field.name.as_str()).or_insert(Value::Null);
    match &field.ty {
        Type::List(item) => read_items(schema, item, raw, slot),
        Type::Map(item) => read_entry(schema, item, raw.bytes()?, crate::object::map(slot)),
        Type::Object(name) => {
            let ty = schema
                .get(name)
                .ok_or_else(|| error(format!("no type {name:?} in the schema")))?;
            read_into(schema, ty, raw.bytes()?, crate::object::map(slot))
        }
        ty => {
            *slot = scalar(ty, raw)?;
            Ok(())
        }
    }
}

/// One item, or many numbers packed into one field.
fn read_items(
    schema: &Schema,
    item: &Type,
    raw: Raw<'_>,
    slot: &mut Value,
) -> Result<(), ProtoError> {
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Value::Array(items) = slot else {
        return Ok(());
    };
    match (item, raw) {
        (Type::Bool | Type::Int32 | Type::Int64, Raw::Bytes(packed)) => {
            let mut reader = Reader::new(packed);
            while !reader.is_empty() {
                items.push(scalar(item, Raw::Varint(reader.varint()?))?);
            }
        }
        _ => items.push(single(schema, item, raw)?),
    }
    Ok(())
}

fn read_entry(
    schema: &Schema,
    item: &Type,
    bytes: &[u8],
    object: &mut Map<String, Value>,
) -> Result<(), ProtoError> {
    let (mut key, mut value) = (String::new(), Value::Null);
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        match number {
            1 => key = raw.text()?,
            2 => value = single(schema, item, raw)?,
            _ => {}
        }
    }
    object.insert(key, value);
    Ok(())
}

/// A value that stands alone: an item of a list or the value of a map entry.
fn single(schema: &Schema, ty: &Type, raw: Raw<'_>) -> Result<Value, ProtoError> {
    match ty {
        Type::Object(name) => Ok(Value::Object(message(schema, name, raw.bytes()?)?)),
        // A list that is a map's value is a message with one repeated field.
        Type::List(item) => {
            let mut list = Value::Array(Vec::new());
            let mut reader = Reader::new(raw.bytes()?);
            while let Some((number, raw)) = reader.field()? {
                if number == 1 {
                    read_items(schema, item, raw, &mut list)?;
                }
            }
            Ok(list)
        }
        Type::Map(_) => Err(error("a map cannot be an item")),
        ty => scalar(ty, raw),
    }
}

fn scalar(ty: &Type, raw: Raw<'_>) -> Result<Value, ProtoError> {
    Ok(match ty {
        Type::String => raw.text()?.into(),
        Type::Bool => (raw.varint()? != 0).into(),
        Type::Int32 => (raw.varint()? as i32).into(),
        Type::Int64 => (raw.varint()? as i64).into(),
        Type::Double => match raw {
            Raw::Fixed64(bits) => {
                Number::from_f64(f64::from_bits(bits)).map_or(Value::Null, Value::Number)
            }
            Raw::Fixed32(bits) => {
                Number::from_f64(f32::from_bits(bits).into()).map_or(Value::Null, Value::Number)
            }
            _ => return Err(error("proto: wrong wire type, want a double")),
        },
        Type::Bytes => STANDARD.encode(raw.bytes()?).into(),
        Type::IntOrString => int_or_string(raw.bytes()?)?,
        Type::Quantity => first_field(raw.bytes()?)?
            .map_or(Ok("0".into()), |raw| raw.text().map(Value::String))?,
        Type::Time => {
            moment(raw.bytes()?)?.map_or(Value::Null, |moment| moment.to_seconds().into())
        }
        Type::MicroTime => {
            moment(raw.bytes()?)?.map_or(Value::Null, |moment| moment.to_micros().into())
        }
        Type::Any => match first_field(raw.bytes()?)? {
            Some(raw) => serde_json::from_slice(raw.bytes()?).map_err(|e| error(e.to_string()))?,
            None => Value::Null,
        },
        Type::List(_) | Type::Map(_) | Type::Object(_) => return Err(error("not a plain value")),
    })
}

/// Field 1 of a message that has only that.
fn first_field(bytes: &[u8]) -> Result<Option<Raw<'_>>, ProtoError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        if number == 1 {
            found = Some(raw);
        }
    }
    Ok(found)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtoError> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((field, raw)) = reader.field()? {
        match field {
            1 => is_text = raw.varint()? == 1,
            2 => number = raw.varint()? as i32,
            3 => text = raw.text()?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

/// An empty message is the zero time.
fn moment(bytes: &[u8]) -> Result<Option<Moment>, ProtoError> {
    let mut moment = Moment {
        seconds: 0,
        nanos: 0,
    };
    let mut reader = Reader::new(bytes);
    while let Some((number, raw)) = reader.field()? {
        match number {
            1 => moment.seconds = raw.varint()? as i64,
            2 => {
                moment.nanos = u32::try_from(raw.varint()?)
                    .ok()
                    .filter(|n| *n < 1_000_000_000)
                    .unwrap_or(0)
            }
            _ => {}
        }
    }
    if !moment.is_writable() {
        return Err(error("time outside of the years 0 to 9999"));
    }
    Ok((!bytes.is_empty()).then_some(moment))
}
