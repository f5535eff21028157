//! Values against a schema: JSON Schema, as far as descriptions of APIs use it. Strict: a property
//! that is not named is wrong, unless the schema allows any.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use regex::Regex;
use serde_json::Value;

/// Where `$ref` leads, and what else differs between kinds of descriptions.
pub(crate) trait Schemas {
    fn resolve(&self, reference: &str) -> Option<&Value>;

    /// More about one property of an object: something wrong, or nothing.
    fn check_property(
        &self,
        _name: &str,
        _schema: &Value,
        _value: Option<&Value>,
    ) -> Option<String> {
        None
    }
}

/// All that is wrong with a value, each with the path to it.
pub(crate) fn check(schemas: &dyn Schemas, schema: &Value, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    Checker {
        schemas,
        problems: &mut problems,
    }
    .check("", schema, value);
    problems
}

struct Checker<'a> {
    schemas: &'a dyn Schemas,
    problems: &'a mut Vec<String>,
}

impl Checker<'_> {
    fn wrong(&mut self, path: &str, problem: impl AsRef<str>) {
        let path = if path.is_empty() {
            "the body"
        } else {
            path.trim_start_matches('.')
        };
        self.problems.push(format!("{path} {}", problem.as_ref()));
    }

    fn check(&mut self, path: &str, schema: &Value, value: &Value) {
        if let Some(reference) = schema["$ref"].as_str() {
            match self.schemas.resolve(reference) {
                Some(schema) => self.check(path, schema, value),
                None => self.wrong(
                    path,
                    format!("refers to {reference}, which is not described"),
                ),
            }
            return;
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check(path, part, value);
        }
        if let Some(variants) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let problems = |variant: &Value| {
                let mut problems = Vec::new();
                Checker {
                    schemas: self.schemas,
                    problems: &mut problems,
                }
                .check(path, variant, value);
                problems
            };
            let nearest = variants
                .iter()
                .map(problems)
                .min_by_key(Vec::len)
                .unwrap_or_default();
            if !nearest.is_empty() {
                let (count, nearest) = (variants.len(), nearest.join(", "));
                self.wrong(
                    path,
                    format!("fits none of {count} variants, nearest: {nearest}"),
                );
            }
        }
        if value.is_null() && schema["nullable"] == true {
            return;
        }
        self.check_enum(path, schema, value);
        match schema["type"].as_str() {
            Some("object") => self.check_object(path, schema, value),
            Some("array") => self.check_array(path, schema, value),
            Some("string") => self.check_string(path, schema, value),
            Some(kind @ ("integer" | "number")) => self.check_number(path, kind, schema, value),
            Some("boolean") if !value.is_boolean() => {
                self.wrong(path, format!("is no boolean: {value}"))
            }
            _ => {}
        }
    }

    fn check_enum(&mut self, path: &str, schema: &Value, value: &Value) {
        if let Some(values) = schema["enum"].as_array()
            && !values.contains(value)
        {
            self.wrong(path, format!("is none of its values: {value}"));
        }
    }

    fn check_object(&mut self, path: &str, schema: &Value, value: &Value) {
        let Some(object) = value.as_object() else {
            return self.wrong(path, format!("is no object: {value}"));
        };
        let properties = schema["properties"].as_object();
        for (name, value) in object {
            let inner = format!("{path}.{name}");
            match (
                properties.and_then(|properties| properties.get(name)),
                &schema["additionalProperties"],
            ) {
                (Some(schema), _) => self.check(&inner, schema, value),
                (None, Value::Bool(true)) => {}
                (None, additional @ Value::Object(_)) => self.check(&inner, additional, value),
                (None, _) => self.wrong(&inner, "does not exist"),
            }
        }
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !object.contains_key(name) {
                self.wrong(&format!("{path}.{name}"), "is missing");
            }
        }
        for (name, schema) in properties.into_iter().flatten() {
            if let Some(problem) = self.schemas.check_property(name, schema, object.get(name)) {
                self.wrong(&format!("{path}.{name}"), problem);
            }
        }
    }

    fn check_array(&mut self, path: &str, schema: &Value, value: &Value) {
        let Some(items) = value.as_array() else {
            return self.wrong(path, format!("is no list: {value}"));
        };
        let bound = |name: &str| {
            schema[name]
                .as_u64()
                .map(|bound| usize::try_from(bound).unwrap_or(usize::MAX))
        };
        if bound("minItems").is_some_and(|least| items.len() < least)
            || bound("maxItems").is_some_and(|most| items.len() > most)
        {
            self.wrong(path, format!("has {} items", items.len()));
        }
        for (number, item) in items.iter().enumerate() {
            self.check(&format!("{path}[{number}]"), &schema["items"], item);
        }
    }

    fn check_string(&mut self, path: &str, schema: &Value, value: &Value) {
        let Some(text) = value.as_str() else {
            return self.wrong(path, format!("is no text: {value}"));
        };
        if let Some(pattern) = schema["pattern"].as_str()
            && !matches(pattern, text)
        {
            self.wrong(path, format!("is not as {pattern}: {text:?}"));
        }
        let fits = match schema["format"].as_str() {
            Some("int64") => text.parse::<i64>().is_ok(),
            Some("uint64") => text.parse::<u64>().is_ok(),
            Some("ipv4") => text.parse::<std::net::Ipv4Addr>().is_ok(),
            Some("ipv6") => text.parse::<std::net::Ipv6Addr>().is_ok(),
            Some("uuid") => matches("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text),
            Some("date-time") => matches(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*", text),
            _ => true,
        };
        if !fits {
            self.wrong(path, format!("is no {}: {text:?}", schema["format"]));
        }
    }

    fn check_number(&mut self, path: &str, kind: &str, schema: &Value, value: &Value) {
        let whole = kind == "number" || value.is_i64() || value.is_u64();
        let Some(number) = value.as_f64().filter(|_| whole) else {
            return self.wrong(path, format!("is no {kind}: {value}"));
        };
        let small = schema["format"] == "int32"
            && !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number);
        let below = schema["minimum"]
            .as_f64()
            .is_some_and(|least| number < least);
        let above = schema["maximum"].as_f64().is_some_and(|most| number > most);
        if small || below || above {
            self.wrong(path, format!("is out of range: {value}"));
        }
    }
}

