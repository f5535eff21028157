//! Finishes deletions that wait for dependents: `foregroundDeletion` deletes first what names the
//! object as its owner, `orphan` makes it forget its owner. Without this the object would be held
//! for ever.

use crate::registry::{DeleteOptions, FOREGROUND, ORPHAN, Part, Registry, Target};
use memchr::memmem;
use portico_api::codec::stored;
use portico_api::kinds::Kind;
use portico_api::object;
use portico_api::status::{ApiError, Result};
use portico_store::{Entry, Range};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Go on with every object that is held for its dependents, for ever.
pub(crate) async fn finish(registry: Arc<Registry>) {
    for kind in stored_kinds(&registry) {
        let held = entries(&registry, kind)
            .into_iter()
            .filter(|entry| waiting(&entry.value).is_some());
        held.for_each(|entry| registry.note_held(entry.key.to_string()));
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for key in registry.take_held() {
            if let Err(error) = work(&registry, &key).await {
                tracing::warn!(%error, key, "cannot finish a deletion that waits for dependents");
                registry.note_held(key);
            }
        }
    }
}

/// The object and which finalizer it waits for.
fn waiting(value: &[u8]) -> Option<(Value, &'static str)> {
    let held = stored::load(value, 0).ok()?;
    let finalizers = object::items(&held, "metadata.finalizers");
    let which = [FOREGROUND, ORPHAN]
        .into_iter()
        .find(|name| finalizers.iter().any(|found| found == name))?;
    object::at(&held, "metadata.deletionTimestamp")
        .is_string()
        .then_some((held, which))
}

/// Each kind of stored object once.
fn stored_kinds(registry: &Registry) -> impl Iterator<Item = &dyn Kind> {
    registry
        .kinds()
        .iter()
        .map(AsRef::as_ref)
        .filter(|kind: &&dyn Kind| kind.info().group == kind.stored_info().group)
}

fn entries(registry: &Registry, kind: &dyn Kind) -> Vec<Entry> {
    let prefix = format!("{}/", kind.info().storage);
    let found = registry.store.range(Range {
        prefix: &prefix,
        after: None,
        limit: 0,
        at: None,
    });
    found.map(|found| found.entries).unwrap_or_default()
}

async fn work(registry: &Registry, key: &str) -> Result<()> {
    let Some(entry) = registry.store.get(key) else {
        return Ok(());
    };
    let Some((owner, finalizer)) = waiting(&entry.value) else {
        return Ok(());
    };
    let topic = key.split('/').next().unwrap_or_default();
    let Some(kind) = stored_kinds(registry).find(|kind| kind.info().storage == topic) else {
        return Ok(());
    };
    let mut left = false;
    for dependent_kind in stored_kinds(registry) {
        for entry in entries(registry, dependent_kind) {
            left |= release(
                registry,
                dependent_kind,
                &entry,
                object::text(&owner, "metadata.uid"),
                finalizer,
            )
            .await?;
        }
    }
    if left {
        registry.note_held(key.to_owned());
        return Ok(());
    }
    let without = |mut object: Value| {
        if let Some(finalizers) = object
            .pointer_mut("/metadata/finalizers")
            .and_then(Value::as_array_mut)
        {
            finalizers.retain(|found| found != finalizer);
        }
        object
    };
    write(registry, kind, without(owner)).await
}

/// Deal with one object, if it is a dependent; true if it is still there and must be waited for.
async fn release(
    registry: &Registry,
    kind: &dyn Kind,
    entry: &Entry,
    owner: &str,
    finalizer: &str,
) -> Result<bool> {
    if owner.is_empty() || memmem::find(&entry.value, owner.as_bytes()).is_none() {
        return Ok(false);
    }
    let mut dependent = stored::load(&entry.value, entry.modified).map_err(ApiError::internal)?;
    let names_owner = |reference: &Value| object::text(reference, "uid") == owner;
    if !object::items(&dependent, "metadata.ownerReferences")
        .iter()
        .any(names_owner)
    {
        return Ok(false);
    }
    if finalizer == ORPHAN {
        if let Some(owners) = dependent
            .pointer_mut("/metadata/ownerReferences")
            .and_then(Value::as_array_mut)
        {
            owners.retain(|reference| !names_owner(reference));
        }
        return write(registry, kind, dependent).await.map(|()| false);
    }
    let (namespace, name) = (object::namespace(&dependent), object::name(&dependent));
    match registry
        .delete(kind, namespace, name, &DeleteOptions::default())
        .await
    {
        Ok(crate::registry::Deleted::Gone(_)) => Ok(false),
        Ok(crate::registry::Deleted::Marked(_)) => Ok(true),
        Err(error) if error.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

async fn write(registry: &Registry, kind: &dyn Kind, object: Value) -> Result<()> {
    let (namespace, name) = (
        object::namespace(&object).to_owned(),
        object::name(&object).to_owned(),
    );
    let target = Target {
        kind,
        namespace: &namespace,
        name: &name,
        part: Part::Main,
    };
    match registry.update(target, object, &super::options()).await {
        Err(error) if error.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}
