//! Putting an applied object into a live one, and taking fields out again, by the schema.

use super::fieldset::{Element, Set};
use super::shape::{Items, Shape};
use crate::schema::Schema;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The fields that an object sets.
pub(super) fn fields_of<'a>(schema: &'a Schema, shape: Shape<'a>, value: &'a Value) -> Set<'a> {
    fields(schema, shape, value).0
}

/// The fields below a value, and whether it is a field itself by what it is.
fn fields<'a>(schema: &'a Schema, shape: Shape<'a>, value: &'a Value) -> (Set<'a>, bool) {
    let mut set = Set::default();
    match (shape, value) {
        (Shape::Leaf, _) => return (set, true),
        (Shape::Struct(_) | Shape::Map(_), Value::Object(map)) => {
            for (name, value) in map.iter().filter(|(name, _)| !shape.skips(name)) {
                let member = shape.member(schema, name);
                let (below, leaf) = fields(schema, member.shape, value);
                let bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                set.insert(
                    Element::field(name),
                    leaf || bare || !member.declared,
                    below,
                );
            }
        }
        (Shape::List(items), Value::Array(list)) => {
            let mut seen: BTreeMap<Element<'a>, (&Value, bool)> = BTreeMap::new();
            for item in list {
                if let Ok(element) = items.element(schema, item) {
                    seen.entry(element)
                        .and_modify(|(_, twice)| *twice = true)
                        .or_insert((item, false));
                }
            }
            for (element, (item, twice)) in seen {
                let below = if twice {
                    Set::default()
                } else {
                    fields(schema, items.shape(schema), item).0
                };
                set.insert(element, true, below);
            }
        }
        _ => {}
    }
    (set, false)
}

/// A set in which every struct field that has something below it is in the set itself, so that
/// removing all parts of a struct removes the struct.
pub(super) fn with_parents<'a>(schema: &'a Schema, shape: Shape<'a>, set: Set<'a>) -> Set<'a> {
    set.map(|mut node| {
        let below = match (&node.element, shape) {
            (Element::Field(name), Shape::Struct(_) | Shape::Map(_)) => {
                let member = shape.member(schema, name);
                node.member |= member.declared && !node.below.is_empty();
                member.shape
            }
            (Element::Key(_), Shape::List(items)) => items.shape(schema),
            _ => Shape::Leaf,
        };
        node.below = with_parents(schema, below, node.below);
        node
    })
}

/// A set from a time when a field may have been granular that is atomic now: its parts are one
/// value now.
pub(super) fn reconcile<'a>(schema: &'a Schema, shape: Shape<'a>, set: Set<'a>) -> Set<'a> {
    set.map(|mut node| {
        let below = match (&node.element, shape) {
            (Element::Field(name), Shape::Struct(ty)) if ty.field(schema, name).is_none() => {
                return node;
            }
            (Element::Field(name), _) => shape.member(schema, name).shape,
            (Element::Key(_), Shape::List(items)) => items.shape(schema),
            _ => return node,
        };
        match below {
            Shape::Leaf if !node.below.is_empty() => {
                (node.member, node.below) = (true, Set::default())
            }
            below => node.below = reconcile(schema, below, node.below),
        }
        node
    })
}

