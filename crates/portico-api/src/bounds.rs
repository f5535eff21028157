//! How deep and how large a value may be: checked where it enters (JSON, YAML, protobuf) and where
//! a patch makes it. Everything that walks values recursively, dropping them included, is safe at
//! this depth on the smallest stack that a thread has here (portico-apiserver/tests/walkers.rs).

use serde_json::Value;

/// Lists and objects inside each other; more than three times what the deepest kind has.
pub const MOST_DEPTH: usize = 64;

/// About as much JSON as a request may have.
pub const MOST_BYTES: usize = 3 * 1024 * 1024;

/// Values in one object: a `{}` takes three bytes of a body, and as an item of a list of containers
/// a kilobyte of memory. An object of 1.5 MB, the most that etcd takes, has fewer even if it is a
/// ConfigMap of the shortest entries.
pub const MOST_VALUES: usize = 250_000;

/// A value that is not taken; the message names the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum TooMuch {
    #[error("lists and objects may be nested {MOST_DEPTH} deep at most")]
    Deep,
    #[error("the object may have at most {MOST_BYTES} bytes")]
    Large,
    #[error("the object may consist of at most {MOST_VALUES} values")]
    Many,
    #[error("the operations of the patch move too many values; send fewer of them at once")]
    Work,
}

/// What a value measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// How many lists and objects are inside each other; 0 for a plain value.
    pub depth: usize,
    /// The length of its JSON, but for escapes and the digits of numbers.
    pub bytes: usize,
    /// How many values it consists of.
    pub values: usize,
}

impl Extent {
    fn plain(bytes: usize) -> Self {
        Self {
            depth: 0,
            bytes,
            values: 1,
        }
    }

    fn add(&mut self, inner: Self) {
        self.depth = self.depth.max(inner.depth + 1);
        self.bytes += inner.bytes + 1;
        self.values += inner.values;
    }
}

/// Measure a value. Values are as deep as the parsers let them be, so the recursion has a bound.
pub fn measure(value: &Value) -> Extent {
    let mut extent = Extent {
        depth: 1,
        bytes: 2,
        values: 1,
    };
    match value {
        Value::Null | Value::Bool(_) => return Extent::plain(4),
        Value::Number(_) => return Extent::plain(1),
        Value::String(text) => return Extent::plain(text.len() + 2),
        Value::Array(items) => items.iter().for_each(|item| extent.add(measure(item))),
        Value::Object(map) => {
            for (key, value) in map {
                extent.add(measure(value));
                extent.bytes += key.len() + 3;
            }
        }
    }
    extent
}

/// Whether a value may go on.
pub fn check(value: &Value) -> Result<(), TooMuch> {
    let extent = measure(value);
    match extent {
        Extent { depth, .. } if depth > MOST_DEPTH => Err(TooMuch::Deep),
        Extent { bytes, .. } if bytes > MOST_BYTES => Err(TooMuch::Large),
        Extent { values, .. } if values > MOST_VALUES => Err(TooMuch::Many),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use crate::schema::{Field, Type, schema};
    use serde_json::json;

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!(1), |inner, level| match level % 2 {
            0 => json!([inner]),
            _ => json!({"a": inner}),
        })
    }

    #[test]
    fn extents() {
        for (value, depth, values) in [
            (json!(1), 0, 1),
            (json!([]), 1, 1),
            (json!({"a": [1, {}]}), 3, 4),
        ] {
            let extent = measure(&value);
            assert_eq!((extent.depth, extent.values), (depth, values), "{value}");
            assert!(
                extent.bytes.abs_diff(value.to_string().len()) < 4,
                "{value}"
            );
        }
    }

    fn depth_of(ty: &Type) -> usize {
        match ty {
            Type::Object(name) => {
                let fields = &schema().get(name).unwrap().fields;
                let inner = |field: &Field| depth_of(&field.ty) + usize::from(!field.inline);
                fields.iter().map(inner).max().unwrap_or(1).max(1)
            }
            Type::List(item) | Type::Map(item) => 1 + depth_of(item),
            _ => 0,
        }
    }

    #[test]
    fn every_kind_has_room() {
        let deepest = kinds::all()
            .iter()
            .map(|kind| depth_of(&Type::Object(kind.info().schema.to_owned())))
            .max();
        assert!(deepest.unwrap() * 3 < MOST_DEPTH, "{deepest:?}");
    }

    #[test]
    fn the_bounds() {
        assert_eq!(check(&nested(MOST_DEPTH)), Ok(()));
        assert_eq!(check(&nested(MOST_DEPTH + 1)), Err(TooMuch::Deep));
        assert_eq!(check(&"x".repeat(MOST_BYTES - 2).into()), Ok(()));
        assert_eq!(check(&"x".repeat(MOST_BYTES).into()), Err(TooMuch::Large));
        assert_eq!(check(&vec![0; MOST_VALUES - 1].into()), Ok(()));
        assert_eq!(check(&vec![0; MOST_VALUES].into()), Err(TooMuch::Many));
    }
}
