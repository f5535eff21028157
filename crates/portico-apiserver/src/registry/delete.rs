//! Deleting objects: at once, or marked until their finalizers are gone.

use super::{ATTEMPTS, Guard, ListOptions, Registry, claims, key, load, store_error};
use bytes::Bytes;
use portico_api::codec::stored;
use portico_api::kinds::{Claims, Kind};
use portico_api::object;
use portico_api::status::{ApiError, Result};
use portico_store::{Check, Entry, Op, Txn, TxnError};
use serde_json::Value;

#[derive(Clone, Default)]
pub(crate) struct DeleteOptions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: bool,
    /// As the object's finalizers say, if nothing is said.
    pub dependents: Option<Dependents>,
    pub guard: Option<Guard>,
}

/// What becomes of the objects that name the deleted one as their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// They stay and forget their owner.
    Orphan,
    /// They go first.
    Foreground,
    /// They are not waited for.
    Background,
}

/// Holds an object until its dependents have forgotten it.
pub(crate) const ORPHAN: &str = "orphan";
/// Holds an object until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// How a delete ended.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// It is gone; this is what it was.
    Gone(Entry),
    /// It stays, marked, until its finalizers are removed.
    Marked(Entry),
}

impl Registry {
    pub(crate) async fn delete(
        &self,
        kind: &dyn Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let key = key(kind, namespace, name);
        if let Some(why) = kind.undeletable(name) {
            return Err(ApiError::forbidden(kind.info().subject(), name, why));
        }
        for _ in 0..ATTEMPTS {
            self.settle().await?;
            let entry = self
                .store
                .get(&key)
                .ok_or_else(|| ApiError::not_found(kind.info().subject(), name))?;
            let entry = self.shown(kind, entry);
            let live = load(&entry)?;
            preconditions(kind, name, &live, entry.modified, options)?;
            if let Some(guard) = &options.guard {
                guard(None, Some(&live))?;
            }
            if let Some(done) = self.try_delete(kind, entry, live, options).await? {
                return Ok(done);
            }
        }
        Err(ApiError::modified(kind.info().subject(), name))
    }

