//! Whether an applied object fits the schema: known fields, right types, no item twice.

use super::fieldset::Element;
use super::shape::Shape;
use crate::codec;
use crate::schema::{Field, ListKind, Schema, Type};
use serde_json::Value;
use std::collections::BTreeSet;

/// Lists everything that is wrong, each with its path.
pub(super) fn problems(schema: &Schema, type_name: &str, object: &Value) -> Vec<String> {
    let mut check = Check {
        schema,
        path: String::new(),
        found: Vec::new(),
    };
    check.object(type_name, object);
    check.found
}

struct Check<'a> {
    schema: &'a Schema,
    path: String,
    found: Vec<String>,
}

impl<'a> Check<'a> {
    fn report(&mut self, problem: impl AsRef<str>) {
        if codec::is_enough(&self.found) {
            return;
        }
        let separator = if self.path.is_empty() { "" } else { ": " };
        self.found
            .push(format!("{}{separator}{}", self.path, problem.as_ref()));
    }

    fn below(&mut self, element: &str, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(element);
        check(self);
        self.path.truncate(length);
    }

    fn object(&mut self, type_name: &str, value: &'a Value) {
        match (self.schema.get(type_name), value) {
            (_, Value::Null) | (None, _) => {}
            (Some(ty), Value::Object(map)) => {
                for (name, value) in map {
                    let field = ty.field(self.schema, name);
                    self.below(&format!(".{name}"), |check| match field {
                        Some(field) => check.field(field, value),
                        None => check.report("field not declared in schema"),
                    });
                }
            }
            (_, other) => self.report(format!("expected map, got {other}")),
        }
    }

    fn field(&mut self, field: &'a Field, value: &'a Value) {
        match (&field.ty, &field.list, value) {
            (Type::List(ty), ListKind::Set | ListKind::Map(_), Value::Array(items)) => {
                self.distinct_items(field, ty, items);
            }
            (ty, _, value) => self.value(ty, value),
        }
    }

    fn distinct_items(&mut self, field: &'a Field, ty: &'a Type, list: &'a [Value]) {
        let Shape::List(items) = Shape::of_field(self.schema, field) else {
            return;
        };
        let mut seen: BTreeSet<Element<'a>> = BTreeSet::new();
        for (index, item) in list.iter().enumerate() {
            match items.element(self.schema, item) {
                Ok(element) => {
                    let name = element.to_string();
                    if !seen.insert(element) {
                        self.report(format!("duplicate entries for key {name}"));
                    }
                    self.below(&name, |check| check.value(ty, item));
                }
                Err(problem) => return self.report(format!("element {index}: {problem}")),
            }
        }
    }

    fn value(&mut self, ty: &'a Type, value: &'a Value) {
        let wanted = match (ty, value) {
            (_, Value::Null) | (Type::Any, _) => return,
            (Type::Object(name), _) => return self.object(name, value),
            (Type::List(ty), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.below(&format!("[{index}]"), |check| check.value(ty, item));
                }
                return;
            }
            (Type::Map(ty), Value::Object(map)) => {
                for (name, value) in map {
                    self.below(&format!(".{name}"), |check| check.value(ty, value));
                }
                return;
            }
            (Type::List(_), _) => "list",
            (Type::Map(_), _) => "map",
            (Type::String | Type::Bytes, Value::String(_)) => return,
            (Type::String | Type::Bytes, _) => "string",
            (Type::Bool, Value::Bool(_)) => return,
            (Type::Bool, _) => "boolean",
            (Type::Int32 | Type::Int64 | Type::Double, Value::Number(_)) => return,
            (Type::Int32 | Type::Int64 | Type::Double, _) => "numeric (int or float)",
            (_, Value::Object(_) | Value::Array(_)) => "any scalar",
            _ => return,
        };
        self.report(format!("expected {wanted}, got {value}"));
    }
}
