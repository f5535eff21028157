//! Bring a decoded value into the form its type prescribes, as a Go server does by decoding into
//! structs: unknown fields and zero values go, fields that are always written come, every value has
//! its type and its canonical form.

use super::scalar;
use crate::schema::{Field, Presence, Schema, Type, TypeDef};
use serde_json::{Map, Value, json};
use std::fmt::{self, Write as _};

/// A value of the wrong type, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError {
    /// `string`, `number 80.5`, or the whole message where `wanted` is empty.
    found: String,
    wanted: String,
    /// The innermost struct, and the fields that lead to the value, innermost first.
    inside: Option<String>,
    fields: Vec<String>,
}

impl std::error::Error for TypeError {}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            found,
            wanted,
            inside,
            fields,
        } = self;
        if wanted.is_empty() {
            return f.write_str(found);
        }
        write!(f, "json: cannot unmarshal {found} into Go ")?;
        match inside {
            Some(name) => {
                write!(f, "struct field {name}")?;
                fields
                    .iter()
                    .rev()
                    .try_for_each(|field| write!(f, ".{field}"))?;
            }
            None => f.write_str("value")?,
        }
        write!(f, " of type {wanted}")
    }
}

impl TypeError {
    pub(super) fn plain(message: String) -> Self {
        Self {
            found: message,
            wanted: String::new(),
            inside: None,
            fields: Vec::new(),
        }
    }

    pub(super) fn mismatch(value: &Value, ty: &Type) -> Self {
        let found = match value {
            Value::Null => "null".into(),
            Value::Bool(_) => "bool".into(),
            Value::Number(number)
                if matches!(ty, Type::Int32 | Type::Int64 | Type::IntOrString) =>
            {
                format!("number {number}")
            }
            Value::Number(_) => "number".into(),
            Value::String(_) => "string".into(),
            Value::Array(_) => "array".into(),
            Value::Object(_) => "object".into(),
        };
        Self {
            wanted: go_type(ty),
            ..Self::plain(found)
        }
    }

    fn within(mut self, ty: &TypeDef, field: &str) -> Self {
        self.inside.get_or_insert_with(|| ty.local.clone());
        self.fields.push(field.to_owned());
        self
    }
}

fn go_type(ty: &Type) -> String {
    match ty {
        Type::String => "string".into(),
        Type::Bool => "bool".into(),
        Type::Int32 | Type::IntOrString => "int32".into(),
        Type::Int64 => "int64".into(),
        Type::Double => "float64".into(),
        Type::Bytes => "[]uint8".into(),
        Type::Quantity => "resource.Quantity".into(),
        // These decode themselves, from text.
        Type::Time | Type::MicroTime => "string".into(),
        Type::Any => "interface {}".into(),
        Type::List(item) => format!("[]{}", go_type(item)),
        Type::Map(value) => format!("map[string]{}", go_type(value)),
        Type::Object(name) => format!("v1.{name}"),
    }
}

/// The value as the type has it, and the paths of unknown fields (`spec.ports[0].foo`), which are
/// dropped.
pub fn conform(
    schema: &Schema,
    type_name: &str,
    mut value: Value,
) -> Result<(Value, Vec<String>), TypeError> {
    let mut walk = Walk {
        schema,
        path: String::new(),
        unknown: Vec::new(),
    };
    walk.value(&Type::Object(type_name.to_owned()), &mut value)?;
    Ok((value, walk.unknown))
}

struct Walk<'a> {
    schema: &'a Schema,
    path: String,
    unknown: Vec<String>,
}

impl Walk<'_> {
    /// A null becomes the zero value.
    fn value(&mut self, ty: &Type, value: &mut Value) -> Result<(), TypeError> {
        match (ty, value) {
            (Type::Object(name), value @ (Value::Object(_) | Value::Null)) => {
                let schema = self.schema;
                let ty = schema
                    .get(name)
                    .ok_or_else(|| TypeError::plain(format!("no type {name:?} in the schema")))?;
                self.object(ty, crate::object::map(value))
            }
            (Type::List(item), Value::Array(items)) => {
                items.iter_mut().enumerate().try_for_each(|(index, value)| {
                    let length = self.path.len();
                    let _ = write!(self.path, "[{index}]");
                    self.value(item, value)?;
                    self.path.truncate(length);
                    Ok(())
                })
            }
            (Type::Map(item), Value::Object(map)) => map.iter_mut().try_for_each(|(key, value)| {
                let length = self.enter(key);
                self.value(item, value)?;
                self.path.truncate(length);
                Ok(())
            }),
            (ty, value @ Value::Null) => {
                *value = scalar::zero(ty);
                Ok(())
            }
            (ty, value) => scalar::conform(ty, value),
        }
    }

    fn object(&mut self, ty: &TypeDef, map: &mut Map<String, Value>) -> Result<(), TypeError> {
        let mut result = Ok(());
        map.retain(|key, value| {
            if result.is_err() {
                return false;
            }
            let Some(field) = ty.field(self.schema, key) else {
                self.note_unknown(key);
                return false;
            };
            let length = self.enter(key);
            let kept = self
                .field(field, value)
                .map_err(|error| error.within(ty, key));
            self.path.truncate(length);
            kept.unwrap_or_else(|error| {
                result = Err(error);
                false
            })
        });
        result?;
        self.fill(ty, map)
    }

    /// Whether the field stays.
    fn field(&mut self, field: &Field, value: &mut Value) -> Result<bool, TypeError> {
        if value.is_null() && field.presence != Presence::Always {
            return Ok(false);
        }
        self.value(&field.ty, value)?;
        if field.name == "managedFields" && value.as_array().is_some_and(Vec::is_empty) {
            // An empty list asks to forget all owners. One empty entry asks the same, and is not
            // left out.
            *value = json!([{}]);
        }
        match field.presence {
            Presence::OmitZero => Ok(!scalar::is_zero(value)),
            // An empty time: Go shows null where there is a pointer to one.
            Presence::Optional => Ok(!value.is_null()),
            Presence::Always => {
                // Storage does not tell an empty list from none, and Go shows none as null.
                if matches!(field.ty, Type::List(_) | Type::Map(_)) && scalar::is_zero(value) {
                    *value = Value::Null;
                }
                Ok(true)
            }
        }
    }

    /// Write the fields that are always there.
    fn fill(&mut self, ty: &TypeDef, map: &mut Map<String, Value>) -> Result<(), TypeError> {
        for field in &ty.fields {
            if let (true, Type::Object(name)) = (field.inline, &field.ty) {
                if let Some(inner) = self.schema.get(name) {
                    self.fill(inner, map)?;
                }
            } else if field.presence == Presence::Always && !map.contains_key(&field.name) {
                let mut value = Value::Null;
                self.value(&field.ty, &mut value)?;
                map.insert(field.name.clone(), value);
            }
        }
        Ok(())
    }

    fn enter(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    fn note_unknown(&mut self, key: &str) {
        if !super::is_enough(&self.unknown) {
            let length = self.enter(key);
            self.unknown.push(self.path.clone());
            self.path.truncate(length);
        }
    }
}
