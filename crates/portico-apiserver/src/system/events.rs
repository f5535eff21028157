//! Events are news: they go after an hour.

use crate::registry::{DeleteOptions, Registry};
use portico_api::codec::stored;
use portico_api::object;
use portico_store::Range;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_secs(60);
const CHUNK: usize = 500;

/// Removes events that were not changed for `age`, in a loop without end.
pub(crate) async fn expire(registry: Arc<Registry>, age: Duration) {
    let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        sweep(&registry, crate::clock::now().saturating_sub(age)).await;
    }
}

async fn sweep(registry: &Registry, before: i64) {
    let Ok(kind) = registry.core_kind("events") else {
        return;
    };
    let prefix = format!("{}/", kind.info().storage);
    let mut after = None;
    loop {
        let range = Range {
            prefix: &prefix,
            after: after.as_deref(),
            limit: CHUNK,
            at: None,
        };
        let Ok(found) = registry.store.range(range) else {
            return;
        };
        for entry in &found.entries {
            let Ok(event) = stored::load(&entry.value, entry.modified) else {
                continue;
            };
            if last_touched(&event) >= before {
                continue;
            }
            let options = DeleteOptions {
                resource_version: Some(entry.modified.to_string()),
                ..DeleteOptions::default()
            };
            let (namespace, name) = (object::namespace(&event), object::name(&event));
            if let Err(error) = registry
                .delete(kind.as_ref(), namespace, name, &options)
                .await
            {
                tracing::debug!(%error, namespace, name, "cannot remove an old event");
            }
        }
        match found.entries.last() {
            Some(last) if found.more => after = Some(last.key.to_string()),
            _ => return,
        }
    }
}

/// When the event was last written: every update notes its time in the managed fields.
fn last_touched(event: &Value) -> i64 {
    let managed = object::items(event, "metadata.managedFields")
        .iter()
        .map(|entry| object::text(entry, "time"));
    let times = managed.chain([object::text(event, "metadata.creationTimestamp")]);
    times
        .filter_map(crate::clock::parse)
        .max()
        .unwrap_or(i64::MAX)
}
