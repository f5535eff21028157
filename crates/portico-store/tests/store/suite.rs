//! What every engine must do. Each case runs on both.

use portico_store::{
    Check, EmbeddedOptions, MAX_TXN_BYTES, MAX_TXN_OPS, Op, Range, ReadError, Store, Txn, TxnError,
    WatchError,
};
use tempfile::TempDir;

use crate::etcd_server::Server;
use crate::{delete, events, put, summary, text};

/// A place where a store lives: it can be opened, closed and opened again.
enum Engine {
    Embedded(TempDir),
    Etcd(Box<Server>),
}

impl Engine {
    async fn open(&self) -> Store {
        match self {
            Self::Embedded(dir) => Store::embedded(dir.path(), EmbeddedOptions::default())
                .await
                .unwrap(),
            Self::Etcd(server) => server.open().await,
        }
    }
}

macro_rules! on_both_engines {
    ($($case:ident),* $(,)?) => {
        mod on_embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Engine::Embedded(tempfile::tempdir().unwrap())).await;
            })*
        }
        mod on_etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Engine::Etcd(Box::new(crate::etcd_server::Server::start()))).await;
            })*
        }
    };
}

on_both_engines!(
    create_update_delete,
    conflict_names_the_first_failed_check,
    a_transaction_is_one_revision_or_nothing,
    a_transaction_without_operations_only_checks,
    invalid_transactions_are_refused,
    the_largest_transaction_fits,
    range_pages_at_one_revision,
    reads_of_the_past_end_at_the_compaction,
    watch_gives_every_change_in_order,
    watch_from_a_revision,
    two_watchers_see_the_same,
    a_watcher_that_fell_behind_is_told,
    a_quiet_watcher_survives_compaction,
    position_follows_the_whole_store,
    concurrent_increments_lose_nothing,
    reopening_keeps_everything,
    closing_ends_watches_and_commits,
    batches_are_bounded_and_complete,
);

async fn create_update_delete(place: Engine) {
    let store = place.open().await;
    let key = "services/default/web";
    let create = Txn {
        checks: vec![Check::absent(key)],
        ops: vec![Op::put(key, "1")],
    };
    let created = store.commit(create.clone()).await.unwrap();
    assert!(matches!(
        store.commit(create).await,
        Err(TxnError::Conflict { .. })
    ));

    let update = Txn {
        checks: vec![Check::modified(key, created)],
        ops: vec![Op::put(key, "2")],
    };
    let updated = store.commit(update).await.unwrap();
    let entry = store.get(key).unwrap();
    assert_eq!(
        (&*entry.value, entry.created, entry.modified),
        (&b"2"[..], created, updated)
    );
    assert!(updated > created);

    let remove = |modified| Txn {
        checks: vec![Check::modified(key, modified)],
        ops: vec![Op::delete(key)],
    };
    assert!(matches!(
        store.commit(remove(created)).await,
        Err(TxnError::Conflict { .. })
    ));
    let deleted = store.commit(remove(updated)).await.unwrap();
    assert_eq!(store.get(key), None);
    assert_eq!(store.get_at(key, updated).unwrap(), Some(entry));
    assert_eq!(store.get_at(key, deleted).unwrap(), None);

    let again = put(&store, key, "3").await;
    assert_eq!(store.get(key).unwrap().created, again);
}

