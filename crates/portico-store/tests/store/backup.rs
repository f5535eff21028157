//! Backups: consistent under load, good or refused, restored into either engine with revisions
//! that go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portico_store::{
    Backup, BackupError, Check, EmbeddedOptions, Entry, Op, OpenError, ReadError, Store, Txn,
    restore, restore_to_etcd,
};

use crate::etcd_server::{self, Server};
use crate::{events, put};

async fn open(dir: &std::path::Path) -> Store {
    Store::embedded(dir, EmbeddedOptions::default())
        .await
        .unwrap()
}

fn file(backup: Backup) -> Vec<u8> {
    backup.into_pieces().collect::<Vec<_>>().concat()
}

fn values(entries: &[Entry]) -> Vec<(String, Vec<u8>)> {
    entries
        .iter()
        .map(|entry| (entry.key.to_string(), entry.value.to_vec()))
        .collect()
}

fn shown(store: &Store) -> Vec<(String, Vec<u8>)> {
    values(&store.range(Default::default()).unwrap().entries)
}

async fn some(store: &Store) {
    for number in 0..300 {
        let value = "v".repeat(number * 17 % 4000);
        put(store, &format!("services/default/{number}"), &value).await;
    }
}

/// Moves one unit between two counters in each transaction: every consistent state has as many.
async fn transfers(store: Store, stop: Arc<AtomicBool>) -> usize {
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let read = |key: &str| {
            let entry = store.get(key).unwrap();
            let number: i64 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
            (Check::modified(key, entry.modified), number)
        };
        let ((a, left), (b, right)) = (read("counters/a"), read("counters/z"));
        let ops = vec![
            Op::put("counters/a", (left - 1).to_string()),
            Op::put("counters/z", (right + 1).to_string()),
            Op::put(format!("bulk/{done}"), "x".repeat(500)),
        ];
        let checks = vec![a, b];
        done += usize::from(store.commit(Txn { checks, ops }).await.is_ok());
    }
    done
}

