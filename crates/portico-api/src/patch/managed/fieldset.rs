//! Sets of paths into an object, and their JSON form, FieldsV1.
//!
//! A set is a tree with sorted branches. Names are borrowed from the objects and the managedFields
//! they come from, so that computing a set copies nothing.

use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// A key of a list item and its value.
pub(crate) type KeyValue<'a> = (Cow<'a, str>, Cow<'a, Value>);

/// One step of a path.
#[derive(Clone, Debug)]
pub(crate) enum Element<'a> {
    /// A field of a struct or a key of a map.
    Field(Cow<'a, str>),
    /// The item of a list that has these keys, sorted by name.
    Key(Vec<KeyValue<'a>>),
    /// The item of a set.
    Value(Cow<'a, Value>),
    /// The item of a list by position. Never made here, only kept if a client sends one.
    Index(i64),
}

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set<'a>(Vec<Node<'a>>);

/// A path one step down: whether it is in the set, and what is in the set below it. Never neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node<'a> {
    pub element: Element<'a>,
    pub member: bool,
    pub below: Set<'a>,
}

impl<'a> Set<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Add a node, joining it with one of the same element. Cheap when nodes come in order.
    pub(crate) fn insert(&mut self, element: Element<'a>, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        let node = Node {
            element,
            member,
            below,
        };
        if self.0.last().is_none_or(|last| last.element < node.element) {
            return self.0.push(node);
        }
        match self.find(&node.element) {
            Ok(place) => {
                if let Some(present) = self.0.get_mut(place) {
                    present.member |= node.member;
                    present.below = std::mem::take(&mut present.below).union(node.below);
                }
            }
            Err(place) => self.0.insert(place, node),
        }
    }

    pub(crate) fn get(&self, element: &Element<'_>) -> Option<&Node<'a>> {
        self.find(element).ok().and_then(|place| self.0.get(place))
    }

    fn find(&self, element: &Element<'_>) -> Result<usize, usize> {
        self.0.binary_search_by(|node| node.element.cmp(element))
    }

    pub(crate) fn has(&self, path: &[Element<'_>]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.below.has(rest)),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        let mut joined = Vec::with_capacity(self.0.len().max(other.0.len()));
        let mut others = other.0.into_iter().peekable();
        for mut node in self.0 {
            while let Some(other) = others.next_if(|other| other.element < node.element) {
                joined.push(other);
            }
            if let Some(other) = others.next_if(|other| other.element == node.element) {
                node.member |= other.member;
                node.below = node.below.union(other.below);
            }
            joined.push(node);
        }
        joined.extend(others);
        Set(joined)
    }

    /// The paths that are not in `other`. What is below a path stays even if the path goes.
    pub(crate) fn difference(self, other: &Set<'_>) -> Self {
        self.filter_map(other, |mut node, other| {
            node.member &= !other.is_some_and(|other| other.member);
            if let Some(other) = other {
                node.below = node.below.difference(&other.below);
            }
            node
        })
    }

    pub(crate) fn intersection(self, other: &Set<'_>) -> Self {
        self.filter_map(other, |mut node, other| {
            node.member &= other.is_some_and(|other| other.member);
            node.below =
                other.map_or_else(Set::default, |other| node.below.intersection(&other.below));
            node
        })
    }

    /// Change each node by its counterpart in another set, walking both in order, and drop what
    /// becomes empty.
    fn filter_map(
        self,
        other: &Set<'_>,
        change: impl Fn(Node<'a>, Option<&Node<'_>>) -> Node<'a>,
    ) -> Self {
        let mut others = other.0.iter().peekable();
        let changed = self.0.into_iter().map(|node| {
            while others
                .next_if(|other| other.element < node.element)
                .is_some()
            {}
            let counterpart = others
                .peek()
                .filter(|other| other.element == node.element)
                .copied();
            change(node, counterpart)
        });
        Set(changed
            .filter(|node| node.member || !node.below.is_empty())
            .collect())
    }

    /// Removes the fields at the top that have these names, with all that is below them.
    pub(crate) fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(
            |node| !matches!(&node.element, Element::Field(name) if names.contains(&name.as_ref())),
        );
        self
    }

    /// Change the set at one field of the top.
    pub(crate) fn map_field(mut self, name: &str, change: impl FnOnce(Self) -> Self) -> Self {
        if let Some(node) = self
            .0
            .iter_mut()
            .find(|node| matches!(&node.element, Element::Field(field) if field == name))
        {
            node.member = false;
            node.below = change(std::mem::take(&mut node.below));
        }
        self.0.retain(|node| node.member || !node.below.is_empty());
        self
    }

    /// Rebuild the set, node by node.
    pub(crate) fn map(self, change: impl Fn(Node<'a>) -> Node<'a>) -> Self {
        Set(self.0.into_iter().map(change).collect())
    }

    /// All paths in order, parents first.
    pub(crate) fn paths(&self) -> Vec<Vec<Element<'a>>> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Vec<Element<'a>>, paths: &mut Vec<Vec<Element<'a>>>) {
        for node in &self.0 {
            prefix.push(node.element.clone());
            if node.member {
                paths.push(prefix.clone());
            }
            node.below.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// The set as FieldsV1.
    pub(crate) fn to_json(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, with_self: bool) -> Map<String, Value> {
        let below = self.0.iter().map(|node| {
            // A path that has nothing below it needs no dot.
            let with_self = node.member && !node.below.is_empty();
            (
                node.element.to_key(),
                Value::Object(node.below.to_map(with_self)),
            )
        });
        with_self
            .then(|| (".".to_owned(), Value::Object(Map::new())))
            .into_iter()
            .chain(below)
            .collect()
    }

    /// Read FieldsV1. Steps of a kind that is not known are left out.
    pub(crate) fn from_json(json: &'a Value) -> Option<Self> {
        let mut set = Set::default();
        for (key, value) in json.as_object()? {
            if key == "." {
                continue;
            }
            let Some(element) = Element::from_key(key)? else {
                continue;
            };
            let below = Set::from_json(value)?;
            let member = below.is_empty() || value.get(".").is_some();
            set.insert(element, member, below);
        }
        Some(set)
    }
}

impl<'a> Element<'a> {
    pub(crate) fn field(name: &'a str) -> Self {
        Self::Field(Cow::Borrowed(name))
    }

    fn to_key(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
            Self::Key(keys) => {
                let map = keys
                    .iter()
                    .map(|(name, value)| (name.clone().into_owned(), value.clone().into_owned()));
                format!("k:{}", Value::Object(map.collect()))
            }
        }
    }

    /// `None` if the key is malformed, `Some(None)` if it is of an unknown kind.
    fn from_key(key: &'a str) -> Option<Option<Self>> {
        let (kind, rest) = (key.get(..2)?, key.get(2..)?);
        if !kind.ends_with(':') {
            return None;
        }
        Some(match kind {
            "f:" => Some(Self::field(rest)),
            "v:" => Some(Self::Value(Cow::Owned(serde_json::from_str(rest).ok()?))),
            "i:" => Some(Self::Index(rest.parse().ok()?)),
            "k:" => {
                let map: Map<String, Value> = serde_json::from_str(rest).ok()?;
                let mut keys: Vec<KeyValue<'a>> = map
                    .into_iter()
                    .map(|(k, v)| (Cow::Owned(k), Cow::Owned(v)))
                    .collect();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                Some(Self::Key(keys))
            }
            _ => None,
        })
    }
}

/// `.spec.ports[port=80,protocol="TCP"].nodePort`.
pub(crate) fn display(path: &[Element<'_>]) -> String {
    path.iter().map(ToString::to_string).collect()
}

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", keys.join(","))
            }
        }
    }
}

impl Ord for Element<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl Element<'_> {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialOrd for Element<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element<'_> {}

fn compare_keys(a: &[KeyValue<'_>], b: &[KeyValue<'_>]) -> Ordering {
    let pairs = a
        .iter()
        .zip(b)
        .map(|(a, b)| a.0.cmp(&b.0).then_with(|| compare_values(&a.1, &b.1)));
    pairs
        .fold(Ordering::Equal, Ordering::then)
        .then(a.len().cmp(&b.len()))
}

/// Numbers first and by size, so that 1 and 1.0 are one key, then text, booleans, the rest.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a
                .as_f64()
                .unwrap_or_default()
                .total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
            a.to_string().cmp(&b.to_string())
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

#[cfg(test)]
mod tests;
