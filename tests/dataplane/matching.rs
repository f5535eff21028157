//! Whether what was seen is what was recorded.

use serde_json::{Map, Value, json};

/// The recorded value may leave fields of objects out; `any-node` is every node, `<any>`
/// everything.
pub(crate) fn matches(expected: &Value, seen: &Value) -> bool {
    match (expected, seen) {
        (Value::Object(expected), Value::Object(seen)) => {
            let hidden = |field: &str| seen.contains_key(field) && !expected.contains_key(field);
            let contradicts = hidden("fail") || (hidden("reach") && expected.contains_key("fail"));
            !contradicts
                && expected
                    .iter()
                    .all(|(name, expected)| field_matches(name, expected, seen))
        }
        (Value::Array(expected), Value::Array(seen)) => sorted(expected) == sorted(seen),
        (Value::String(text), seen) if text == "<any>" => !seen.is_null(),
        (Value::String(text), seen) if text == "<time>" => seen == "<time>" || seen == "<now>",
        (expected, seen) => expected == seen,
    }
}

fn field_matches(name: &str, expected: &Value, seen: &Map<String, Value>) -> bool {
    match (name, seen.get(name)) {
        ("source", value) => {
            source_matches(expected, value.unwrap_or(&Value::Null), seen.get("reach"))
        }
        (_, value) => value.is_some_and(|value| matches(expected, value)),
    }
}

/// A source is one for all endpoints, or one for each.
fn source_matches(expected: &Value, seen: &Value, reached: Option<&Value>) -> bool {
    if expected.is_object() || seen.is_object() {
        let each = |value: &Value| match value {
            Value::Object(each) => each.clone(),
            one => {
                let names = reached
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str);
                names.map(|name| (name.to_owned(), one.clone())).collect()
            }
        };
        let (expected, seen) = (each(expected), each(seen));
        return expected.len() == seen.len()
            && expected.iter().all(|(name, one)| {
                seen.get(name)
                    .is_some_and(|seen| source_matches(one, seen, None))
            });
    }
    match expected.as_str() {
        Some("any-node") => matches!(seen.as_str(), Some("node1" | "node2" | "node3")),
        _ => expected == seen,
    }
}

fn sorted(values: &[Value]) -> Vec<String> {
    let mut texts: Vec<_> = values.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}

/// Times become `<now>` where they are of the last seconds, else `<time>`.
pub(crate) fn mask_times(value: &mut Value) {
    const RECENT: f64 = 20.0;
    match value {
        Value::Object(fields) => fields.values_mut().for_each(mask_times),
        Value::Array(items) => items.iter_mut().for_each(mask_times),
        Value::String(text) => {
            if let Ok(time) = text.parse::<jiff::Timestamp>() {
                let age = jiff::Timestamp::now()
                    .duration_since(time)
                    .as_secs_f64()
                    .abs();
                *value = json!(if age < RECENT { "<now>" } else { "<time>" });
            }
        }
        _ => {}
    }
}

/// Every time becomes `<time>`: nobody promises that it is of now.
pub(crate) fn forget_recency(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(forget_recency),
        value if *value == "<now>" => *value = json!("<time>"),
        _ => {}
    }
}

#[test]
fn what_matches_and_what_does_not() {
    let cases = [
        (
            json!({"reach": ["a", "b"]}),
            json!({"reach": ["b", "a"], "port": 1}),
            true,
        ),
        (json!({"reach": ["a", "b"]}), json!({"reach": ["a"]}), false),
        (
            json!({"reach": ["a"]}),
            json!({"reach": ["a"], "fail": "timeout"}),
            false,
        ),
        (
            json!({"fail": "timeout"}),
            json!({"reach": ["a"], "fail": "timeout"}),
            false,
        ),
        (json!({"fail": "timeout"}), json!({"fail": "timeout"}), true),
        (
            json!({"reach": ["a"], "source": "any-node"}),
            json!({"reach": ["a"], "source": "node2"}),
            true,
        ),
        (
            json!({"reach": ["a"], "source": "any-node"}),
            json!({"reach": ["a"], "source": "own"}),
            false,
        ),
        (
            json!({"reach": ["a", "b"], "source": {"a": "own", "b": "own"}}),
            json!({"reach": ["a", "b"], "source": "own"}),
            true,
        ),
        (
            json!({"reach": ["a", "b"], "source": {"a": "own", "b": "node1"}}),
            json!({"reach": ["a", "b"], "source": "own"}),
            false,
        ),
        (
            json!({"json": {"at": "<time>"}}),
            json!({"json": {"at": "<now>"}}),
            true,
        ),
        (
            json!({"json": {"at": "<now>"}}),
            json!({"json": {"at": "<time>"}}),
            false,
        ),
        (json!({"port": 80}), json!({}), false),
    ];
    for (expected, seen, right) in cases {
        assert_eq!(matches(&expected, &seen), right, "{expected} {seen}");
    }
}
