//! Server-side apply: merge, prune, conflicts.

use super::compare::Diff;
use super::fieldset::{Element, Set, display};
use super::merge::{fields_of, merge, remove, with_parents};
use super::owners::{Entries, Manager};
use super::shape::{self, Shape};
use super::{Owners, same_object, set_managed, strip, validate};
use crate::codec::{self, conform};
use crate::object;
use crate::schema::TypeDef;
use crate::status::{ApiError, Result};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Display;

/// The owner of fields that were set before the first apply.
const BEFORE: &str = "before-first-apply";

/// Client-side apply leaves here what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager that carries over from client-side apply.
const KUBECTL: &str = "kubectl";

/// All annotations of an object together may not be longer than this.
const LONGEST_ANNOTATIONS: usize = 256 * 1024;

/// A field that another manager holds with another value.
struct Conflict<'a> {
    /// How the message names the manager.
    manager: String,
    path: Vec<Element<'a>>,
}

impl<'a> Owners<'a> {
    /// The live object with `applied` put into it, and with managedFields. If nothing changes, it
    /// is the live object. `applied` is the object as it was sent; `live` is `None` if the apply
    /// creates.
    pub fn apply(&self, live: Option<&Value>, applied: &Value, force: bool) -> Result<Value> {
        let ty = self
            .schema
            .get(self.type_name)
            .ok_or_else(|| ApiError::internal("no such type"))?;
        self.check(ty, applied)?;
        let shape = Shape::Struct(ty);
        let empty = shape::empty(self.schema, ty);
        let live = live.unwrap_or(&empty);
        let mut entries = self.stored(shape, Some(live));
        if entries.is_empty() {
            self.own_changes(&mut entries, shape, &empty, live, BEFORE);
        }

        let me = self.named(self.manager, true);
        let set = fields_of(self.schema, shape, applied).without(self.reset());
        let mut last = Set::default();
        entries.change(me.clone(), |entry| {
            last = std::mem::replace(&mut entry.set, set)
        });
        let merged =
            merge(self.schema, shape, Some(live), Some(applied)).unwrap_or_else(|| json!({}));
        let new = if last.is_empty() {
            merged
        } else {
            self.prune(shape, merged, last, &entries)
        };

        let diff = Diff::of(self.schema, shape, live, &new).without(self.reset());
        let changed = diff.modified.union(diff.added);
        if !force {
            self.check_conflicts(shape, live, self.conflicts(&entries, &me, &changed))?;
        }
        entries.take(&changed, Some(&me));
        entries.take(&diff.removed, Some(&me));
        let changes = !same_object(live, &new);
        entries.change(me, |entry| {
            entry.set = strip(std::mem::take(&mut entry.set));
            if changes {
                entry.time = Some(Cow::Borrowed(self.now));
            }
        });
        entries.drop_empty();
        let managed = entries.encode(self.api_version);
        let mut new = self.decode(applied, new)?;
        if self.manager == KUBECTL {
            update_last_applied(&mut new, applied);
        }
        set_managed(&mut new, managed);
        Ok(new)
    }

    fn check(&self, ty: &TypeDef, applied: &Value) -> Result<()> {
        let (version, kind) = (
            object::text(applied, "apiVersion"),
            object::text(applied, "kind"),
        );
        if version != self.api_version
            || ty
                .kind
                .as_ref()
                .is_some_and(|(_, _, expected)| expected != kind)
        {
            return Err(ApiError::bad_request(format!(
                "invalid object type: {version}, Kind={kind}"
            )));
        }
        if object::at(applied, "metadata.managedFields").is_array() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let problems = validate::problems(self.schema, self.type_name, applied);
        if problems.is_empty() {
            Ok(())
        } else {
            Err(misfit(applied, problems.join(", ")))
        }
    }

    /// Bring the merged object into the form of its type. Numbers out of range show up only here.
    fn decode(&self, applied: &Value, new: Value) -> Result<Value> {
        let decoded =
            conform(self.schema, self.type_name, new).map_err(|error| misfit(applied, error))?;
        Ok(decoded.0)
    }

