//! Which manager owns which field of an object, and server-side apply.
//!
//! Each object carries in `metadata.managedFields` which manager set which fields, by applying or
//! by any other write. An apply says what its manager wants to hold: what it leaves out and held
//! before goes, what another manager holds differently is a conflict.
//!
//! How the registry calls this, with one [`Owners`] for each request:
//!
//! | request | sequence |
//! |---|---|
//! | create, and PUT that creates | decode, default, [`Owners::update`] with no live object, prepare, allocate, validate, store |
//! | PUT, and PATCH by JSON, merge or strategic patch | decode (or patch and decode), default, [`Owners::update`], prepare, allocate, [`keep_times`], validate, store |
//! | apply | [`Owners::apply`] with the body as it was sent, default, prepare, allocate, [`keep_times`] if there was a live object, validate, store |
//! | any of them on `status` | the same with `subresource: "status"` |
//!
//! So an updater owns the defaults its object was stored with, an applier does not, and what
//! allocation adds has no owner. `live` is the stored object as it is; `new` may carry the
//! managedFields that the client sent, which matter: a valid list replaces the stored one, an empty
//! one (or one empty entry) forgets all owners, and a malformed one is ignored. Objects that have
//! no owners get none by an update, only by an apply.
//!
//! The body of an apply must not be decoded by the schema before: decoding writes fields that the
//! client did not set and drops zeros that it did, and an apply owns exactly what it sets.
//! [`Owners::apply`] refuses unknown fields and wrong types itself and decodes what it returns.
//!
//! Objects are in their stored spelling and version; owners of another version are dropped.

mod apply;
mod compare;
pub(crate) mod fieldset;
mod merge;
mod owners;
mod shape;
mod validate;

use crate::field::{self, Errors};
use crate::object;
use crate::schema::{Schema, TypeDef};
use compare::Diff;
use fieldset::Set;
use owners::{Entries, Manager, is_reset};
use serde_json::{Map, Value};
use shape::Shape;
use std::borrow::Cow;

/// Longer names of managers are refused, or cut where they come from a User-Agent.
const LONGEST_MANAGER: usize = 128;

/// Fields of metadata without an owner: no client can set them, or they identify the object.
const UNOWNED_METADATA: &[&str] = &[
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// One write to one object, and its manager.
#[derive(Clone, Copy, Debug)]
pub struct Owners<'a> {
    /// The schema by which fields are merged.
    pub schema: &'a Schema,
    /// The object's type in the schema.
    pub type_name: &'a str,
    /// The `apiVersion` of the object: `v1` or `discovery.k8s.io/v1`.
    pub api_version: &'a str,
    /// The manager that writes; see [`manager_name`].
    pub manager: &'a str,
    /// `status`, or "" for the object itself.
    pub subresource: &'a str,
    /// The time of the write, as in `creationTimestamp`.
    pub now: &'a str,
}

impl<'a> Owners<'a> {
    /// Set `new.metadata.managedFields` for a write that is no apply. `live` is the stored object,
    /// `None` on create.
    pub fn update(&self, live: Option<&Value>, new: &mut Value) {
        let sent = take_managed(new);
        let Some(ty) = self.schema.get(self.type_name) else {
            return;
        };
        let managed = self.updated(ty, live, new, sent.as_ref());
        set_managed(new, managed);
    }

    fn updated(
        &self,
        ty: &TypeDef,
        live: Option<&Value>,
        new: &Value,
        sent: Option<&Value>,
    ) -> Option<Value> {
        let shape = Shape::Struct(ty);
        let empty;
        let mut entries = self.live_or_sent(shape, live, sent);
        let old = match live {
            // A stored object without owners is not tracked until the first apply.
            Some(_) if entries.is_empty() => return None,
            Some(live) => live,
            None => {
                empty = shape::empty(self.schema, ty);
                &empty
            }
        };
        self.own_changes(&mut entries, shape, old, new, self.manager);
        entries.cap();
        entries.encode(self.api_version)
    }

