//! JSON values to messages. Values of a wrong type are left out: objects that went through
//! `conform` have none.

use super::wire::Writer;
use crate::codec::time::Moment;
use crate::schema::{Schema, Type, TypeDef};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

pub(super) fn message(schema: &Schema, type_name: &str, object: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    if let (Some(ty), Some(object)) = (schema.get(type_name), object.as_object()) {
        write_fields(schema, ty, object, &mut out);
    }
    out.0
}

fn write_fields(schema: &Schema, ty: &TypeDef, object: &Map<String, Value>, out: &mut Writer) {
    for field in ty.fields.iter().filter(|field| field.number > 0) {
        if let (Type::Object(name), true) = (&field.ty, field.inline) {
            if let Some(inner) = schema.get(name) {
                let mut nested = Writer::default();
                write_fields(schema, inner, object, &mut nested);
                out.bytes(field.number, &nested.0);
            }
        } else if let Some(value) = object.get(&field.name) {
            write_field(schema, field.number, &field.ty, value, out);
        }
    }
}

fn write_field(schema: &Schema, number: u32, ty: &Type, value: &Value, out: &mut Writer) {
    match (ty, value) {
        (Type::List(item), Value::Array(items)) => {
            items
                .iter()
                .for_each(|value| write_single(schema, number, item, value, out));
        }
        (Type::Map(item), Value::Object(map)) => {
            for (key, value) in map {
                let mut entry = Writer::default();
                entry.bytes(1, key.as_bytes());
                write_single(schema, 2, item, value, &mut entry);
                out.bytes(number, &entry.0);
            }
        }
        (Type::List(_) | Type::Map(_), _) => {}
        _ => write_single(schema, number, ty, value, out),
    }
}

fn write_single(schema: &Schema, number: u32, ty: &Type, value: &Value, out: &mut Writer) {
    match (ty, value) {
        (Type::Object(name), Value::Object(_)) => out.bytes(number, &message(schema, name, value)),
        // A list that is a map's value is a message with one repeated field.
        (Type::List(_), _) => {
            let mut items = Writer::default();
            write_field(schema, 1, ty, value, &mut items);
            out.bytes(number, &items.0);
        }
        (Type::String, Value::String(text)) => out.bytes(number, text.as_bytes()),
        (Type::Bool, Value::Bool(value)) => out.varint(number, u64::from(*value)),
        (Type::Int32 | Type::Int64, Value::Number(value)) => {
            if let Some(value) = value.as_i64() {
                out.varint(number, value as u64);
            }
        }
        (Type::Double, Value::Number(value)) => {
            out.fixed64(number, value.as_f64().unwrap_or_default().to_bits())
        }
        (Type::Bytes, Value::String(text)) => {
            out.bytes(number, &STANDARD.decode(text).unwrap_or_default())
        }
        (Type::IntOrString, Value::Number(_) | Value::String(_)) => {
            out.bytes(number, &int_or_string(value))
        }
        (Type::Quantity, Value::String(text)) => {
            let mut quantity = Writer::default();
            quantity.bytes(1, text.as_bytes());
            out.bytes(number, &quantity.0);
        }
        (Type::Time | Type::MicroTime, Value::String(text)) => out.bytes(number, &moment(text)),
        (Type::Any, value) if !value.is_null() => {
            let mut raw = Writer::default();
            raw.bytes(1, value.to_string().as_bytes());
            out.bytes(number, &raw.0);
        }
        _ => {}
    }
}

fn int_or_string(value: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    out.varint(1, u64::from(value.is_string()));
    out.varint(2, value.as_i64().unwrap_or_default() as u64);
    out.bytes(3, value.as_str().unwrap_or_default().as_bytes());
    out.0
}

fn moment(text: &str) -> Vec<u8> {
    let mut out = Writer::default();
    if let Some(moment) = Moment::parse(text) {
        out.varint(1, moment.seconds as u64);
        out.varint(2, moment.nanos.into());
    }
    out.0
}
