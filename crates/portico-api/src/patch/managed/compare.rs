//! What differs between two objects of one type, as sets of fields.

use super::fieldset::{Element, Set};
use super::shape::{Items, Shape};
use crate::schema::Schema;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The fields that the right side adds, removes and changes.
#[derive(Debug, Default)]
pub(super) struct Diff<'a> {
    pub added: Set<'a>,
    pub removed: Set<'a>,
    pub modified: Set<'a>,
}

/// What happened to a value itself, as opposed to what is below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Same,
    Added,
    Removed,
    Modified,
}

impl<'a> Diff<'a> {
    pub(super) fn of(
        schema: &'a Schema,
        shape: Shape<'a>,
        left: &'a Value,
        right: &'a Value,
    ) -> Self {
        Compare { schema }.values(shape, Some(left), Some(right)).0
    }

    /// Removes all that concerns these fields of the top.
    pub(super) fn without(self, names: &[&str]) -> Self {
        Self {
            added: self.added.without(names),
            removed: self.removed.without(names),
            modified: self.modified.without(names),
        }
    }

    fn put(&mut self, element: Element<'a>, (below, mark): (Self, Mark)) {
        let parts = [
            (&mut self.added, below.added, Mark::Added),
            (&mut self.removed, below.removed, Mark::Removed),
            (&mut self.modified, below.modified, Mark::Modified),
        ];
        for (set, below, what) in parts {
            if mark == what || !below.is_empty() {
                set.insert(element.clone(), mark == what, below);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.modified.is_empty()
    }
}

struct Compare<'a> {
    schema: &'a Schema,
}

/// The items of both sides that go by one name. More than one on a side is a duplicate, which
/// ownership cannot tell apart and takes as one value.
#[derive(Default)]
struct Pair<'a> {
    left: Vec<&'a Value>,
    right: Vec<&'a Value>,
}

type Side<'a> = Option<&'a Value>;

impl<'a> Compare<'a> {
    fn values(&self, shape: Shape<'a>, left: Side<'a>, right: Side<'a>) -> (Diff<'a>, Mark) {
        let below = match shape {
            Shape::Leaf => return (Diff::default(), leaf(left, right)),
            Shape::Struct(_) | Shape::Map(_) => {
                let (left_map, right_map) = (
                    left.and_then(Value::as_object),
                    right.and_then(Value::as_object),
                );
                if left_map.is_none_or(Map::is_empty) && right_map.is_none_or(Map::is_empty) {
                    return (Diff::default(), leaf(left, right));
                }
                self.maps(shape, left_map, right_map)
            }
            Shape::List(items) => {
                let (left_items, right_items) = (slice(left), slice(right));
                if left_items.is_empty() && right_items.is_empty() {
                    return (Diff::default(), leaf(left, right));
                }
                self.lists(items, left_items, right_items)
            }
        };
        let mark = match (left, right) {
            (None, _) => Mark::Added,
            (_, None) => Mark::Removed,
            _ => Mark::Same,
        };
        (below, mark)
    }

    fn maps(
        &self,
        shape: Shape<'a>,
        left: Option<&'a Map<String, Value>>,
        right: Option<&'a Map<String, Value>>,
    ) -> Diff<'a> {
        let mut diff = Diff::default();
        let both = left
            .into_iter()
            .flatten()
            .map(|(name, value)| (name, Some(value), right.and_then(|map| map.get(name))));
        let new = right
            .into_iter()
            .flatten()
            .filter(|(name, _)| left.is_none_or(|map| !map.contains_key(*name)));
        for (name, left, right) in both.chain(new.map(|(name, value)| (name, None, Some(value)))) {
            if shape.skips(name) {
                continue;
            }
            let found = self.values(shape.member(self.schema, name).shape, left, right);
            if found.1 != Mark::Same || !found.0.is_empty() {
                diff.put(Element::field(name), found);
            }
        }
        diff
    }

    fn lists(&self, items: Items<'a>, left: &'a [Value], right: &'a [Value]) -> Diff<'a> {
        // An item that has no name cannot be owned.
        let element = |item| items.element(self.schema, item).ok();
        let mut pairs: BTreeMap<Element<'a>, Pair<'a>> = BTreeMap::new();
        for item in left {
            element(item)
                .into_iter()
                .for_each(|element| pairs.entry(element).or_default().left.push(item));
        }
        for item in right {
            element(item)
                .into_iter()
                .for_each(|element| pairs.entry(element).or_default().right.push(item));
        }
        let mut diff = Diff::default();
        for (element, pair) in pairs {
            self.pair(&mut diff, items.shape(self.schema), element, &pair);
        }
        diff
    }

    fn pair(&self, diff: &mut Diff<'a>, shape: Shape<'a>, element: Element<'a>, pair: &Pair<'a>) {
        let (left, right) = (pair.left.first().copied(), pair.right.first().copied());
        match (pair.left.len(), pair.right.len()) {
            (0 | 1, 0 | 1) => diff.put(element, self.values(shape, left, right)),
            (2.., 2..) if pair.left == pair.right => {}
            (2.., 2..) => diff.put(element, (Diff::default(), Mark::Modified)),
            // From several to one or none: what is left is new.
            (2.., _) => {
                diff.put(element.clone(), (Diff::default(), Mark::Removed));
                if right.is_some() {
                    diff.put(element, self.values(shape, None, right));
                }
            }
            // From one or none to several: what was is gone.
            (_, 2..) => {
                diff.put(element.clone(), (Diff::default(), Mark::Added));
                if left.is_some() {
                    diff.put(element, self.values(shape, left, None));
                }
            }
        }
    }
}

fn slice(value: Side<'_>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn leaf(left: Side<'_>, right: Side<'_>) -> Mark {
    match (left, right) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        (left, right) if left == right => Mark::Same,
        _ => Mark::Modified,
    }
}
