//! How an answer is compared with what a case expects. Null and absent are the same.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

static UUID: LazyLock<Regex> = LazyLock::new(|| whole("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"));
static TIME: LazyLock<Regex> = LazyLock::new(|| whole(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));

fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).unwrap()
}

/// Follows a dotted path: keys, list indexes, `key=value` to pick an item, `*` for all.
/// A dot inside a key is written `\.`.
pub(crate) fn lookup(value: &Value, path: &str) -> Value {
    let steps: Vec<_> = path
        .replace("\\.", "\0")
        .split('.')
        .map(|step| step.replace('\0', "."))
        .collect();
    follow(value, &steps)
}

fn follow(value: &Value, steps: &[String]) -> Value {
    let Some((step, rest)) = steps.split_first() else {
        return value.clone();
    };
    match value {
        Value::Object(map) => map
            .get(step)
            .map_or(Value::Null, |value| follow(value, rest)),
        Value::Array(items) if step == "*" => items.iter().map(|item| follow(item, rest)).collect(),
        Value::Array(items) => item(items, step).map_or(Value::Null, |item| follow(item, rest)),
        _ => Value::Null,
    }
}

fn item<'a>(items: &'a [Value], step: &str) -> Option<&'a Value> {
    match step.split_once('=') {
        Some((key, text)) => items
            .iter()
            .find(|item| item.get(key).and_then(Value::as_str) == Some(text)),
        None => items.get(step.parse::<usize>().ok()?),
    }
}

/// A copy of the value with `path: new value` set; null removes what is at the path.
pub(crate) fn edited(value: &Value, changes: &serde_json::Map<String, Value>) -> Value {
    let mut value = value.clone();
    for (path, new) in changes {
        let steps: Vec<_> = path.split('.').collect();
        set(&mut value, &steps, new);
    }
    value
}

fn set(at: &mut Value, steps: &[&str], new: &Value) {
    let Some((step, rest)) = steps.split_first() else {
        return;
    };
    match at {
        Value::Array(items) => {
            let index: usize = step.parse().unwrap();
            match (rest.is_empty(), new.is_null()) {
                (false, _) => set(&mut items[index], rest, new),
                (true, true) if index < items.len() => drop(items.remove(index)),
                (true, false) if index < items.len() => items[index] = new.clone(),
                (true, false) => items.push(new.clone()),
                (true, true) => {}
            }
        }
        Value::Object(map) if !rest.is_empty() => {
            set(
                map.entry(step.to_owned())
                    .or_insert_with(|| Value::Object(Default::default())),
                rest,
                new,
            );
        }
        Value::Object(map) if new.is_null() => drop(map.remove(*step)),
        Value::Object(map) => drop(map.insert((*step).to_owned(), new.clone())),
        other => panic!("cannot set {step} in {other}"),
    }
}

/// A line for every place where `got` departs from `want`.
pub(crate) fn differences(want: &Value, got: &Value, at: &str, found: &mut Vec<String>) {
    let same = match (want, got) {
        (Value::String(matcher), _) if matcher.starts_with('?') => matches(matcher, got),
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let (a, b) = (
                    a.get(key).unwrap_or(&Value::Null),
                    b.get(key).unwrap_or(&Value::Null),
                );
                differences(a, b, &format!("{at}.{key}"), found);
            }
            return;
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{at}.{n}"), found);
            }
            return;
        }
        _ => want == got,
    };
    if !same {
        found.push(format!("{at}: expected {}, got {}", show(want), show(got)));
    }
}

fn show(value: &Value) -> String {
    if value.is_null() {
        "(absent)".to_owned()
    } else {
        value.to_string()
    }
}

/// Whether a value satisfies a matcher such as `?ip4`, `?uid not X` or `?like REGEX`.
fn matches(matcher: &str, value: &Value) -> bool {
    let (word, rest) = matcher[1..].split_once(' ').unwrap_or((&matcher[1..], ""));
    if let Some(other) = rest.strip_prefix("not ")
        && plain(value) == other
    {
        return false;
    }
    let text = value.as_str().unwrap_or_default();
    match word {
        "absent" => value.is_null(),
        "like" => value.is_string() && whole(rest).is_match(text),
        "any" => !matches!(value, Value::Null) && !is_empty(value),
        "nodeport" => value
            .as_u64()
            .is_some_and(|port| (30000..=32767).contains(&port)),
        "ip4" => matches!(text.parse(), Ok(IpAddr::V4(ip)) if ip.octets()[..2] == [10, 96]),
        "ip6" => {
            matches!(text.parse(), Ok(IpAddr::V6(ip)) if ip.segments()[..7] == [0xfd00, 0x10, 0x96, 0, 0, 0, 0])
        }
        "uid" => UUID.is_match(text),
        "time" => TIME.is_match(text),
        "rv" => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// A value as text without quotes.
pub(crate) fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The (field, reason) pairs an error names; causes that carry only a message say neither.
pub(crate) fn causes(status: &Value) -> BTreeSet<(String, String)> {
    let causes = lookup(status, "details.causes");
    let pairs = causes
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .map(pair);
    pairs.filter(|pair| *pair != Default::default()).collect()
}

pub(crate) fn pair(cause: &Value) -> (String, String) {
    let word = |key| {
        cause
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    (word("field"), word("reason"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let value = json!({"a": [{"name": "x", "b.c": 1}, {"name": "y"}]});
        assert_eq!(lookup(&value, "a.0.name"), "x");
        assert_eq!(lookup(&value, "a.name=y.name"), "y");
        assert_eq!(lookup(&value, r"a.*.b\.c"), json!([1, null]));
        assert_eq!(lookup(&value, "a.2.name"), Value::Null);
    }

    #[test]
    fn matchers() {
        let cases = [
            ("?ip4", json!("10.96.0.1"), true),
            ("?ip4", json!("10.97.0.1"), false),
            ("?ip4 not 10.96.0.1", json!("10.96.0.1"), false),
            ("?ip6", json!("fd00:10:96::f"), true),
            ("?ip6", json!("fd00:10:96::1:f"), false),
            ("?nodeport", json!(32767), true),
            ("?nodeport", json!("32767"), false),
            ("?nodeport not 30001", json!(30001), false),
            ("?rv", json!("12"), true),
            ("?rv", json!(12), false),
            ("?absent", json!(null), true),
            ("?any", json!([]), false),
            ("?any", json!(0), true),
            ("?like a+", json!("aab"), false),
            ("?time", json!("2024-01-01T00:00:00Z"), true),
            ("?uid", json!("0"), false),
        ];
        for (matcher, value, expected) in cases {
            assert_eq!(matches(matcher, &value), expected, "{matcher} {value}");
        }
    }

    #[test]
    fn edits() {
        assert_eq!(
            edited(
                &json!({"list": [1, 2]}),
                json!({"list.0": null}).as_object().unwrap()
            ),
            json!({"list": [2]})
        );
        assert_eq!(
            edited(&json!({}), json!({"a.b": 1}).as_object().unwrap()),
            json!({"a": {"b": 1}})
        );
    }

    #[test]
    fn a_number_is_not_its_text_and_null_is_absent() {
        let mut found = vec![];
        differences(
            &json!({"a": 1, "b": null}),
            &json!({"a": "1"}),
            "x",
            &mut found,
        );
        assert_eq!(found, [r#"x.a: expected 1, got "1""#]);
    }
}
