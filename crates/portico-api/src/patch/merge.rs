//! JSON merge patch (RFC 7386).

use crate::status::{ApiError, Result};
use serde_json::{Map, Value};

/// The object after the patch.
pub fn apply(mut object: Value, patch: &Value) -> Result<Value> {
    let Value::Object(patch) = patch else {
        return Err(ApiError::bad_request(
            "error decoding patch: a merge patch must be a JSON object",
        ));
    };
    merge(crate::object::map(&mut object), patch);
    Ok(object)
}

fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, wanted) in patch {
        match (wanted, target.get_mut(key)) {
            (Value::Null, _) => {
                target.remove(key);
            }
            (Value::Object(wanted), Some(Value::Object(present))) => merge(present, wanted),
            _ => {
                target.insert(key.clone(), without_nulls(wanted));
            }
        }
    }
}

/// A null in something new asks for the absence of what is not there. Nulls that are items of a
/// list stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key.clone(), without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merges_as_the_rfc_says() {
        for (object, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (
                json!({"e": null}),
                json!({"a": 1}),
                json!({"a": 1, "e": null}),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"a": {"b": "c", "c": null}}),
                json!({"a": {"b": "c"}}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({}),
                json!({"a": [null, {"b": null}]}),
                json!({"a": [null, {}]}),
            ),
        ] {
            assert_eq!(
                apply(object.clone(), &patch).unwrap(),
                expected,
                "{object} + {patch}"
            );
        }
    }

    #[test]
    fn refuses_what_is_not_an_object() {
        for patch in [json!([]), json!(null), json!("x"), json!(1)] {
            assert_eq!(
                apply(json!({"a": 1}), &patch).unwrap_err().code,
                400,
                "{patch}"
            );
        }
    }
}
