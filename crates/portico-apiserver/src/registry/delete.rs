//! Deleting objects: at once, or marked until their finalizers are gone.

use super::{ATTEMPTS, ListOptions, Registry, claims, key, load, store_error};
use bytes::Bytes;
use portico_api::codec::stored;
use portico_api::kinds::{Claims, Kind};
use portico_api::object;
use portico_api::status::{ApiError, Result};
use portico_store::{Check, Entry, Op, Txn, TxnError};
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

/// How a delete ended.
#[derive(Debug)]
pub enum Deleted {
    /// It is gone; this is what it was.
    Gone(Entry),
    /// It stays, marked, until its finalizers are removed.
    Marked(Entry),
}

impl Registry {
    pub async fn delete(
        &self,
        kind: &dyn Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let key = key(kind, namespace, name);
        for _ in 0..ATTEMPTS {
            self.settle().await?;
            let entry = self.store.get(&key).ok_or_else(|| ApiError::not_found(kind.info().subject(), name))?;
            let entry = self.shown(kind, entry);
            let live = load(&entry)?;
            preconditions(kind, name, &live, entry.modified, options)?;
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
        let mut txn = Txn { checks: vec![Check { key: key.clone(), modified: entry.modified }], ops: Vec::new() };
        let mut value = entry.value.clone();
        let held = kind.is_held(&live);
        if held {
            if object::at(&live, "metadata.deletionTimestamp").is_string() {
                return Ok(Some(Deleted::Marked(entry)));
            }
            value = Bytes::from(stored::store(&marked(kind, live)));
            txn.ops.push(Op::Put { key, value: value.clone() });
        } else {
            txn.ops = ops(kind, &live, &key);
        }
        let done = |modified| {
            let entry = Entry { value, modified, ..entry.clone() };
            if held { Deleted::Marked(entry) } else { Deleted::Gone(entry) }
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
    pub async fn delete_collection(
        &self,
        kind: &dyn Kind,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Entry>> {
        let mut deleted = Vec::new();
        for entry in self.list(kind, list).await?.entries {
            let object = load(&entry)?;
            match self.delete(kind, object::namespace(&object), object::name(&object), options).await {
                Ok(_) => deleted.push(entry),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}

/// Everything that goes when this object goes.
pub(super) fn ops(kind: &dyn Kind, live: &Value, key: &str) -> Vec<Op> {
    let mut ops = vec![Op::Delete { key: key.to_owned() }];
    let owned = Claims { take: Vec::new(), free: kind.owned(live) };
    claims::add(&owned, key, &mut Vec::new(), &mut ops);
    ops.extend(kind.goes_with(live).into_iter().map(|key| Op::Delete { key }));
    ops
}

fn marked(kind: &dyn Kind, mut live: Value) -> Value {
    let metadata = object::child(&mut live, "metadata");
    metadata.insert("deletionTimestamp".into(), crate::clock::now_text().into());
    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
    kind.mark_deleted(&mut live);
    live
}

fn preconditions(kind: &dyn Kind, name: &str, live: &Value, found: u64, options: &DeleteOptions) -> Result<()> {
    let subject = portico_api::status::Subject { group: kind.info().group, resource: kind.info().kind };
    let uid = object::text(live, "metadata.uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict(subject, name, why));
    }
    let found = found.to_string();
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != found) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). The object might have been modified"
        );
        return Err(ApiError::conflict(subject, name, why));
    }
    Ok(())
}
