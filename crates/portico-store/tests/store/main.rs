//! The store on its real engines: one suite for both, then what only one of them can do.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on shall panic, and figures are printed"
)]

mod backup;
mod damage;
mod embedded;
mod etcd;
mod etcd_server;
mod suite;

use std::sync::Arc;

use portico_store::{Event, Op, Revision, Store, Txn, Watch};

async fn put(store: &Store, key: &str, value: &str) -> Revision {
    store
        .commit(Txn {
            checks: vec![],
            ops: vec![Op::put(key, value.to_owned())],
        })
        .await
        .unwrap()
}

async fn delete(store: &Store, key: &str) -> Revision {
    store
        .commit(Txn {
            checks: vec![],
            ops: vec![Op::delete(key)],
        })
        .await
        .unwrap()
}

/// Waits for exactly `count` events.
async fn events(watch: &mut Watch, count: usize) -> Vec<Arc<Event>> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(watch.next().await.unwrap());
    }
    assert_eq!(events.len(), count);
    events
}

fn text(store: &Store, key: &str) -> Option<String> {
    store
        .get(key)
        .map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
}

fn summary(events: &[Arc<Event>]) -> Vec<(Revision, String, bool)> {
    events
        .iter()
        .map(|event| (event.revision, event.key.to_string(), event.now.is_some()))
        .collect()
}