async fn under_load(store: Store) {
    put(&store, "counters/a", "1000").await;
    put(&store, "counters/z", "0").await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(transfers(store.clone(), stop.clone()));
    for _ in 0..20 {
        let before = put(&store, "marker/x", "1").await;
        let backup = Backup::read(&file(store.backup().await.unwrap())[..]).unwrap();
        assert!(backup.revision >= before);
        let number = |key: &str| -> i64 {
            let entry = backup.entries.iter().find(|entry| &*entry.key == key);
            std::str::from_utf8(&entry.unwrap().value)
                .unwrap()
                .parse()
                .unwrap()
        };
        assert_eq!(number("counters/a") + number("counters/z"), 1000);
        assert!(
            backup
                .entries
                .iter()
                .all(|entry| entry.modified <= backup.revision)
        );
    }
    stop.store(true, Ordering::Relaxed);
    println!("20 backups beside {} transactions", load.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_one_state_of_the_embedded_store() {
    let dir = tempfile::tempdir().unwrap();
    under_load(open(dir.path()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_one_state_of_etcd() {
    let server = Server::start();
    under_load(server.open().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_goes_into_either_engine_and_revisions_go_on() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = open(here.path()).await;
    some(&source).await;
    let saved = file(source.backup().await.unwrap());
    let backup = Backup::read(&saved[..]).unwrap();
    // What comes after the backup is lost by the restore, but its revisions are not used again.
    let seen = put(&source, "services/default/later", "1").await;
    let state = values(&backup.entries);
    source.close().await;

    let refused = restore(here.path(), backup.clone(), false);
    assert!(
        matches!(refused, Err(OpenError::InTheWay { .. })),
        "{refused:?}"
    );
    let restored = restore(here.path(), backup.clone(), true).unwrap();
    assert!(restored.kept.unwrap().exists());
    restore(there.path(), backup.clone(), false).unwrap();
    for dir in [&here, &there] {
        goes_on(open(dir.path()).await, &state, seen).await;
    }

    let server = Server::start();
    let reader = server.open().await;
    put(&reader, "services/default/stranger", "1").await;
    let refused = restore_to_etcd(server.options(), backup.clone(), false).await;
    assert!(
        matches!(refused, Err(OpenError::InTheWay { .. })),
        "{refused:?}"
    );
    restore_to_etcd(server.options(), backup.clone(), true)
        .await
        .unwrap();
    // A server that ran meanwhile neither writes nor goes on with what it had.
    assert!(reader.lost().await.to_string().contains("restored"));
    let txn = Txn {
        checks: vec![],
        ops: vec![Op::put("services/default/late", "1")],
    };
    assert!(reader.commit(txn).await.is_err());
    let etcd = etcd_server::open(server.options()).await;
    let back = file(etcd.backup().await.unwrap());
    goes_on(etcd, &state, seen).await;

    // And back from etcd into a file, onto revisions that are greater still.
    let backup = Backup::read(&back[..]).unwrap();
    let greater = backup.revision;
    restore(there.path(), backup, true).unwrap();
    let store = open(there.path()).await;
    assert!(store.revision() > greater);
    assert_eq!(shown(&store), state);
}

/// The state is there, watchers of before are told to list again, and those of after hear.
async fn goes_on(store: Store, state: &[(String, Vec<u8>)], seen: u64) {
    assert_eq!(shown(&store), state);
    assert!(store.revision() > seen);
    let old = store.watch("services/", seen).err();
    assert!(matches!(old, Some(ReadError::Compacted { .. })), "{old:?}");
    let mut watch = store.watch("services/", store.revision()).unwrap();
    let written = put(&store, "services/default/next", "1").await;
    assert!(written > seen);
    assert_eq!(events(&mut watch, 1).await[0].revision, written);
    assert_eq!(
        store.get("services/default/next").unwrap().modified,
        written
    );
    let txn = Txn {
        checks: vec![Check::modified("services/default/next", written)],
        ops: vec![Op::delete("services/default/next")],
    };
    store.commit(txn).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_restore_to_etcd_that_died_is_noticed_and_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(dir.path()).await;
    some(&source).await;
    let backup = source.backup().await.unwrap();
    let server = Server::start();
    // As the restore leaves it when it dies right after its first write.
    let head = r#"{"key": "L3BvcnRpY28vaGVhZA==", "value": "cmVzdG9yaW5nIDIwMDAwMDAwMDA="}"#;
    let mut put = std::process::Command::new("curl");
    put.args([
        "-sfo",
        "/dev/null",
        "--retry",
        "5",
        "--retry-all-errors",
        "--data",
        head,
    ]);
    put.arg(format!("{}/v3/kv/put", server.endpoint()));
    assert!(put.status().unwrap().success());
    let error = Store::etcd(server.options()).await.err().unwrap();
    assert!(
        error.to_string().contains("run portico restore again"),
        "{error}"
    );
    let revision = restore_to_etcd(server.options(), backup.clone(), false)
        .await
        .unwrap();
    assert!(revision > 2_000_000_000);
    let store = server.open().await;
    assert_eq!(shown(&store), values(&backup.entries));
}

#[tokio::test]
async fn a_damaged_backup_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for number in 0..20 {
        put(&store, &format!("services/default/{number}"), "value").await;
    }
    let backup = store.backup().await.unwrap();
    let good = file(backup.clone());
    assert_eq!(Backup::read(&good[..]).unwrap(), backup);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let read = Backup::read(&bad[..]);
        assert!(
            matches!(read, Err(BackupError::Damaged(_) | BackupError::Unknown)),
            "{at}"
        );
        let cut = Backup::read(&good[..at]);
        assert!(
            matches!(cut, Err(BackupError::Damaged(_) | BackupError::Unknown)),
            "{at}"
        );
    }
    let longer = [&good[..], b"x"].concat();
    assert!(matches!(
        Backup::read(&longer[..]),
        Err(BackupError::Damaged(_))
    ));
}