async fn conflict_names_the_first_failed_check(place: Engine) {
    let store = place.open().await;
    let a = put(&store, "ips/a", "").await;
    let b = put(&store, "ips/b", "").await;
    for (checks, expected) in [
        (
            vec![Check::modified("ips/a", a), Check::modified("ips/b", a)],
            "ips/b",
        ),
        (
            vec![Check::modified("ips/a", b), Check::modified("ips/b", a)],
            "ips/a",
        ),
        (
            vec![Check::modified("ips/b", b), Check::absent("ips/a")],
            "ips/a",
        ),
        (
            vec![Check::modified("ips/b", b), Check::modified("ips/c", 1)],
            "ips/c",
        ),
    ] {
        match store
            .commit(Txn {
                checks,
                ops: vec![Op::put("ips/d", "")],
            })
            .await
        {
            Err(TxnError::Conflict { key }) => assert_eq!(key, expected),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.get("ips/d"), None);
}

async fn a_transaction_is_one_revision_or_nothing(place: Engine) {
    let store = place.open().await;
    let start = put(&store, "services/old", "x").await;
    let mut watch = store.watch("services/", start).unwrap();
    let ops = vec![
        Op::put("services/a", "1"),
        Op::delete("services/old"),
        Op::put("ips/1", "a"),
        Op::delete("services/none"),
    ];
    let revision = store
        .commit(Txn {
            checks: vec![],
            ops,
        })
        .await
        .unwrap();
    let batch = watch.next().await.unwrap();
    let mut seen = summary(&batch);
    seen.sort();
    assert_eq!(
        seen,
        [
            (revision, "services/a".into(), true),
            (revision, "services/old".into(), false)
        ]
    );
    assert_eq!(store.get("ips/1").unwrap().modified, revision);

    let failing = Txn {
        checks: vec![Check::absent("ips/1")],
        ops: vec![Op::put("services/b", ""), Op::delete("services/a")],
    };
    assert!(store.commit(failing).await.is_err());
    assert_eq!(
        (text(&store, "services/a"), text(&store, "services/b")),
        (Some("1".into()), None)
    );
    assert_eq!(store.revision(), revision);
}

async fn a_transaction_without_operations_only_checks(place: Engine) {
    let store = place.open().await;
    let revision = put(&store, "services/a", "1").await;
    let check = |modified| Txn {
        checks: vec![Check::modified("services/a", modified)],
        ops: vec![],
    };
    assert!(store.commit(check(revision)).await.unwrap() >= revision);
    assert!(matches!(
        store.commit(check(revision + 1)).await,
        Err(TxnError::Conflict { .. })
    ));
}

async fn invalid_transactions_are_refused(place: Engine) {
    let store = place.open().await;
    let commit = async |ops| {
        store
            .commit(Txn {
                checks: vec![],
                ops,
            })
            .await
            .unwrap_err()
    };
    assert!(matches!(
        commit(vec![Op::put("head", "")]).await,
        TxnError::Invalid { .. }
    ));
    assert!(matches!(
        commit(vec![Op::put("/head", "")]).await,
        TxnError::Invalid { .. }
    ));
    assert!(matches!(
        commit(vec![Op::put("a/b", ""), Op::delete("a/b")]).await,
        TxnError::Invalid { .. }
    ));
    let many = (0..MAX_TXN_OPS + 1)
        .map(|n| Op::delete(format!("a/{n}")))
        .collect();
    assert!(matches!(
        commit(many).await,
        TxnError::TooLarge {
            what: "operations",
            ..
        }
    ));
    let large = vec![Op::put("a/b", vec![0; MAX_TXN_BYTES])];
    assert!(matches!(
        commit(large).await,
        TxnError::TooLarge { what: "bytes", .. }
    ));
    assert!(matches!(
        store.watch("services", store.revision()),
        Err(ReadError::Prefix { .. })
    ));
}

async fn the_largest_transaction_fits(place: Engine) {
    let store = place.open().await;
    let name = |n| format!("a/{n:03}");
    let value = vec![7u8; (MAX_TXN_BYTES - 2 * MAX_TXN_OPS * 5) / MAX_TXN_OPS];
    let checks: Vec<_> = (0..MAX_TXN_OPS).map(|n| Check::absent(name(n))).collect();
    let ops: Vec<_> = (0..MAX_TXN_OPS)
        .map(|n| Op::put(name(n), value.clone()))
        .collect();
    let txn = Txn { checks, ops };
    store.commit(txn.clone()).await.unwrap();
    assert_eq!(
        store
            .range(Range {
                prefix: "a/",
                ..Range::default()
            })
            .unwrap()
            .entries
            .len(),
        MAX_TXN_OPS
    );
    match store.commit(txn).await {
        Err(TxnError::Conflict { key }) => assert_eq!(key, "a/000"),
        other => panic!("{other:?}"),
    }
}

async fn range_pages_at_one_revision(place: Engine) {
    let store = place.open().await;
    for name in ["a", "b", "c", "d", "e"] {
        put(&store, &format!("pods/ns/{name}"), name).await;
    }
    put(&store, "podsx/ns/a", "other topic").await;
    let range = Range {
        prefix: "pods/",
        limit: 2,
        ..Range::default()
    };
    let first = store.range(range).unwrap();
    assert_eq!(
        (first.entries.len(), first.more, first.remaining),
        (2, true, 3)
    );
    assert_eq!(first.revision, store.revision());

    delete(&store, "pods/ns/c").await;
    put(&store, "pods/ns/d", "new").await;
    put(&store, "pods/ns/bb", "new").await;
    let next = Range {
        after: Some(&first.entries[1].key),
        at: Some(first.revision),
        ..range
    };
    let second = store.range(next).unwrap();
    let names: Vec<_> = second
        .entries
        .iter()
        .map(|entry| (&*entry.key, &*entry.value))
        .collect();
    assert_eq!(names, [("pods/ns/c", &b"c"[..]), ("pods/ns/d", &b"d"[..])]);
    let third = store
        .range(Range {
            after: Some("pods/ns/d"),
            ..next
        })
        .unwrap();
    assert_eq!(
        (third.entries.len(), third.more, third.remaining),
        (1, false, 0)
    );

    let now = store
        .range(Range {
            prefix: "pods/ns/",
            ..Range::default()
        })
        .unwrap();
    let names: Vec<_> = now.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(
        names,
        [
            "pods/ns/a",
            "pods/ns/b",
            "pods/ns/bb",
            "pods/ns/d",
            "pods/ns/e"
        ]
    );
    assert!(
        store
            .range(Range {
                prefix: "pods/",
                after: Some("pods/zz"),
                ..Range::default()
            })
            .unwrap()
            .entries
            .is_empty()
    );
    assert_eq!(
        store
            .range(Range {
                prefix: "pods/",
                after: Some("a"),
                ..Range::default()
            })
            .unwrap()
            .entries
            .len(),
        5
    );
}

async fn reads_of_the_past_end_at_the_compaction(place: Engine) {
    let store = place.open().await;
    let first = put(&store, "services/a", "1").await;
    let second = put(&store, "services/a", "2").await;
    let third = put(&store, "services/a", "3").await;
    store.compact(second).await.unwrap();
    assert_eq!(store.compacted(), second);
    assert!(
        matches!(store.get_at("services/a", first), Err(ReadError::Compacted { compacted }) if compacted == second)
    );
    assert_eq!(
        &*store.get_at("services/a", second).unwrap().unwrap().value,
        b"2"
    );
    assert!(matches!(
        store.watch("services/", first),
        Err(ReadError::Compacted { .. })
    ));
    let mut watch = store.watch("services/", second).unwrap();
    assert_eq!(
        summary(&events(&mut watch, 1).await),
        [(third, "services/a".into(), true)]
    );
    assert!(matches!(
        store.get_at("services/a", third + 1),
        Err(ReadError::Future { .. })
    ));
    assert!(matches!(
        store.watch("services/", third + 1),
        Err(ReadError::Future { .. })
    ));
    assert!(store.compact(third + 1).await.is_err());
    store.compact(first).await.unwrap();
    assert_eq!(store.compacted(), second);
}

async fn watch_gives_every_change_in_order(place: Engine) {
    let store = place.open().await;
    let mut watch = store.watch("services/", store.revision()).unwrap();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for round in 0..50 {
            put(&writer, "services/a", &round.to_string()).await;
            put(&writer, "nodes/n", "").await;
            delete(&writer, "services/a").await;
        }
    });
    let seen = events(&mut watch, 100).await;
    writing.await.unwrap();
    assert!(seen.is_sorted_by(|a, b| a.revision < b.revision));
    for (index, pair) in seen.chunks(2).enumerate() {
        assert_eq!(pair[0].now.as_ref().unwrap().value, index.to_string());
        assert_eq!(pair[0].before, None);
        assert_eq!((&pair[1].now, &pair[1].before), (&None, &pair[0].now));
    }
}

