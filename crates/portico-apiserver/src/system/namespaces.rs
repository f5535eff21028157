//! Finishes the deletion of namespaces: first what is in them, then they themselves.

use crate::registry::{DeleteOptions, Part, Registry, Target, prefix};
use portico_api::codec::stored;
use portico_api::object;
use portico_api::status::Result;
use portico_store::{Range, WatchError};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How soon a namespace that something still holds is looked at again.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) async fn finish(registry: Arc<Registry>) {
    let mut pending = terminating(&registry);
    let mut from = registry.store.revision();
    'open: loop {
        let Ok(mut watch) = registry.store.watch("namespaces/", from) else {
            return;
        };
        loop {
            pending = work(&registry, pending).await;
            let wait = if pending.is_empty() {
                Duration::from_secs(3600)
            } else {
                AGAIN
            };
            match tokio::time::timeout(wait, watch.next()).await {
                Err(_) => {}
                Ok(Ok(events)) => {
                    let names = events
                        .iter()
                        .filter_map(|event| event.now.as_ref())
                        .filter_map(|entry| marked(&entry.value));
                    pending.extend(names);
                }
                Ok(Err(WatchError::Compacted { .. })) => {
                    pending = terminating(&registry);
                    from = registry.store.revision();
                    continue 'open;
                }
                Ok(Err(WatchError::Closed)) => return,
            }
        }
    }
}

/// The name of a namespace that is being deleted.
fn marked(value: &[u8]) -> Option<String> {
    let namespace = stored::load(value, 0).ok()?;
    object::at(&namespace, "metadata.deletionTimestamp")
        .is_string()
        .then(|| object::name(&namespace).to_owned())
}

fn terminating(registry: &Registry) -> BTreeSet<String> {
    let all = registry.store.range(Range {
        prefix: "namespaces/",
        after: None,
        limit: 0,
        at: None,
    });
    all.map(|found| found.entries)
        .unwrap_or_default()
        .iter()
        .filter_map(|entry| marked(&entry.value))
        .collect()
}

/// Go on with each; what is left is still held by something.
async fn work(registry: &Registry, pending: BTreeSet<String>) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for name in pending {
        match empty(registry, &name).await {
            Ok(true) => {
                if let Err(error) = release(registry, &name).await {
                    tracing::warn!(%error, namespace = name, "cannot finish the deletion of a namespace");
                    left.insert(name);
                }
            }
            Ok(false) => {
                left.insert(name);
            }
            Err(error) => {
                tracing::warn!(%error, namespace = name, "cannot remove the content of a namespace");
                left.insert(name);
            }
        }
    }
    left
}

/// Delete what is in the namespace; true when nothing is left.
async fn empty(registry: &Registry, name: &str) -> Result<bool> {
    let mut empty = true;
    for kind in registry
        .kinds()
        .iter()
        .filter(|kind| kind.info().namespaced)
    {
        let prefix = prefix(kind.as_ref(), name);
        let found = registry.store.range(Range {
            prefix: &prefix,
            after: None,
            limit: 0,
            at: None,
        });
        for entry in found.map(|found| found.entries).unwrap_or_default() {
            let Some(object) = entry.key.strip_prefix(&prefix) else {
                continue;
            };
            match registry
                .delete(kind.as_ref(), name, object, &DeleteOptions::default())
                .await
            {
                Ok(crate::registry::Deleted::Gone(_)) => {}
                Ok(crate::registry::Deleted::Marked(_)) => empty = false,
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(empty)
}

/// Take the namespace's own finalizer away: with no other it is gone.
async fn release(registry: &Registry, name: &str) -> Result<()> {
    let kind = registry.core_kind("namespaces")?;
    let target = Target {
        kind: kind.as_ref(),
        namespace: name,
        name,
        part: Part::Finalize,
    };
    let wanted = match registry.get(kind.as_ref(), "", name).await {
        Ok(entry) => {
            let mut live = stored::load(&entry.value, entry.modified)
                .map_err(portico_api::status::ApiError::internal)?;
            object::child(&mut live, "spec").insert("finalizers".into(), json!([]));
            live
        }
        Err(error) if error.code == 404 => return Ok(()),
        Err(error) => return Err(error),
    };
    match registry.update(target, wanted, &super::options()).await {
        Err(error) if error.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}
