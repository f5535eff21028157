//! Finishes deletions that wait for dependents: the objects that name a deleted one as their owner go first
//! (`foregroundDeletion`), or stay and forget it (`orphan`). Dependents of owners that are simply gone are left alone.

use crate::registry::{DeleteOptions, Part, Registry, Target, prefix};
use portico_api::codec::stored;
use portico_api::kinds::Kind;
use portico_api::object;
use portico_api::status::Result;
use portico_store::{Entry, Range, WatchError};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Deletions are rare and nobody is in a hurry: they are looked at together.
const LOOK_EVERY: Duration = Duration::from_secs(5);
const FINALIZERS: [&str; 2] = ["orphan", "foregroundDeletion"];

pub async fn finish(registry: Arc<Registry>) {
    // Two spellings of one kind share a prefix, which is watched once.
    let prefixes: BTreeSet<String> = registry.kinds().iter().map(|kind| prefix(kind.as_ref(), "")).collect();
    futures_util::future::join_all(prefixes.iter().map(|prefix| finish_kind(&registry, prefix))).await;
}

async fn finish_kind(registry: &Registry, prefix: &str) {
    'open: loop {
        let from = registry.store.revision();
        let Ok(mut watch) = registry.store.watch(prefix, from) else { return };
        let mut pending = waiting(registry, prefix);
        let mut next = Instant::now() + LOOK_EVERY;
        loop {
            match tokio::time::timeout_at(next, watch.next()).await {
                Err(_) => {
                    pending = work(registry, pending).await;
                    next = Instant::now() + LOOK_EVERY;
                }
                Ok(Ok(events)) => {
                    let now = events.iter().filter_map(|event| event.now.as_ref());
                    pending.extend(now.filter(|entry| is_waiting(entry)).map(|entry| entry.key.to_string()));
                }
                Ok(Err(WatchError::Compacted { .. })) => continue 'open,
                Ok(Err(WatchError::Closed)) => return,
            }
        }
    }
}

/// Is this object marked as deleted, and held because of its dependents?
fn is_waiting(entry: &Entry) -> bool {
    // Most objects are not being deleted: parse only those where the word is there.
    let marked = entry.value.windows(19).any(|word| word == b"\"deletionTimestamp\"");
    marked && stored::load(&entry.value, entry.modified).is_ok_and(|object| held_by(&object).is_some())
}

/// Which of the two finalizers holds it.
fn held_by(object: &Value) -> Option<&'static str> {
    let marked = object::at(object, "metadata.deletionTimestamp").is_string();
    let has = |name: &&str| object::items(object, "metadata.finalizers").iter().any(|found| found == *name);
    FINALIZERS.into_iter().find(|name| marked && has(name))
}

fn waiting(registry: &Registry, prefix: &str) -> BTreeSet<String> {
    let all = entries(registry, prefix).into_iter();
    all.filter(is_waiting).map(|entry| entry.key.to_string()).collect()
}

fn entries(registry: &Registry, prefix: &str) -> Vec<Entry> {
    let found = registry.store.range(Range { prefix, after: None, limit: 0, at: None });
    found.map(|found| found.entries).unwrap_or_default()
}

/// Go on with each; what is left still has dependents.
async fn work(registry: &Registry, pending: BTreeSet<String>) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for key in pending {
        match settle(registry, &key).await {
            Ok(true) => {}
            Ok(false) => {
                left.insert(key);
            }
            Err(error) => {
                tracing::debug!(%error, key, "cannot finish a deletion yet");
                left.insert(key);
            }
        }
    }
    left
}

