//! JSON patch (RFC 6902), with the liberties that kube-apiserver takes.
//!
//! Where it differs from the RFC: negative indices count from the end, `replace` of a missing
//! member adds it, `copy` of a missing member copies null, a missing `value` is null, and what
//! stands before the first `/` of a path is not looked at.

use super::{does_not_apply, too_much};
use crate::bounds::{self, Extent, TooMuch};
use crate::status::{ApiError, Result};
use serde_json::{Map, Value};

/// More operations than this in one patch are refused.
const MOST_OPERATIONS: usize = 10_000;

/// All copies of one patch together may not be longer than this, so that a patch cannot double an
/// object again and again.
const MOST_COPIED_BYTES: usize = bounds::MOST_BYTES;

/// Values that all operations of one patch together may look at or shift: a few hundred
/// milliseconds. Ten thousand insertions in front of a million items would take minutes.
const MOST_WORK: usize = 20_000_000;

/// The object after the patch.
pub fn apply(object: Value, patch: &Value) -> Result<Value> {
    let operations = decode(patch)?;
    let mut patching = Patching::new(object);
    for operation in &operations {
        operation.run(&mut patching)?;
    }
    Ok(patching.document)
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

    fn run(&self, patching: &mut Patching) -> std::result::Result<(), Refused> {
        match self.op {
            "add" => patching.put(self.path()?, self.value_or_null(), add),
            "remove" => patching.take(self.path()?).map(drop),
            "replace" => self.replace(patching),
            "move" => {
                let value = patching.take(self.from()?)?;
                patching.put(self.path()?, value, add)
            }
            "copy" => {
                let value = patching.copy(self.from()?)?;
                patching.put(self.path()?, value, add)
            }
            "test" => self.test(&mut patching.document).ok_or(Refused::Misfit),
            _ => Err(Refused::Misfit),
        }
    }

    fn path(&self) -> std::result::Result<&str, Refused> {
        self.path.ok_or(Refused::Misfit)
    }

    fn from(&self) -> std::result::Result<&str, Refused> {
        self.from.ok_or(Refused::Misfit)
    }

    fn value_or_null(&self) -> Value {
        self.value.cloned().unwrap_or_default()
    }

    fn replace(&self, patching: &mut Patching) -> std::result::Result<(), Refused> {
        let path = self.path()?;
        if !path.is_empty() {
            return patching.put(path, self.value_or_null(), replace);
        }
        let whole = self
            .value
            .filter(|value| value.is_object() || value.is_array())
            .ok_or(Refused::Misfit)?;
        bounds::check(whole)?;
        patching.bytes = patching.look_at(whole)?.bytes;
        patching.document = whole.clone();
        Ok(())
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

/// Why an operation was not carried out.
enum Refused {
    /// It does not fit the object.
    Misfit,
    /// What it would make is beyond a bound.
    TooMuch(TooMuch),
}

impl From<TooMuch> for Refused {
    fn from(error: TooMuch) -> Self {
        Self::TooMuch(error)
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Misfit => does_not_apply(),
            Refused::TooMuch(error) => too_much(error),
        }
    }
}

/// A document that is changed step by step, and what that has cost. After each operation it is
/// within the bounds: nothing that is made can be too deep to be walked or dropped.
struct Patching {
    document: Value,
    /// The size of the document.
    bytes: usize,
    copied: usize,
    work: usize,
}

impl Patching {
    fn new(document: Value) -> Self {
        Self {
            bytes: bounds::measure(&document).bytes,
            document,
            copied: 0,
            work: 0,
        }
    }

    fn look_at(&mut self, value: &Value) -> std::result::Result<Extent, TooMuch> {
        let extent = bounds::measure(value);
        self.spend(extent.values)?;
        Ok(extent)
    }

    fn spend(&mut self, values: usize) -> std::result::Result<(), TooMuch> {
        self.work += values;
        if self.work > MOST_WORK {
            return Err(TooMuch::Work);
        }
        Ok(())
    }

    /// Put a value where a path says, if the document stays within the bounds.
    fn put(&mut self, path: &str, value: Value, put: Put) -> std::result::Result<(), Refused> {
        let extent = self.look_at(&value)?;
        let steps = path.matches('/').count();
        if steps + extent.depth > bounds::MOST_DEPTH {
            return Err(TooMuch::Deep.into());
        }
        let name = path.rsplit('/').next().map_or(0, str::len);
        self.bytes += extent.bytes + name + 4;
        if self.bytes > bounds::MOST_BYTES {
            return Err(TooMuch::Large.into());
        }
        let put = put(&mut self.document, path, value).ok_or(Refused::Misfit)?;
        self.spend(put.shifted)?;
        self.forget(&put.before.unwrap_or_default())?;
        Ok(())
    }

    fn take(&mut self, path: &str) -> std::result::Result<Value, Refused> {
        let put = remove(&mut self.document, path).ok_or(Refused::Misfit)?;
        self.spend(put.shifted)?;
        let value = put.before.unwrap_or_default();
        self.forget(&value)?;
        Ok(value)
    }

    /// A value is no longer in the document.
    fn forget(&mut self, value: &Value) -> std::result::Result<(), TooMuch> {
        let bytes = self.look_at(value)?.bytes;
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(())
    }

    fn copy(&mut self, from: &str) -> std::result::Result<Value, Refused> {
        let value = look(&mut self.document, from).ok_or(Refused::Misfit)?;
        let Some(value) = value else {
            return Ok(Value::Null);
        };
        self.copied += bounds::measure(value).bytes;
        if self.copied > MOST_COPIED_BYTES {
            return Err(TooMuch::Large.into());
        }
        Ok(value.clone())
    }
}

/// A way to put a value somewhere.
type Put = fn(&mut Value, &str, Value) -> Option<Changed>;

/// What a change of a container did: what stood there before, and how many items it moved.
#[derive(Default)]
struct Changed {
    before: Option<Value>,
    shifted: usize,
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

fn add(document: &mut Value, path: &str, value: Value) -> Option<Changed> {
    match parent(document, path)? {
        (Value::Object(map), key) => Some(Changed {
            before: map.insert(key, value),
            shifted: 0,
        }),
        (Value::Array(items), key) if key == "-" => {
            items.push(value);
            Some(Changed::default())
        }
        (Value::Array(items), key) => {
            // One more place than there are items: after the last one.
            let index = index_of(&key, items.len() + 1)?;
            items.insert(index, value);
            Some(Changed {
                before: None,
                shifted: items.len() - index,
            })
        }
        _ => None,
    }
}

fn replace(document: &mut Value, path: &str, value: Value) -> Option<Changed> {
    let before = match parent(document, path)? {
        (Value::Object(map), key) => map.insert(key, value),
        (Value::Array(items), key) => {
            let index = index_of(&key, items.len())?;
            Some(std::mem::replace(items.get_mut(index)?, value))
        }
        _ => return None,
    };
    Some(Changed { before, shifted: 0 })
}

fn remove(document: &mut Value, path: &str) -> Option<Changed> {
    match parent(document, path)? {
        (Value::Object(map), key) => Some(Changed {
            before: Some(map.remove(&key)?),
            shifted: 0,
        }),
        (Value::Array(items), key) => {
            let index = index_of(&key, items.len())?;
            let before = Some(items.remove(index));
            Some(Changed {
                before,
                shifted: items.len() - index,
            })
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
