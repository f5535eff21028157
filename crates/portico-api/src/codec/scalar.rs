//! Single values: what each type accepts, its canonical form, and its zero.

use super::conform::TypeError;
use super::quantity;
use super::time::Moment;
use crate::schema::Type;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Check a value that is neither list, map, object nor null, and bring it into its canonical form.
pub(super) fn conform(ty: &Type, value: &mut Value) -> Result<(), TypeError> {
    match (ty, &*value) {
        (Type::Any, _)
        | (Type::String | Type::IntOrString, Value::String(_))
        | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::Double, Value::Number(_)) => Ok(()),
        (Type::Int32 | Type::IntOrString, Value::Number(_)) => {
            integer(value, i32::MIN.into(), i32::MAX.into(), ty)
        }
        (Type::Int64, Value::Number(_)) => integer(value, i64::MIN, i64::MAX, ty),
        (Type::Bytes, Value::String(text)) => replace(bytes(text), value),
        (Type::Quantity, Value::String(text)) => replace(quantity_text(text), value),
        (Type::Quantity, Value::Number(number)) => {
            replace(quantity_text(&number.to_string()), value)
        }
        (Type::Time | Type::MicroTime, Value::String(text)) => {
            let time = moment(text, *ty == Type::MicroTime)?;
            *value = time.map_or(Value::Null, Value::String);
            Ok(())
        }
        _ => Err(TypeError::mismatch(value, ty)),
    }
}

fn replace(text: Result<String, TypeError>, value: &mut Value) -> Result<(), TypeError> {
    *value = Value::String(text?);
    Ok(())
}

fn integer(value: &mut Value, least: i64, most: i64, ty: &Type) -> Result<(), TypeError> {
    if value
        .as_f64()
        .is_some_and(|number| number == 0.0 && number.is_sign_negative())
    {
        *value = 0.into(); // JSON's -0, which the parser can only keep as a float
    }
    match value.as_i64() {
        Some(number) if (least..=most).contains(&number) => Ok(()),
        _ => Err(TypeError::mismatch(value, ty)),
    }
}

/// Base64 with padding; line breaks are ignored and dropped.
fn bytes(text: &str) -> Result<String, TypeError> {
    let wrapped = text.contains(['\r', '\n']);
    let joined = if wrapped {
        text.replace(['\r', '\n'], "")
    } else {
        text.to_owned()
    };
    match STANDARD.decode(&joined) {
        Ok(_) => Ok(joined),
        Err(base64::DecodeError::InvalidByte(at, _)) => Err(TypeError::plain(format!(
            "illegal base64 data at input byte {at}"
        ))),
        Err(_) => Err(TypeError::plain(format!(
            "illegal base64 data at input byte {}",
            joined.len()
        ))),
    }
}

fn quantity_text(text: &str) -> Result<String, TypeError> {
    quantity::canonical(text.trim()).map_err(|problem| TypeError::plain(problem.to_owned()))
}

/// The canonical text, or nothing for the zero time.
fn moment(text: &str, micro: bool) -> Result<Option<String>, TypeError> {
    let (layout, parsed) = if micro {
        (
            "2006-01-02T15:04:05.000000Z07:00",
            Moment::parse_micro(text),
        )
    } else {
        ("2006-01-02T15:04:05Z07:00", Moment::parse(text))
    };
    let moment = parsed.ok_or_else(|| {
        TypeError::plain(format!(
            "parsing time {text:?} as {layout:?}: cannot parse {text:?} as {layout:?}"
        ))
    })?;
    let text = if micro {
        moment.to_micros()
    } else {
        moment.to_seconds()
    };
    Ok((!moment.is_zero()).then_some(text))
}

/// The value that Go has for an absent field that is no struct.
pub(super) fn zero(ty: &Type) -> Value {
    match ty {
        Type::String => "".into(),
        Type::Bool => false.into(),
        Type::Int32 | Type::Int64 | Type::IntOrString | Type::Double => 0.into(),
        Type::Quantity => "0".into(),
        _ => Value::Null,
    }
}

/// Is this what `omitempty` leaves out?
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
