//! The generic registry: every kind is created, read, changed and deleted by the code in this
//! folder.
//!
//! A kind only says what is special about it (`portico_api::kinds::Kind`). An object and everything
//! it claims (addresses, node ports) are written in one transaction.

mod claims;
mod create;
mod delete;
mod read;
mod update;

pub(crate) use claims::check as check_claims;
pub(crate) use delete::{DeleteOptions, Deleted, Dependents, FOREGROUND, ORPHAN};
pub(crate) use read::{List, ListOptions, Version, matches};
pub(crate) use update::{Part, PatchBody, Target};

use crate::processor::Processor;
use portico_api::codec::stored;
use portico_api::field;
use portico_api::gates::Gates;
use portico_api::kinds::Kind;
use portico_api::object;
use portico_api::status::{ApiError, Result};
use portico_store::{Entry, Store, TxnError};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// How often a write is tried again after a conflict.
const ATTEMPTS: usize = 32;

pub(crate) struct Registry {
    pub store: Store,
    pub gates: Gates,
    pub processor: Processor,
    kinds: Vec<Arc<dyn Kind>>,
    by_path: BTreeMap<(String, String, String), Arc<dyn Kind>>,
    /// Keys of objects that are held for their dependents; no more than there are objects.
    held: Mutex<BTreeSet<String>>,
}

/// A last question before an object is stored or deleted: may this caller write this (new, old)?
/// There is no new one when it is deleted, and no old one when it is created.
pub(crate) type Guard = Arc<dyn Fn(Option<&Value>, Option<&Value>) -> Result<()> + Send + Sync>;

/// What a caller of a write may say about it.
#[derive(Clone, Default)]
pub(crate) struct WriteOptions {
    /// The field manager.
    pub manager: String,
    pub dry_run: bool,
    /// An object of the server's own, which need not pass validation: its address may be a loopback
    /// one.
    pub trusted: bool,
    pub guard: Option<Guard>,
    /// Why this caller may not create what a PUT or an apply does not find, if so.
    pub may_not_create: Option<ApiError>,
}

impl WriteOptions {
    fn ask(&self, new: &Value, old: Option<&Value>) -> Result<()> {
        self.guard
            .as_ref()
            .map_or(Ok(()), |guard| guard(Some(new), old))
    }

    fn may_create(&self) -> Result<()> {
        self.may_not_create.clone().map_or(Ok(()), Err)
    }
}

impl Registry {
    pub(crate) fn new(
        store: Store,
        gates: Gates,
        kinds: Vec<Arc<dyn Kind>>,
        processor: Processor,
    ) -> Self {
        let path = |kind: &Arc<dyn Kind>| {
            let info = kind.info();
            (
                info.group.to_owned(),
                info.version.to_owned(),
                info.plural.to_owned(),
            )
        };
        let by_path = kinds
            .iter()
            .map(|kind| (path(kind), Arc::clone(kind)))
            .collect();
        Self {
            store,
            gates,
            processor,
            kinds,
            by_path,
            held: Mutex::default(),
        }
    }

    /// Remember an object whose deletion waits for its dependents.
    pub(crate) fn note_held(&self, key: String) {
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key);
    }

    pub(crate) fn take_held(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn kinds(&self) -> &[Arc<dyn Kind>] {
        &self.kinds
    }

    pub(crate) fn kind(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<dyn Kind>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// A kind that is always there, for the server's own use.
    pub(crate) fn core_kind(&self, plural: &str) -> Result<&Arc<dyn Kind>> {
        self.kind("", "v1", plural)
            .ok_or_else(|| ApiError::internal(format!("{plural} are not served")))
    }

    /// The object as this server shows it: stored before a gate was switched on, it gets that
    /// gate's defaults now.
    pub(crate) fn shown(&self, kind: &dyn Kind, entry: Entry) -> Entry {
        if !kind.may_need_read(&entry.value) {
            return entry;
        }
        let Ok(mut object) = stored::load(&entry.value, entry.modified) else {
            return entry;
        };
        if !kind.read(&mut object, &self.gates) {
            return entry;
        }
        Entry {
            value: stored::store(&object).into(),
            ..entry
        }
    }
}

/// The storage key of an object.
pub(crate) fn key(kind: &dyn Kind, namespace: &str, name: &str) -> String {
    let info = kind.info();
    if info.namespaced {
        format!("{}/{namespace}/{name}", info.storage)
    } else {
        format!("{}/{name}", info.storage)
    }
}

/// The prefix of all objects of a kind, or of one namespace.
pub(crate) fn prefix(kind: &dyn Kind, namespace: &str) -> String {
    let info = kind.info();
    if info.namespaced && !namespace.is_empty() {
        format!("{}/{namespace}/", info.storage)
    } else {
        format!("{}/", info.storage)
    }
}

fn load(entry: &Entry) -> Result<Value> {
    stored::load(&entry.value, entry.modified).map_err(|error| {
        ApiError::internal(format!(
            "the stored object {} is damaged: {error}",
            entry.key
        ))
    })
}

fn invalid(kind: &dyn Kind, name: &str, errors: &[field::Error]) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    // Validation sees the stored spelling, and names its kind.
    let info = kind.stored_info();
    Err(ApiError::invalid(info.group, info.kind, name, errors))
}

/// Forget what only the server may set on a new object, before the owners of fields are computed.
pub(crate) fn wipe_system_fields(object: &mut Value) {
    let metadata = object::child(object, "metadata");
    for key in [
        "creationTimestamp",
        "uid",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        metadata.remove(key);
    }
}

fn store_error(error: TxnError) -> ApiError {
    match error {
        TxnError::Conflict { key } => {
            ApiError::internal(format!("lost the race for {key} too often, try again"))
        }
        error @ TxnError::TooLarge { .. } => ApiError::too_large(error.to_string()),
        error @ TxnError::Damaged { .. } => ApiError::internal(error),
        error => ApiError::unavailable(error.to_string()),
    }
}

fn read_error(error: portico_store::ReadError) -> ApiError {
    ApiError::unavailable(error.to_string())
}