/// Patterns are few and used often.
static PATTERNS: Mutex<BTreeMap<String, Option<Regex>>> = Mutex::new(BTreeMap::new());

/// The whole text, as descriptions mean it.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    if !patterns.contains_key(pattern) {
        patterns.insert(
            pattern.to_owned(),
            Regex::new(&format!("^(?:{pattern})$")).ok(),
        );
    }
    patterns
        .get(pattern)
        .and_then(Option::as_ref)
        .is_some_and(|regex| regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Named(Value);

    impl Schemas for Named {
        fn resolve(&self, reference: &str) -> Option<&Value> {
            self.0.get(reference)
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        let named = Named(json!({"Port": {"type": "integer", "format": "int32", "minimum": 1}}));
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "pattern": "[a-z]+"}, "kind": {"type": "string", "enum": ["A", "B"]},
            "port": {"$ref": "Port"}, "ids": {"type": "array", "items": {"type": "string", "format": "uint64"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}, "lost": {"$ref": "Gone"},
            "maybe": {"type": "string", "nullable": true}, "one": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
        }});
        let good = json!({"name": "a", "kind": "B", "port": 80, "ids": ["1"], "labels": {"x": "y"}, "maybe": null, "one": true});
        assert_eq!(check(&named, &schema, &good), Vec::<String>::new());
        let table = [
            (json!({"name": "A"}), "name is not as [a-z]+: \"A\""),
            (json!({}), "name is missing"),
            (
                json!({"name": "a", "kind": "C"}),
                "kind is none of its values: \"C\"",
            ),
            (
                json!({"name": "a", "port": "80"}),
                "port is no integer: \"80\"",
            ),
            (json!({"name": "a", "port": 0}), "port is out of range: 0"),
            (
                json!({"name": "a", "ids": ["x"]}),
                "ids[0] is no \"uint64\": \"x\"",
            ),
            (json!({"name": "a", "ids": "1"}), "ids is no list: \"1\""),
            (
                json!({"name": "a", "labels": {"x": 1}}),
                "labels.x is no text: 1",
            ),
            (json!({"name": "a", "nmae": 1}), "nmae does not exist"),
            (
                json!({"name": "a", "lost": 1}),
                "lost refers to Gone, which is not described",
            ),
            (
                json!({"name": "a", "one": 1}),
                "one fits none of 2 variants, nearest: one is no text: 1",
            ),
            (json!("a"), "the body is no object: \"a\""),
        ];
        for (value, problem) in table {
            assert_eq!(check(&named, &schema, &value), [problem], "{value}");
        }
    }
}
