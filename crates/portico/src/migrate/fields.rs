//! A tree of values that remembers which of its fields were read, so that the others can be
//! reported as not understood. Pure.

use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Value);

impl Fields {
    pub(super) fn new(tree: Value) -> Self {
        Self(tree)
    }

    /// Take what is at a path; null where there is nothing.
    pub(super) fn take(&mut self, path: &str) -> Value {
        let (folders, last) = path.rsplit_once('.').unwrap_or(("", path));
        let mut folders = folders.split('.').filter(|folder| !folder.is_empty());
        let parent = folders.try_fold(&mut self.0, |value, key| value.get_mut(key));
        parent
            .and_then(Value::as_object_mut)
            .and_then(|map| map.remove(last))
            .unwrap_or_default()
    }

    /// Take a text; numbers and switches as people write them.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        scalar(&self.take(path)).filter(|text| !text.is_empty())
    }

    pub(super) fn number(&mut self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    pub(super) fn switch(&mut self, path: &str) -> Option<bool> {
        match self.text(path)?.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    pub(super) fn list(&mut self, path: &str) -> Vec<Value> {
        match self.take(path) {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            single => vec![single],
        }
    }

    pub(super) fn texts(&mut self, path: &str) -> Vec<String> {
        self.list(path).iter().filter_map(scalar).collect()
    }

    /// Paths and values of what is left.
    pub(super) fn left(&self) -> Vec<String> {
        let mut out = Vec::new();
        leaves(&self.0, String::new(), &mut out);
        out
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn leaves(value: &Value, path: String, out: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            let at = |key: &str| {
                if path.is_empty() {
                    key.to_owned()
                } else {
                    format!("{path}.{key}")
                }
            };
            map.iter()
                .for_each(|(key, value)| leaves(value, at(key), out));
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| leaves(item, format!("{path}[{index}]"), out));
        }
        value => out.push(format!("{path}: {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_nobody_took_is_left() {
        let mut fields = Fields::new(
            json!({"a": {"b": 1, "c": "x"}, "d": [1, 2], "e": [{"f": true}], "g": null, "h": {}}),
        );
        assert_eq!(
            (fields.number("a.b"), fields.text("a.x"), fields.take("a.b")),
            (Some(1), None, Value::Null)
        );
        assert_eq!(fields.left(), ["a.c: \"x\"", "d: [1,2]", "e[0].f: true"]);
    }
}