/// The value without the fields of a set; `None` if nothing is left.
pub(super) fn remove(
    schema: &Schema,
    shape: Shape<'_>,
    value: &Value,
    gone: &Set<'_>,
) -> Option<Value> {
    let part = |shape: Shape<'_>, element: &Element<'_>, value: &Value| match gone.get(element) {
        Some(node) if node.member => None,
        Some(node) => remove(schema, shape, value, &node.below),
        None => Some(value.clone()),
    };
    match (shape, value) {
        (Shape::Struct(_) | Shape::Map(_), Value::Object(map)) => {
            // What has lost all its parts and was not to go itself is null, which means absent to
            // all but ownership.
            let kept = map.iter().filter_map(|(name, value)| {
                let element = Element::field(name);
                let kept = part(shape.member(schema, name).shape, &element, value);
                let goes = gone.get(&element).is_some_and(|node| node.member);
                (!goes).then(|| (name.clone(), kept.unwrap_or_default()))
            });
            let kept: Map<_, _> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Shape::List(items), Value::Array(list)) => {
            let keep = |item: &Value| match items.element(schema, item) {
                Ok(element) => part(items.shape(schema), &element, item),
                Err(_) => Some(item.clone()),
            };
            let kept: Vec<_> = list.iter().filter_map(keep).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        (_, Value::Object(_) | Value::Array(_)) => None,
        (_, scalar) => Some(scalar.clone()),
    }
}

/// The live value with the applied one put into it.
pub(super) fn merge<'a>(
    schema: &'a Schema,
    shape: Shape<'a>,
    live: Option<&'a Value>,
    applied: Option<&'a Value>,
) -> Option<Value> {
    let whole = || applied.or(live).cloned();
    match shape {
        Shape::Leaf => whole(),
        Shape::Struct(_) | Shape::Map(_) => {
            let (left, right) = (
                live.and_then(Value::as_object),
                applied.and_then(Value::as_object),
            );
            if left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty) {
                return whole();
            }
            let names: BTreeSet<&String> =
                left.into_iter().chain(right).flat_map(Map::keys).collect();
            let members = names
                .into_iter()
                .filter(|name| !shape.skips(name))
                .filter_map(|name| {
                    let value =
                        |map: Option<&'a Map<String, Value>>| map.and_then(|map| map.get(name));
                    let member = shape.member(schema, name).shape;
                    Some((
                        name.clone(),
                        merge(schema, member, value(left), value(right))?,
                    ))
                });
            let members: Map<_, _> = members.collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        Shape::List(items) => {
            let list = |value: Option<&'a Value>| {
                value
                    .and_then(Value::as_array)
                    .map_or(&[][..], Vec::as_slice)
            };
            let (left, right) = (list(live), list(applied));
            if left.is_empty() && right.is_empty() {
                return whole();
            }
            Some(Value::Array(Lists::new(schema, items, left, right).merge()))
        }
    }
}

/// Two lists on their way to become one. The applied items keep their order; live items that are
/// not applied stay where they are among those that are.
struct Lists<'a> {
    schema: &'a Schema,
    shape: Shape<'a>,
    left: Vec<(Option<Element<'a>>, &'a Value)>,
    right: Vec<(Element<'a>, &'a Value)>,
    /// The live item of each name; `None` for duplicates, into which nothing can be merged.
    live: BTreeMap<Element<'a>, Option<&'a Value>>,
    applied: BTreeSet<Element<'a>>,
}

impl<'a> Lists<'a> {
    fn new(schema: &'a Schema, items: Items<'a>, left: &'a [Value], right: &'a [Value]) -> Self {
        let left: Vec<_> = left
            .iter()
            .map(|item| (items.element(schema, item).ok(), item))
            .collect();
        let right: Vec<_> = right
            .iter()
            .filter_map(|item| Some((items.element(schema, item).ok()?, item)))
            .collect();
        let mut live = BTreeMap::new();
        for (element, item) in &left {
            if let Some(element) = element {
                live.entry(element.clone())
                    .and_modify(|item| *item = None)
                    .or_insert(Some(*item));
            }
        }
        let applied = right.iter().map(|(element, _)| element.clone()).collect();
        Self {
            schema,
            shape: items.shape(schema),
            left,
            right,
            live,
            applied,
        }
    }

    fn merge(self) -> Vec<Value> {
        let mut merged = Vec::with_capacity(self.left.len().max(self.right.len()));
        let mut shared = self
            .right
            .iter()
            .map(|(element, _)| element)
            .filter(|element| self.live.contains_key(element));
        let mut next_shared = shared.next();
        let mut done = BTreeSet::new();
        let (mut left, mut right) = (self.left.iter().peekable(), self.right.iter().peekable());
        loop {
            if let Some((here, item)) = left.peek() {
                let Some(here) = here.as_ref().filter(|here| self.applied.contains(here)) else {
                    merged.push((*item).clone());
                    left.next();
                    continue;
                };
                let wanted = right.peek().map(|(element, _)| element);
                if wanted == Some(here) || done.contains(here) {
                    left.next();
                } else if wanted.is_some() && next_shared.is_some_and(|next| next != here) {
                    // Applied too, but not yet: its place is given by the applied list.
                    left.next();
                    continue;
                }
            }
            let Some((element, item)) = right.next() else {
                if left.peek().is_none() {
                    return merged;
                }
                continue;
            };
            done.insert(element);
            let live = self.live.get(element).copied().flatten();
            merged.extend(merge(self.schema, self.shape, live, Some(item)));
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
}