    /// The owners before an update: as the client sent them, if it sent any that can be read, or as
    /// they are stored.
    fn live_or_sent<'v>(
        &self,
        shape: Shape<'v>,
        live: Option<&'v Value>,
        sent: Option<&'v Value>,
    ) -> Entries<'v>
    where
        'a: 'v,
    {
        if self.subresource.is_empty() {
            if is_reset(sent) {
                return Entries::default();
            }
            let sent = Entries::decode(self.schema, shape, self.api_version, sent);
            if let Some(sent) = sent.filter(|sent| !sent.is_empty()) {
                return sent;
            }
        }
        self.stored(shape, live)
    }

    fn stored<'v>(&self, shape: Shape<'v>, live: Option<&'v Value>) -> Entries<'v>
    where
        'a: 'v,
    {
        let managed = live.map(|live| object::at(live, "metadata.managedFields"));
        Entries::decode(self.schema, shape, self.api_version, managed).unwrap_or_default()
    }

    /// Give a manager the fields that an update changed or added, and take from all others what
    /// changed or went.
    fn own_changes<'v>(
        &self,
        entries: &mut Entries<'v>,
        shape: Shape<'v>,
        old: &'v Value,
        new: &'v Value,
        name: &'v str,
    ) where
        'a: 'v,
    {
        let diff = Diff::of(self.schema, shape, old, new).without(self.reset());
        let set = diff.modified.union(diff.added);
        entries.take(&set, None);
        entries.take(&diff.removed, None);
        let set = strip(set);
        if !set.is_empty() {
            entries.change(self.named(name, false), |entry| {
                entry.set = std::mem::take(&mut entry.set).union(set);
                entry.time = Some(Cow::Borrowed(self.now));
            });
        }
        entries.drop_empty();
    }

    fn named<'v>(&self, name: &'v str, applies: bool) -> Manager<'v>
    where
        'a: 'v,
    {
        let name = if name.is_empty() { "unknown" } else { name };
        Manager {
            name: name.into(),
            applies,
            subresource: self.subresource.into(),
        }
    }

    /// The fields that this write cannot change, whatever it says.
    fn reset(&self) -> &'static [&'static str] {
        if self.subresource == "status" {
            &["spec"]
        } else {
            &["status"]
        }
    }
}

/// Undo new times in managedFields if that is all an update changed, so that it changes nothing.
/// Call it when the new object is complete, before it is compared with the stored one.
pub fn keep_times(live: &Value, new: &mut Value) {
    let (old, managed) = (
        object::items(live, "metadata.managedFields"),
        object::items(new, "metadata.managedFields"),
    );
    let same = old.len() == managed.len()
        && old != managed
        && old
            .iter()
            .zip(managed)
            .all(|(old, new)| same_but(old, new, &["time"]))
        && same_object(live, new);
    if same {
        set_managed(new, Some(Value::Array(old.to_vec())));
    }
}

/// Whether two objects of one kind are the same but for their managedFields. The resourceVersion
/// says nothing, as a client need not send it.
fn same_object(a: &Value, b: &Value) -> bool {
    same_but(
        object::at(a, "metadata"),
        object::at(b, "metadata"),
        &["managedFields", "resourceVersion"],
    ) && same_but(a, b, &["metadata", "apiVersion", "kind"])
}

fn same_but(a: &Value, b: &Value, skipped: &[&str]) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        return a == b;
    };
    let members = |map: &'_ Map<String, Value>| {
        map.keys()
            .filter(|name| !skipped.contains(&name.as_str()))
            .count()
    };
    let differs = |(name, value): (&String, &Value)| {
        !skipped.contains(&name.as_str()) && b.get(name) != Some(value)
    };
    members(a) == members(b) && !a.iter().any(differs)
}

/// The name of the manager: the `fieldManager` parameter, or what the User-Agent says before the
/// first `/`.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let agent = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in agent.chars().filter(|c| is_printable(*c)) {
        if name.len() + c.len_utf8() > LONGEST_MANAGER {
            break;
        }
        name.push(c);
    }
    name
}

/// What is wrong with a `fieldManager` parameter.
pub fn manager_problems(path: &field::Path, name: &str) -> Errors {
    let mut errors = Errors::new();
    if name.len() > LONGEST_MANAGER {
        errors.push(field::Error::too_long(path, LONGEST_MANAGER));
    }
    for (position, c) in name.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let detail = format!(
            "invalid character U+{:04X} (at position {position})",
            u32::from(c)
        );
        errors.push(field::Error::invalid(path, name, detail));
    }
    errors
}

fn is_printable(c: char) -> bool {
    // What debug output would escape is not printable; of quotes and backslashes it would for
    // another reason.
    matches!(c, ' ' | '\'' | '"' | '\\') || (!c.is_whitespace() && c.escape_debug().len() == 1)
}

/// Without the fields that have no owner.
fn strip(set: Set<'_>) -> Set<'_> {
    set.without(&["apiVersion", "kind"])
        .map_field("metadata", |metadata| metadata.without(UNOWNED_METADATA))
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
}

fn set_managed(object: &mut Value, managed: Option<Value>) {
    match managed {
        Some(managed) => {
            object::child(object, "metadata").insert("managedFields".to_owned(), managed);
        }
        None => {
            take_managed(object);
        }
    }
}

#[cfg(test)]
mod tests;