    async fn try_delete(
        &self,
        kind: &dyn Kind,
        entry: Entry,
        live: Value,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>> {
        let key = entry.key.to_string();
        let mut txn = Txn {
            checks: vec![Check {
                key: key.clone(),
                modified: entry.modified,
            }],
            ops: Vec::new(),
        };
        let mut value = entry.value.clone();
        let mut rest = live.clone();
        set_finalizers(kind, &mut rest, options.dependents);
        let held = kind.is_held(&rest);
        if held {
            let rest = marked(kind, rest);
            if rest == live {
                return Ok(Some(Deleted::Marked(entry)));
            }
            value = Bytes::from(stored::store(&rest));
            if object::items(&rest, "metadata.finalizers")
                .iter()
                .any(|found| found == ORPHAN || found == FOREGROUND)
            {
                self.note_held(key.clone());
            }
            txn.ops.push(Op::Put {
                key,
                value: value.clone(),
            });
        } else {
            txn.ops = ops(kind, &live, &key);
        }
        let done = |modified| {
            let entry = Entry {
                value,
                modified,
                ..entry.clone()
            };
            if held {
                Deleted::Marked(entry)
            } else {
                Deleted::Gone(entry)
            }
        };
        if options.dry_run {
            return Ok(Some(done(entry.modified)));
        }
        match self.store.commit(txn).await {
            Ok(revision) => Ok(Some(done(revision))),
            Err(TxnError::Conflict { .. }) => Ok(None),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Delete all that match, and return them as they were.
    pub(crate) async fn delete_collection(
        &self,
        kind: &dyn Kind,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Entry>> {
        let mut deleted = Vec::new();
        for entry in self.list(kind, list).await?.entries {
            let object = load(&entry)?;
            match self
                .delete(
                    kind,
                    object::namespace(&object),
                    object::name(&object),
                    options,
                )
                .await
            {
                Ok(_) => deleted.push(entry),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}

/// The writes that remove this object and everything that goes with it.
pub(super) fn ops(kind: &dyn Kind, live: &Value, key: &str) -> Vec<Op> {
    let mut ops = vec![Op::Delete {
        key: key.to_owned(),
    }];
    let owned = Claims {
        take: Vec::new(),
        free: kind.owned(live),
    };
    claims::add(&owned, key, &mut Vec::new(), &mut ops);
    ops.extend(
        kind.goes_with(live)
            .into_iter()
            .map(|key| Op::Delete { key }),
    );
    ops
}

/// Dependents that must be dealt with first hold the object by a finalizer.
fn set_finalizers(kind: &dyn Kind, object: &mut Value, dependents: Option<Dependents>) {
    let old: Vec<&str> = object::items(object, "metadata.finalizers")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let has = |name: &str| old.contains(&name);
    let wanted = match dependents {
        _ if !kind.info().has_dependents => None,
        Some(Dependents::Orphan) => Some(ORPHAN),
        Some(Dependents::Foreground) => Some(FOREGROUND),
        Some(Dependents::Background) => None,
        None if has(ORPHAN) => Some(ORPHAN),
        None if has(FOREGROUND) => Some(FOREGROUND),
        None => None,
    };
    let others = old
        .iter()
        .copied()
        .filter(|name| ![ORPHAN, FOREGROUND].contains(name));
    let new: Vec<Value> = others.chain(wanted).map(Value::from).collect();
    // In another order they are the same.
    if new.len() == old.len() && wanted.is_none_or(has) {
        return;
    }
    let metadata = object::child(object, "metadata");
    if new.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), new.into());
    }
}

fn marked(kind: &dyn Kind, mut live: Value) -> Value {
    if object::at(&live, "metadata.deletionTimestamp").is_string() {
        return live;
    }
    let metadata = object::child(&mut live, "metadata");
    metadata.insert("deletionTimestamp".into(), crate::clock::now_text().into());
    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
    kind.mark_deleted(&mut live);
    live
}

fn preconditions(
    kind: &dyn Kind,
    name: &str,
    live: &Value,
    found: u64,
    options: &DeleteOptions,
) -> Result<()> {
    let subject = portico_api::status::Subject {
        group: kind.info().group,
        resource: kind.info().kind,
    };
    let uid = object::text(live, "metadata.uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The \
             object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(subject, name, why));
    }
    let found = found.to_string();
    if let Some(wanted) = options
        .resource_version
        .as_deref()
        .filter(|wanted| *wanted != found)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the \
             ResourceVersion in record ({found}). The object might have been modified"
        );
        return Err(ApiError::conflict(subject, name, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finalizers_say_what_becomes_of_dependents() {
        let config_map = portico_api::kinds::all()
            .into_iter()
            .find(|kind| kind.info().plural == "configmaps");
        let config_map = config_map.expect("served");
        let table = [
            (json!([]), None, json!(null)),
            (json!(["a/b"]), None, json!(["a/b"])),
            (
                json!(["a/b"]),
                Some(Dependents::Foreground),
                json!(["a/b", "foregroundDeletion"]),
            ),
            (json!([]), Some(Dependents::Orphan), json!(["orphan"])),
            (json!(["orphan", "a/b"]), None, json!(["orphan", "a/b"])),
            (
                json!(["orphan", "a/b"]),
                Some(Dependents::Foreground),
                json!(["a/b", "foregroundDeletion"]),
            ),
            (json!(["orphan"]), Some(Dependents::Background), json!(null)),
            (
                json!(["foregroundDeletion", "a/b"]),
                Some(Dependents::Background),
                json!(["a/b"]),
            ),
        ];
        for (before, dependents, after) in table {
            let mut object = json!({"metadata": {"finalizers": before}});
            set_finalizers(config_map.as_ref(), &mut object, dependents);
            let found =
                Some(object::at(&object, "metadata.finalizers")).filter(|list| **list != json!([]));
            assert_eq!(
                found.unwrap_or(&Value::Null),
                &after,
                "{before} {dependents:?}"
            );
        }
    }
}
