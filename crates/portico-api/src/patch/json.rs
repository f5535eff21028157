//! JSON patch (RFC 6902), with the liberties that kube-apiserver takes.
//!
//! Where it differs from the RFC: negative indices count from the end, `replace` of a missing
//! member adds it, `copy` of a missing member copies null, a missing `value` is null, and what
//! stands before the first `/` of a path is not looked at.

use super::does_not_apply;
use crate::status::{ApiError, Result};
use serde_json::{Map, Value};

/// More operations than this in one patch are refused.
const MOST_OPERATIONS: usize = 10_000;

/// All copies of one patch together may not be longer than this, so that a patch cannot double an
/// object again and again.
const MOST_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// The object after the patch.
pub fn apply(mut object: Value, patch: &Value) -> Result<Value> {
    let operations = decode(patch)?;
    let mut copied = 0;
    for operation in &operations {
        operation
            .run(&mut object, &mut copied)
            .ok_or_else(does_not_apply)?;
    }
    Ok(object)
}

/// Members of operations that mean nothing, for strict field validation:
/// `json patch unknown field "[0].vale"`.
pub fn unknown_members(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().map_or(&[][..], Vec::as_slice);
    let members = operations
        .iter()
        .enumerate()
        .flat_map(|(index, operation)| {
            operation
                .as_object()
                .into_iter()
                .flat_map(Map::keys)
                .map(move |name| (index, name))
        });
    members
        .filter(|(_, name)| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
        .map(|(index, name)| format!("json patch unknown field \"[{index}].{name}\""))
        .collect()
}

struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

fn decode(patch: &Value) -> Result<Vec<Operation<'_>>> {
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => return Err(wrong_type(kind_of(other), "[]handlers.jsonPatchOp")),
    };
    if operations.len() > MOST_OPERATIONS {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(ApiError::too_large(message));
    }
    operations.iter().map(Operation::decode).collect()
}

fn wrong_type(found: &str, wanted: &str) -> ApiError {
    ApiError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl<'a> Operation<'a> {
    fn decode(value: &'a Value) -> Result<Self> {
        let text = |name: &str| match value.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(other) => Err(wrong_type(kind_of(other), "string")),
        };
        if !value.is_object() && !value.is_null() {
            return Err(wrong_type(kind_of(value), "handlers.jsonPatchOp"));
        }
        Ok(Self {
            op: text("op")?.unwrap_or_default(),
            path: text("path")?,
            from: text("from")?,
            value: value.get("value"),
        })
    }

    fn run(&self, document: &mut Value, copied: &mut usize) -> Option<()> {
        match self.op {
            "add" => add(document, self.path?, self.value_or_null()),
            "remove" => remove(document, self.path?).map(drop),
            "replace" => self.replace(document),
            "move" => {
                let value = remove(document, self.from?)?;
                add(document, self.path?, value)
            }
            "copy" => self.copy(document, copied),
            "test" => self.test(document),
            _ => None,
        }
    }

    fn value_or_null(&self) -> Value {
        self.value.cloned().unwrap_or_default()
    }

    fn replace(&self, document: &mut Value) -> Option<()> {
        let path = self.path?;
        if path.is_empty() {
            *document = self
                .value
                .filter(|value| value.is_object() || value.is_array())?
                .clone();
            return Some(());
        }
        match parent(document, path)? {
            (Value::Object(map), key) => {
                map.insert(key, self.value_or_null());
                Some(())
            }
            (Value::Array(items), key) => {
                let index = index_of(&key, items.len())?;
                *items.get_mut(index)? = self.value_or_null();
                Some(())
            }
            _ => None,
        }
    }

    fn copy(&self, document: &mut Value, copied: &mut usize) -> Option<()> {
        let value = look(document, self.from?)?.cloned().unwrap_or_default();
        *copied += value.to_string().len();
        if *copied > MOST_COPIED_BYTES {
            return None;
        }
        add(document, self.path?, value)
    }

    fn test(&self, document: &mut Value) -> Option<()> {
        let path = self.path?;
        let found = if path.is_empty() {
            Some(&*document)
        } else {
            look(document, path)?
        };
        let expected = self.value.unwrap_or(&Value::Null);
        let equal = match found {
            None | Some(Value::Null) => expected.is_null(),
            Some(found) => self.value.is_some() && found == expected,
        };
        equal.then_some(())
    }
}

/// The container that a path leads into, and the last part of the path.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (way, last) = path.rsplit_once('/')?;
    let mut container = document;
    for part in way.split('/').skip(1) {
        container = match container {
            Value::Object(map) => map.get_mut(&unescape(part))?,
            Value::Array(items) => {
                let index = index_of(&unescape(part), items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    (container.is_object() || container.is_array()).then(|| (container, unescape(last)))
}

/// What stands at a path; a missing member of an object is `Some(None)`, a missing container or
/// index is `None`.
fn look<'a>(document: &'a mut Value, path: &str) -> Option<Option<&'a Value>> {
    match parent(document, path)? {
        (Value::Object(map), key) => Some(map.get(&key)),
        (Value::Array(items), key) => items.get(index_of(&key, items.len())?).map(Some),
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    match parent(document, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            // One more place than there are items: after the last one.
            let index = index_of(&key, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    match parent(document, path)? {
        (Value::Object(map), key) => map.remove(&key),
        (Value::Array(items), key) => {
            let index = index_of(&key, items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

/// An index below `places`; a negative one counts from the end.
fn index_of(key: &str, places: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let places = i64::try_from(places).ok()?;
    let index = if index < 0 {
        index.checked_add(places)?
    } else {
        index
    };
    usize::try_from(index).ok().filter(|_| index < places)
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests;