async fn watch_from_a_revision(place: Engine) {
    let store = place.open().await;
    put(&store, "services/a", "1").await;
    let from = put(&store, "services/a", "2").await;
    let third = put(&store, "services/ns/b", "3").await;
    let fourth = put(&store, "services/ns2/b", "4").await;
    let mut all = store.watch("services/", from).unwrap();
    assert_eq!(
        summary(&events(&mut all, 2).await),
        [
            (third, "services/ns/b".into(), true),
            (fourth, "services/ns2/b".into(), true)
        ]
    );
    let mut one = store.watch("services/ns2/", from).unwrap();
    assert_eq!(
        summary(&events(&mut one, 1).await),
        [(fourth, "services/ns2/b".into(), true)]
    );
    assert_eq!((all.position(), one.position()), (fourth, fourth));
}

async fn two_watchers_see_the_same(place: Engine) {
    let store = place.open().await;
    let from = store.revision();
    let mut watches = [
        store.watch("services/", from).unwrap(),
        store.watch("services/", from).unwrap(),
    ];
    for number in 0..20 {
        put(&store, &format!("services/{number}"), "").await;
    }
    let [first, second] = &mut watches;
    let (first, second) = (events(first, 20).await, events(second, 20).await);
    for (one, other) in first.iter().zip(&second) {
        assert!(
            std::sync::Arc::ptr_eq(one, other),
            "an event is encoded once for all its watchers"
        );
    }
}

async fn a_watcher_that_fell_behind_is_told(place: Engine) {
    let store = place.open().await;
    let mut slow = store.watch("services/", store.revision()).unwrap();
    put(&store, "services/a", "1").await;
    put(&store, "services/a", "2").await;
    let now = store.revision();
    store.compact(now).await.unwrap();
    assert_eq!(
        slow.next().await.unwrap_err(),
        WatchError::Compacted { compacted: now }
    );
    assert!(slow.position() < now);
}

