//! What only the embedded engine can do: survive kill -9, hold its directory, refuse what it does
//! not know.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use portico_store::{EmbeddedOptions, HistoryLimits, Op, OpenError, Store, Txn, TxnError};

use crate::{put, text};

const CRASH_DIR: &str = "PORTICO_STORE_CRASH_DIR";

async fn open(dir: &Path) -> Result<Store, OpenError> {
    Store::embedded(dir, EmbeddedOptions::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_write_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        acknowledged.extend(write_until_killed(dir.path(), 200 + round * 100));
        let store = open(dir.path()).await.unwrap();
        for (key, revision) in &acknowledged {
            assert_eq!(
                store.get(key).map(|entry| entry.modified),
                Some(*revision),
                "{key} in round {round}"
            );
            assert!(store.revision() >= *revision);
        }
        store.close().await;
    }
}

/// Lets a child write until it has acknowledged `count` writes, kills it, and returns all that it
/// acknowledged.
fn write_until_killed(dir: &Path, count: usize) -> Vec<(String, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "embedded::child_that_writes_until_killed",
            "--nocapture",
        ])
        .env(CRASH_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    let mut killed = false;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((key, revision)) = line
            .strip_prefix("ack ")
            .and_then(|ack| ack.strip_suffix('.'))
            .and_then(|ack| ack.split_once(' '))
        else {
            continue;
        };
        acknowledged.push((key.to_owned(), revision.parse().unwrap()));
        if acknowledged.len() >= count && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself");
    acknowledged
}

/// Not a test by itself: the crash test runs it in a child process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_killed() {
    let Some(dir) = std::env::var_os(CRASH_DIR) else {
        return;
    };
    let store = open(Path::new(&dir)).await.unwrap();
    let start = store.revision();
    let write = async |task: usize| {
        for number in 0.. {
            let key = format!("crash/{start}-{task}-{number}");
            let revision = put(&store, &key, "a value of some length").await;
            println!("ack {key} {revision}.");
        }
    };
    let tasks = (0..16).map(write);
    futures_join(tasks).await;
}

/// Runs all of them on this task.
async fn futures_join(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

#[tokio::test]
async fn a_second_process_is_told_that_the_directory_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let error = open(dir.path()).await.err().unwrap();
    assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    assert!(error.to_string().contains("another process"));
    store.close().await;
    open(dir.path()).await.unwrap();
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).await.unwrap().close().await;
    let meta: redb::TableDefinition<&str, u64> = redb::TableDefinition::new("meta");
    {
        let database = redb::Database::open(dir.path().join("portico.redb")).unwrap();
        let write = database.begin_write().unwrap();
        write.open_table(meta).unwrap().insert("format", 3).unwrap();
        write.commit().unwrap();
    }
    let error = open(dir.path()).await.err().unwrap();
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 3,
                known: 2,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn what_is_not_a_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("portico.redb"),
        "this is a text and not a database, and long enough",
    )
    .unwrap();
    let error = open(dir.path()).await.err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(open(&file).await, Err(OpenError::Storage { .. })));
}

#[tokio::test]
async fn a_new_directory_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("var/lib/portico");
    let store = open(&deep).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&deep), mode(&deep.join("portico.redb"))),
        (0o700, 0o600)
    );
    put(&store, "services/a", "1").await;
    assert_eq!(text(&store, "services/a").unwrap(), "1");
}

#[tokio::test]
async fn history_is_bounded_by_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let history = HistoryLimits {
        bytes: 100_000,
        ..HistoryLimits::default()
    };
    let store = Store::embedded(
        dir.path(),
        EmbeddedOptions {
            history,
            ..EmbeddedOptions::default()
        },
    )
    .await
    .unwrap();
    for _ in 0..200 {
        store
            .commit(Txn {
                checks: vec![],
                ops: vec![Op::put("services/a", vec![1; 1000])],
            })
            .await
            .unwrap();
    }
    let kept = store.revision() - store.compacted();
    assert!((20..=100).contains(&kept), "{kept}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_makes_commits_wait() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::embedded(
        dir.path(),
        EmbeddedOptions {
            queue: 1,
            ..EmbeddedOptions::default()
        },
    )
    .await
    .unwrap();
    let write = async |task: usize| {
        put(&store, &format!("pods/{task}"), "").await;
    };
    futures_join((0..100).map(write)).await;
    assert_eq!(
        store
            .range(portico_store::Range {
                prefix: "pods/",
                ..Default::default()
            })
            .unwrap()
            .entries
            .len(),
        100
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_meet_a_close_happen_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let write = |number: usize| {
        let store = store.clone();
        let txn = Txn {
            checks: vec![],
            ops: vec![Op::put(format!("pods/{number}"), "")],
        };
        tokio::spawn(async move { store.commit(txn).await })
    };
    let writes: Vec<_> = (0..200).map(write).collect();
    store.close().await;
    let reopened = open(dir.path()).await.unwrap();
    for (number, write) in writes.into_iter().enumerate() {
        let happened = match write.await.unwrap() {
            Ok(_) => true,
            Err(TxnError::Unavailable(outage)) if !outage.unknown => false,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(reopened.get(&format!("pods/{number}")).is_some(), happened);
    }
}
