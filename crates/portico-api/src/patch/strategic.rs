//! Strategic merge patch: a merge patch that knows from the schema which lists are merged, and by
//! which key.
//!
//! This file merges maps and reads the directives; `lists.rs` merges lists and puts them in order.

mod lists;

use super::does_not_apply;
use crate::schema::{Field, Schema, Type, TypeDef};
use crate::status::{ApiError, Result};
use serde_json::{Map, Value};
use std::collections::HashSet;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

/// The object after the patch. `type_name` is the object's type in the schema.
pub fn apply(schema: &Schema, type_name: &str, mut object: Value, patch: &Value) -> Result<Value> {
    let patch = match patch {
        Value::Object(patch) => patch.clone(),
        Value::Null => return Ok(object),
        _ => return Err(bad("a strategic merge patch must be a JSON object")),
    };
    Merge { schema }.maps(
        crate::object::map(&mut object),
        patch,
        schema.get(type_name),
    )?;
    Ok(object)
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad_request(message)
}

fn unknown_directive(directive: &Value) -> ApiError {
    bad(format!("unknown patch type: {directive}"))
}

fn bad_element_order() -> ApiError {
    bad("invalid patch format of setElementOrder list")
}

struct Merge<'s> {
    schema: &'s Schema,
}

impl<'s> Merge<'s> {
    /// Merge a patch into a map. `of` is the struct that the map is, or `None` for a map with free
    /// keys.
    fn maps(
        &self,
        original: &mut Map<String, Value>,
        mut patch: Map<String, Value>,
        of: Option<&'s TypeDef>,
    ) -> Result<()> {
        if let Some(directive) = patch.remove(DIRECTIVE) {
            return replace_or_delete(original, patch, &directive);
        }
        if let Some(keys) = patch.remove(RETAIN_KEYS) {
            retain_keys(original, &patch, &keys)?;
        }
        self.ordered_lists(original, &mut patch, of)?;
        for (key, wanted) in patch {
            self.member(original, &key, wanted, of)?;
        }
        Ok(())
    }

    fn member(
        &self,
        original: &mut Map<String, Value>,
        key: &str,
        wanted: Value,
        of: Option<&'s TypeDef>,
    ) -> Result<()> {
        let (key, deletes) = match key.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => (
                rest.strip_prefix('/')
                    .ok_or_else(|| bad("invalid patch format of primitive list"))?,
                true,
            ),
            None => (key, false),
        };
        match (original.get_mut(key), wanted) {
            (_, Value::Null) => {
                original.remove(key);
            }
            (Some(Value::Object(present)), Value::Object(wanted)) => {
                let field = self.field(of, key)?;
                self.maps(present, wanted, self.struct_of(&field.ty))?;
            }
            (Some(Value::Array(present)), Value::Array(wanted)) => {
                let field = self.field(of, key)?;
                *present = self.lists(std::mem::take(present), wanted, field, deletes)?;
            }
            (None, _) if deletes => {}
            (Some(present), wanted)
                if deletes
                    && std::mem::discriminant(present) != std::mem::discriminant(&wanted) => {}
            (_, wanted) => match without_directives(wanted) {
                Some(wanted) => {
                    original.insert(key.to_owned(), wanted);
                }
                None => {
                    original.remove(key);
                }
            },
        }
        Ok(())
    }

    /// The field behind a key. Only asked where the key is in the object, so an unknown one is a
    /// nested free-form map.
    fn field(&self, of: Option<&'s TypeDef>, key: &str) -> Result<&'s Field> {
        let of = of.ok_or_else(|| bad("merging an object in json but data type is not struct"))?;
        of.field(self.schema, key).ok_or_else(|| {
            bad(format!(
                "unable to find api field in struct {} for the json field {key:?}",
                of.name
            ))
        })
    }

    fn struct_of(&self, ty: &Type) -> Option<&'s TypeDef> {
        match ty {
            Type::Object(name) => self.schema.get(name),
            _ => None,
        }
    }
}

fn replace_or_delete(
    original: &mut Map<String, Value>,
    patch: Map<String, Value>,
    directive: &Value,
) -> Result<()> {
    match directive.as_str() {
        Some("replace") => *original = patch,
        Some("delete") => original.clear(),
        _ => return Err(unknown_directive(directive)),
    }
    Ok(())
}

/// `$retainKeys` lists every key that stays; the patch may set no other.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    keys: &Value,
) -> Result<()> {
    let bad_format = || bad("invalid patch format of retainKeys");
    let keys: HashSet<&str> = keys
        .as_array()
        .ok_or_else(bad_format)?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let sets_other = patch.iter().any(|(key, value)| {
        let directive = key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
        !value.is_null() && !directive && !keys.contains(key.as_str())
    });
    if sets_other {
        return Err(bad_format());
    }
    original.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// What a patch brings in where nothing was: no nulls, and nothing that was only there to carry a
/// directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Some(Value::Object(
                kept.filter_map(|(key, value)| Some((key, without_directives(value)?)))
                    .collect(),
            ))
        }
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(without_directives).collect(),
        )),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests;
