//! A configuration as written down, be it in a file or with flags: a tree of values that is read
//! leaf by leaf.
//!
//! Reading a leaf checks it, gives it its default, and remembers what came of it. So in the end it
//! is known what was wrong, which fields were not read, and how the whole configuration looks with
//! its defaults.

use portico_model::duration;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// How the operator knows a field: by its path, or by the flag that sets it.
pub(super) type FieldName = fn(&str) -> String;

pub(super) struct Document {
    tree: Value,
    name: FieldName,
    resolved: Value,
    asked: BTreeSet<String>,
    problems: Vec<String>,
    passed_over: Vec<String>,
}

impl Document {
    pub(super) fn new(tree: Value, name: FieldName) -> Self {
        let resolved = Value::Object(Map::new());
        Self {
            tree,
            name,
            resolved,
            asked: BTreeSet::new(),
            problems: Vec::new(),
            passed_over: Vec::new(),
        }
    }

    /// How people call this field.
    pub(super) fn name(&self, path: &str) -> String {
        (self.name)(path)
    }

    pub(super) fn problem(&mut self, path: &str, problem: impl AsRef<str>) {
        let name = self.name(path);
        self.problems.push(format!("{name}: {}", problem.as_ref()));
    }

    /// Takes the list of everything that is wrong.
    pub(super) fn problems(&mut self) -> Vec<String> {
        std::mem::take(&mut self.problems)
    }

    /// The whole configuration with defaults.
    pub(super) fn resolved(self) -> Value {
        self.resolved
    }

    /// What is written at a path, where it is not null.
    fn find(&mut self, path: &str) -> Option<Value> {
        self.asked.insert(path.to_owned());
        self.look(path).cloned().filter(|value| !value.is_null())
    }

    fn look(&self, path: &str) -> Option<&Value> {
        path.split('.')
            .try_fold(&self.tree, |value, key| value.get(key))
    }

    /// A default that a file would not have: written out, so that a file made of this means the
    /// same.
    pub(super) fn resolve_to(&mut self, path: &str, text: &str) {
        self.resolve(path, Value::from(vec![text]));
    }

    fn resolve(&mut self, path: &str, value: Value) {
        set(&mut self.resolved, path, value);
    }

