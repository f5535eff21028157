//! Keeps the access rules in memory in step with the stored roles and bindings.

use crate::auth::Rbac;
use crate::registry::Registry;
use portico_api::codec::stored;
use portico_api::object;
use portico_store::{Entry, Range, Watch, WatchError};
use std::sync::{Arc, RwLock};

const PLURALS: &[&str] = &[
    "clusterrolebindings",
    "clusterroles",
    "rolebindings",
    "roles",
];

/// Load all rules, then follow their changes in the background.
pub(crate) fn feed(registry: &Arc<Registry>, rbac: &Arc<RwLock<Rbac>>) {
    for plural in PLURALS {
        let Some(kind) = registry.kind("rbac.authorization.k8s.io", "v1", plural) else {
            continue;
        };
        let prefix = format!("{}/", kind.info().storage);
        let word = kind.info().kind;
        let watch = load(registry, rbac, &prefix, word);
        let (registry, rbac) = (Arc::clone(registry), Arc::clone(rbac));
        tokio::spawn(follow(registry, rbac, prefix, word, watch));
    }
}

/// Read everything there is, and the watch that goes on from there.
fn load(registry: &Registry, rbac: &RwLock<Rbac>, prefix: &str, kind: &str) -> Option<Watch> {
    let found = registry
        .store
        .range(Range {
            prefix,
            after: None,
            limit: 0,
            at: None,
        })
        .ok()?;
    found
        .entries
        .iter()
        .for_each(|entry| change(rbac, entry, kind, true));
    registry.store.watch(prefix, found.revision).ok()
}

async fn follow(
    registry: Arc<Registry>,
    rbac: Arc<RwLock<Rbac>>,
    prefix: String,
    kind: &str,
    mut watch: Option<Watch>,
) {
    loop {
        let Some(open) = &mut watch else { return };
        match open.next().await {
            Ok(events) => {
                for event in events {
                    match (&event.now, &event.before) {
                        (Some(now), _) => change(&rbac, now, kind, true),
                        (None, Some(before)) => change(&rbac, before, kind, false),
                        (None, None) => {}
                    }
                }
            }
            Err(WatchError::Compacted { .. }) => watch = load(&registry, &rbac, &prefix, kind),
            Err(WatchError::Closed) => return,
        }
    }
}

fn change(rbac: &RwLock<Rbac>, entry: &Entry, kind: &str, there: bool) {
    let Ok(mut object) = stored::load(&entry.value, entry.modified) else {
        return;
    };
    object::map(&mut object).insert("kind".into(), kind.into());
    if let Ok(mut rbac) = rbac.write() {
        if there {
            rbac.apply(&object)
        } else {
            rbac.delete(&object)
        }
    }
}