    /// Remove what this manager applied last time and does not now, and that no other manager
    /// holds.
    ///
    /// Three steps: take out all that was applied last; put back what any manager holds, this one
    /// with its new fields included; put back what was not this manager's to remove, and went only
    /// because it stood in something that did.
    fn prune<'v>(
        &self,
        shape: Shape<'v>,
        merged: Value,
        last: Set<'v>,
        entries: &Entries<'v>,
    ) -> Value
    where
        'a: 'v,
    {
        let (schema, merged) = (self.schema, &merged);
        let all = |value| with_parents(schema, shape, fields_of(schema, shape, value));
        let without =
            |gone: &Set<'_>| remove(schema, shape, merged, gone).unwrap_or_else(|| json!({}));
        let last = with_parents(schema, shape, last);
        let held = entries
            .0
            .iter()
            .fold(Set::default(), |held, entry| held.union(entry.set.clone()));
        let held = with_parents(schema, shape, held);

        let bare = without(&last);
        let unheld = all(merged).difference(&held).difference(&all(&bare));
        let kept = without(&unheld);
        let gone = all(merged).difference(&all(&kept)).intersection(&last);
        without(&gone)
    }

    fn conflicts<'v>(
        &self,
        entries: &Entries<'v>,
        me: &Manager<'_>,
        changed: &Set<'_>,
    ) -> Vec<Conflict<'v>> {
        let mut others: Vec<_> = entries
            .0
            .iter()
            .filter(|entry| entry.manager != *me)
            .collect();
        others.sort_by(|a, b| a.manager.cmp(&b.manager));
        let conflicts = others.into_iter().flat_map(|entry| {
            let manager = entry.manager.describe(self.api_version);
            let paths = entry.set.clone().intersection(changed).paths();
            paths.into_iter().map(move |path| Conflict {
                manager: manager.clone(),
                path,
            })
        });
        conflicts.collect()
    }

    /// Conflicts are an error, but not those of kubectl with what it applied itself on the client's
    /// side.
    fn check_conflicts(
        &self,
        shape: Shape<'_>,
        live: &Value,
        mut conflicts: Vec<Conflict<'_>>,
    ) -> Result<()> {
        if self.manager == KUBECTL && !conflicts.is_empty() {
            let annotation = live
                .pointer("/metadata/annotations")
                .and_then(|all| all.get(LAST_APPLIED));
            let last = annotation
                .and_then(Value::as_str)
                .and_then(|last| codec::json::read(last.as_bytes()).ok());
            if let Some(last) = last.filter(|last| self.is_valid(last)) {
                let diff = Diff::of(self.schema, shape, &last, live);
                let unchanged = fields_of(self.schema, shape, &last)
                    .difference(&diff.modified)
                    .difference(&diff.added)
                    .difference(&diff.removed);
                conflicts.retain(|conflict| !unchanged.has(&conflict.path));
            }
        }
        if conflicts.is_empty() {
            Ok(())
        } else {
            Err(conflict_error(&conflicts))
        }
    }

    fn is_valid(&self, object: &Value) -> bool {
        object::text(object, "apiVersion") == self.api_version
            && validate::problems(self.schema, self.type_name, object).is_empty()
    }
}

fn misfit(applied: &Value, why: impl Display) -> ApiError {
    let (namespace, name) = (object::namespace(applied), object::name(applied));
    let (version, kind) = (
        object::text(applied, "apiVersion"),
        object::text(applied, "kind"),
    );
    ApiError::bad_request(format!(
        "failed to create typed patch object ({namespace}/{name}; {version}, Kind={kind}): {why}"
    ))
}

fn conflict_error(conflicts: &[Conflict<'_>]) -> ApiError {
    let message = match conflicts {
        [only] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager,
            display(&only.path)
        ),
        many => {
            let mut lines = Vec::new();
            for group in many.chunk_by(|a, b| a.manager == b.manager) {
                lines.extend(
                    group
                        .first()
                        .map(|first| format!("conflicts with {}:", first.manager)),
                );
                lines.extend(
                    group
                        .iter()
                        .map(|conflict| format!("- {}", display(&conflict.path))),
                );
            }
            format!(
                "Apply failed with {} conflicts: {}",
                many.len(),
                lines.join("\n")
            )
        }
    };
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.manager),
                "field": display(&conflict.path),
            })
        })
        .collect();
    let mut error = ApiError::new(409, "Conflict", message);
    error.details.insert("causes".into(), causes.into());
    error
}

/// Keep the annotation of client-side apply true, where there is one, so that a client can go back
/// to it.
fn update_last_applied(object: &mut Value, applied: &Value) {
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    if annotations
        .get(LAST_APPLIED)
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        return;
    }
    let mut last = applied.clone();
    if let Some(sent) = last
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        sent.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED.to_owned(), format!("{last}\n").into());
    let length: usize = annotations
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if length > LONGEST_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}