/// Deal with the dependents of one object; true when it is not held any more.
async fn settle(registry: &Registry, key: &str) -> Result<bool> {
    let Some(entry) = registry.store.get(key) else { return Ok(true) };
    let Ok(owner) = stored::load(&entry.value, entry.modified) else { return Ok(true) };
    let Some(finalizer) = held_by(&owner) else { return Ok(true) };
    let Some(kind) = registry.kinds().iter().find(|kind| key.starts_with(&prefix(kind.as_ref(), ""))) else {
        return Ok(true);
    };
    if !release_dependents(registry, &owner, finalizer == "orphan").await? {
        return Ok(false);
    }
    let mut wanted = owner.clone();
    remove_items(&mut wanted, "finalizers", |item| item == finalizer);
    change(registry, kind.as_ref(), wanted).await.map(|()| true)
}

/// Orphan or delete what names this owner; true when nothing is in its way.
async fn release_dependents(registry: &Registry, owner: &Value, orphan: bool) -> Result<bool> {
    let uid = object::text(owner, "metadata.uid");
    let mut free = true;
    // An owner in a namespace has no dependents outside it.
    let home = object::namespace(owner);
    for kind in registry.kinds().iter().filter(|kind| home.is_empty() || kind.info().namespaced) {
        for entry in entries(registry, &prefix(kind.as_ref(), home)) {
            let Ok(dependent) = stored::load(&entry.value, entry.modified) else { continue };
            let Some(reference) = reference(&dependent, uid) else { continue };
            if orphan {
                let mut wanted = dependent.clone();
                remove_items(&mut wanted, "ownerReferences", |item| object::text(item, "uid") == uid);
                change(registry, kind.as_ref(), wanted).await?;
                continue;
            }
            let (namespace, name) = (object::namespace(&dependent), object::name(&dependent));
            let gone = match registry.delete(kind.as_ref(), namespace, name, &DeleteOptions::default()).await {
                Ok(crate::registry::Deleted::Gone(_)) => true,
                Ok(crate::registry::Deleted::Marked(_)) => false,
                Err(error) if error.code == 404 => true,
                Err(error) => return Err(error),
            };
            free &= gone || object::at(reference, "blockOwnerDeletion") != true;
        }
    }
    Ok(free)
}

fn reference<'a>(dependent: &'a Value, uid: &str) -> Option<&'a Value> {
    object::items(dependent, "metadata.ownerReferences").iter().find(|owner| object::text(owner, "uid") == uid)
}

fn remove_items(object: &mut Value, list: &str, unwanted: impl Fn(&Value) -> bool) {
    let metadata = object::child(object, "metadata");
    let Some(Value::Array(items)) = metadata.get_mut(list) else { return };
    items.retain(|item| !unwanted(item));
    if items.is_empty() {
        metadata.remove(list);
    }
}

async fn change(registry: &Registry, kind: &dyn Kind, wanted: Value) -> Result<()> {
    let (namespace, name) = (object::namespace(&wanted).to_owned(), object::name(&wanted).to_owned());
    let target = Target { kind, namespace: &namespace, name: &name, part: Part::Main };
    match registry.update(target, kind.from_stored(wanted), &super::options()).await {
        Err(error) if error.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_empty_list_is_none() {
        let mut object =
            json!({"metadata": {"finalizers": ["orphan"], "ownerReferences": [{"uid": "a"}, {"uid": "b"}]}});
        remove_items(&mut object, "finalizers", |item| item == "orphan");
        remove_items(&mut object, "ownerReferences", |item| object::text(item, "uid") == "a");
        assert_eq!(object, json!({"metadata": {"ownerReferences": [{"uid": "b"}]}}));
    }

    #[test]
    fn held_by_a_finalizer_only_when_deleted() {
        let table = [
            (json!({"finalizers": ["orphan"]}), None),
            (json!({"finalizers": ["a/b"], "deletionTimestamp": "t"}), None),
            (json!({"finalizers": ["a/b", "orphan"], "deletionTimestamp": "t"}), Some("orphan")),
            (json!({"finalizers": ["foregroundDeletion"], "deletionTimestamp": "t"}), Some("foregroundDeletion")),
        ];
        for (metadata, wanted) in table {
            assert_eq!(held_by(&json!({"metadata": metadata})), wanted, "{metadata}");
        }
    }
}