async fn a_quiet_watcher_survives_compaction(place: Engine) {
    let store = place.open().await;
    let mut quiet = store.watch("nodes/", store.revision()).unwrap();
    for number in 0..5 {
        let revision = put(&store, "services/a", &number.to_string()).await;
        store.compact(revision).await.unwrap();
    }
    let revision = put(&store, "nodes/n", "").await;
    assert_eq!(
        summary(&events(&mut quiet, 1).await),
        [(revision, "nodes/n".into(), true)]
    );
}

async fn position_follows_the_whole_store(place: Engine) {
    let store = place.open().await;
    let from = store.revision();
    let mut watch = store.watch("services/default/", from).unwrap();
    assert_eq!(watch.position(), from);
    let other = put(&store, "nodes/n", "").await;
    assert_eq!(watch.position(), other, "nothing happened in the topic");
    let first = put(&store, "services/default/a", "1").await;
    let last = put(&store, "nodes/n", "2").await;
    assert!(watch.position() < first, "the event was not read yet");
    events(&mut watch, 1).await;
    assert_eq!(watch.position(), last);

    let elsewhere = put(&store, "services/kube-system/a", "1").await;
    tokio::select! {
        biased;
        batch = watch.next() => panic!("an event outside the prefix was delivered: {batch:?}"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(watch.position(), elsewhere);
}

async fn concurrent_increments_lose_nothing(place: Engine) {
    let store = place.open().await;
    put(&store, "counters/n", "0").await;
    let tasks: Vec<_> = (0..64)
        .map(|_| tokio::spawn(increment(store.clone())))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(text(&store, "counters/n").unwrap(), "64");
}

async fn increment(store: Store) {
    loop {
        let entry = store.get("counters/n").unwrap();
        let value: u32 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
        let ops = vec![Op::put("counters/n", (value + 1).to_string())];
        match store
            .commit(Txn {
                checks: vec![Check::modified("counters/n", entry.modified)],
                ops,
            })
            .await
        {
            Ok(revision) => {
                return assert!(
                    store.get("counters/n").unwrap().modified >= revision,
                    "reads see the own write"
                );
            }
            Err(TxnError::Conflict { .. }) => continue,
            Err(other) => panic!("{other:?}"),
        }
    }
}

async fn reopening_keeps_everything(place: Engine) {
    let store = place.open().await;
    for number in 0..2500 / MAX_TXN_OPS {
        let op = |n| Op::put(format!("pods/{number:02}-{n:03}"), format!("{number} {n}"));
        store
            .commit(Txn {
                checks: vec![],
                ops: (0..MAX_TXN_OPS).map(op).collect(),
            })
            .await
            .unwrap();
    }
    put(&store, "pods/00-000", "changed").await;
    delete(&store, "pods/00-001").await;
    let last = delete(&store, "pods/none").await;
    let all = Range {
        prefix: "",
        ..Range::default()
    };
    let before = store.range(all).unwrap();
    store.close().await;
    drop(store);

    let store = place.open().await;
    assert_eq!(store.range(all).unwrap().entries, before.entries);
    assert!(store.revision() >= last, "the revision never goes back");
    assert_eq!(store.compacted(), store.revision());
    assert!(put(&store, "pods/new", "").await > last);
}

async fn closing_ends_watches_and_commits(place: Engine) {
    let store = place.open().await;
    let mut watch = store.watch("services/", store.revision()).unwrap();
    let waiting = tokio::spawn(async move { watch.next().await });
    store.close().await;
    assert_eq!(waiting.await.unwrap().unwrap_err(), WatchError::Closed);
    let txn = Txn {
        checks: vec![],
        ops: vec![Op::put("services/a", "")],
    };
    assert!(
        matches!(store.commit(txn).await, Err(TxnError::Unavailable(outage)) if !outage.unknown)
    );
    assert!(matches!(
        store.barrier().await,
        Err(ReadError::Unavailable(_))
    ));
    store.close().await;
}

async fn batches_are_bounded_and_complete(place: Engine) {
    let store = place.open().await;
    let mut watch = store.watch("pods/", store.revision()).unwrap();
    for round in 0..6 {
        let ops = (0..100)
            .map(|n| Op::put(format!("pods/{n}"), round.to_string()))
            .collect();
        store
            .commit(Txn {
                checks: vec![],
                ops,
            })
            .await
            .unwrap();
    }
    let first = watch.next().await.unwrap();
    assert_eq!(first.len(), 300, "a batch ends with a revision");
    assert_eq!(watch.position(), first[299].revision);
    assert_eq!(watch.next().await.unwrap().len(), 300);
}