    /// A text; missing and empty are the same.
    pub(super) fn text(&mut self, path: &str, default: &str) -> String {
        let text = match self.find(path) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => {
                self.problem(path, format!("{other} is not a text: put it in quotes"));
                String::new()
            }
        };
        let text = if text.is_empty() {
            default.to_owned()
        } else {
            text
        };
        self.resolve(path, text.clone().into());
        text
    }

    pub(super) fn switch(&mut self, path: &str, default: bool) -> bool {
        let value = match self.find(path) {
            None => default,
            Some(Value::Bool(value)) => value,
            Some(Value::String(text)) if text == "true" || text == "false" => text == "true",
            Some(other) => {
                self.problem(path, format!("{other} is neither true nor false"));
                default
            }
        };
        self.resolve(path, value.into());
        value
    }

    pub(super) fn number(&mut self, path: &str, range: RangeInclusive<i64>, default: i64) -> i64 {
        let found = self.find(path);
        let number = match &found {
            None => Some(default),
            Some(Value::Number(number)) => number.as_i64(),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        let value = number
            .filter(|number| found.is_none() || range.contains(number))
            .unwrap_or_else(|| {
                let written = found.unwrap_or_default();
                self.problem(
                    path,
                    format!(
                        "{written} is not a number from {} to {}",
                        range.start(),
                        range.end()
                    ),
                );
                default
            });
        self.resolve(path, value.into());
        value
    }

    pub(super) fn duration(&mut self, path: &str, default: Duration) -> Duration {
        let value = match self.find(path) {
            None => default,
            Some(Value::String(text)) => duration::parse(&text).unwrap_or_else(|| {
                self.problem(
                    path,
                    format!("{text:?} is not a duration: write it like 30s, 250ms or 1h30m"),
                );
                default
            }),
            Some(Value::Number(zero)) if zero.as_i64() == Some(0) => Duration::ZERO,
            Some(other) => {
                self.problem(
                    path,
                    format!("{other} is not a duration: write it like 30s, 250ms or 1h30m"),
                );
                default
            }
        };
        self.resolve(path, duration::print(value).into());
        value
    }

    /// A duration where zero means the default.
    pub(super) fn period(&mut self, path: &str, default: Duration) -> Duration {
        match self.duration(path, default) {
            Duration::ZERO => {
                self.resolve(path, duration::print(default).into());
                default
            }
            period => period,
        }
    }

    /// A list of texts, or one text with commas.
    pub(super) fn list(&mut self, path: &str) -> Vec<String> {
        let list: Option<Vec<String>> = match self.find(path) {
            None => Some(Vec::new()),
            Some(Value::String(text)) => {
                Some(text.split(',').map(|item| item.trim().to_owned()).collect())
            }
            Some(Value::Array(items)) => items
                .into_iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect(),
            Some(_) => None,
        };
        let mut list = list.unwrap_or_else(|| {
            self.problem(path, "is not a list of texts");
            Vec::new()
        });
        list.retain(|item| !item.is_empty());
        self.resolve(path, list.clone().into());
        list
    }

    /// An address to listen on, with or without a port. Empty is the default in a file (`None`
    /// where there is none), and means "do not listen" where `empty_is_off`.
    pub(super) fn socket(
        &mut self,
        path: &str,
        default: SocketAddr,
        empty_is_off: bool,
    ) -> Option<SocketAddr> {
        if empty_is_off && self.find(path) == Some(Value::from("")) {
            self.resolve(path, "".into());
            return None;
        }
        let text = self.text(path, "");
        let address = match (
            text.as_str(),
            text.parse::<SocketAddr>(),
            text.parse::<IpAddr>(),
        ) {
            ("", _, _) => default,
            (_, Ok(address), _) if address.port() != 0 => address,
            (_, _, Ok(ip)) => SocketAddr::new(ip, default.port()),
            _ => {
                self.problem(
                    path,
                    format!("{text:?} is not an address: write it like {default}"),
                );
                default
            }
        };
        self.resolve(path, address.to_string().into());
        Some(address)
    }

    /// Whether a field that has no meaning here was set to anything but its zero value.
    pub(super) fn meaningless(&mut self, path: &str) -> bool {
        let Some(value) = self.find(path) else {
            return false;
        };
        self.resolve(path, value.clone());
        says_something(&value)
    }

    /// Whether it is set to anything but nothing.
    pub(super) fn says(&self, path: &str) -> bool {
        self.look(path).is_some_and(says_something)
    }

    /// Whether anything is written there but null.
    pub(super) fn has(&self, path: &str) -> bool {
        self.look(path).is_some_and(|value| !value.is_null())
    }

    /// What is written at one path counts at another.
    pub(super) fn copy(&mut self, from: &str, to: &str) {
        if let Some(value) = self.look(from).cloned() {
            set(&mut self.tree, to, value);
        }
    }

    /// Read something of which nothing that is wrong is a problem, if it is `lenient`.
    pub(super) fn leniently<T>(&mut self, lenient: bool, read: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.problems.len();
        let found = read(self);
        if lenient {
            let passed_over = self.problems.split_off(before);
            self.passed_over.extend(passed_over);
        }
        found
    }

    /// What was wrong and does not matter.
    pub(super) fn passed_over(&mut self) -> Vec<String> {
        std::mem::take(&mut self.passed_over)
    }

    /// The paths that are written down and that were not read: unknown fields.
    pub(super) fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        if let Value::Object(fields) = &self.tree {
            self.collect_unknown("", fields, &mut unknown);
        }
        unknown
    }

    fn collect_unknown(&self, above: &str, fields: &Map<String, Value>, unknown: &mut Vec<String>) {
        for (key, value) in fields {
            let path = if above.is_empty() {
                key.clone()
            } else {
                format!("{above}.{key}")
            };
            let below = format!("{path}.");
            match value {
                _ if self.asked.contains(&path) => {}
                Value::Object(inner)
                    if self.asked.iter().any(|asked| asked.starts_with(&below)) =>
                {
                    self.collect_unknown(&path, inner, unknown);
                }
                // A section written as `section:` with nothing below it.
                Value::Null if self.asked.iter().any(|asked| asked.starts_with(&below)) => {}
                _ => unknown.push(path),
            }
        }
    }
}

/// Put a value at a path, making the sections above it.
pub(super) fn set(tree: &mut Value, path: &str, value: Value) {
    let mut place = tree;
    for key in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else { return };
        place = fields.entry(key).or_insert(Value::Null);
    }
    *place = value;
}

/// Whether it differs from what a generated file has for an unset field.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty() && duration::parse(text) != Some(Duration::ZERO),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(says_something),
    }
}
