//! Watches: streaming lists, bookmarks, expiry, and watchers that do not keep up.

use std::time::Duration;

use serde_json::{Value, json};

use crate::SERVICES;
use crate::common::client::MERGE;
use crate::common::{Client, Server, Store, at, text};

async fn some(client: &Client, count: usize) {
    for n in 0..count {
        client
            .create_service(&format!("s{n}"), json!({"ports": [{"port": 80}]}))
            .await
            .expect(201);
    }
}

async fn version(client: &Client) -> u64 {
    let list = client.get(SERVICES).await.expect(200);
    text(&list, "metadata.resourceVersion").parse().unwrap()
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark() {
    for store in [Store::Embedded, Store::Etcd] {
        let server = Server::start(store, &[]).await;
        let client = server.admin();
        some(&client, 3).await;
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut watch = client.watch(&format!("{SERVICES}?{query}")).await;
        let mut names = vec![];
        let bookmark = loop {
            let event = watch.next().await;
            if event["type"] == "BOOKMARK" {
                break event;
            }
            assert_eq!(event["type"], "ADDED");
            names.push(text(&event, "object.metadata.name").to_owned());
        };
        assert_eq!(names, ["kubernetes", "s0", "s1", "s2"]);
        assert_eq!(
            at(&bookmark, "object.metadata.annotations")["k8s.io/initial-events-end"],
            "true"
        );
        let seen: u64 = text(&bookmark, "object.metadata.resourceVersion")
            .parse()
            .unwrap();
        assert!(seen >= version(&client).await);
        client.delete(&format!("{SERVICES}/s1")).await.expect(200);
        let event = watch.next_change().await;
        assert_eq!(
            (text(&event, "type"), text(&event, "object.metadata.name")),
            ("DELETED", "s1")
        );
    }
}

#[tokio::test]
async fn streaming_list_parameters_are_checked() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    for query in [
        "sendInitialEvents=true",
        "watch=1&sendInitialEvents=true",
        "watch=1&resourceVersionMatch=NotOlderThan",
    ] {
        let answer = client.get(&format!("{SERVICES}?{query}")).await;
        assert!(
            matches!(answer.status, 400 | 422),
            "{query}: {} {}",
            answer.status,
            answer.text()
        );
    }
}

#[tokio::test]
async fn history_from_before_a_restart_is_expired() {
    for store in [Store::Embedded, Store::Etcd] {
        let mut server = Server::start(store, &[]).await;
        let client = server.admin();
        let old = version(&client).await;
        some(&client, 5).await;
        server.restart(None).await;
        let path = format!("{SERVICES}?watch=1&resourceVersion={old}");
        let expired = match client.try_watch(&path, &[]).await.unwrap() {
            Err(answer) => answer.json(),
            Ok(mut watch) => {
                let event = watch.next().await;
                if event["type"] == "ADDED" {
                    println!("{store:?}: history survives a restart, which is better");
                    continue;
                }
                assert_eq!(event["type"], "ERROR", "{event}");
                event["object"].clone()
            }
        };
        assert_eq!(
            (&expired["code"], &expired["reason"]),
            (&json!(410), &json!("Expired")),
            "{expired}"
        );
        let future = version(&client).await + 1_000_000;
        let answer = client
            .get(&format!(
                "{SERVICES}?resourceVersion={future}&resourceVersionMatch=Exact"
            ))
            .await;
        assert!(
            matches!(answer.status, 400 | 504),
            "{} {}",
            answer.status,
            answer.text()
        );
    }
}

/// A watcher that does not read is dropped or told to list again; the others and the server do not
/// suffer.
#[tokio::test]
async fn a_slow_watcher_is_dropped() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let spec = json!({"ports": [{"port": 80}]});
    client.create_service("big", spec).await.expect(201);
    let from = version(&client).await;
    let mut slow = client
        .watch(&format!("{SERVICES}?watch=1&resourceVersion={from}"))
        .await;
    let mut quick = client
        .watch(&format!("{SERVICES}?watch=1&resourceVersion={from}"))
        .await;
    let filler = "x".repeat(200_000);
    let mut changes = 0;
    // More than the server keeps as history.
    for n in 0..400 {
        let patch = json!({"metadata": {"annotations": {"n": n.to_string(), "filler": filler}}});
        client
            .patch(&format!("{SERVICES}/big"), MERGE, &patch)
            .await
            .expect(200);
        let event = quick.next_change().await;
        assert_eq!(
            at(&event, "object.metadata.annotations.n"),
            n.to_string().as_str()
        );
        changes += 1;
    }
    let (mut seen, mut last) = (0, Value::Null);
    while let Some(Some(event)) = slow.within(Duration::from_secs(5)).await {
        if event["type"] != "BOOKMARK" {
            seen += 1;
        }
        last = event;
    }
    println!(
        "the slow watcher saw {seen} of {changes} changes, the last was {}",
        last["type"]
    );
    if seen < changes {
        assert_eq!(last["type"], "ERROR", "what it missed it was told about");
        assert_eq!(at(&last, "object.code"), 410);
    }
}

#[tokio::test]
async fn bookmarks_come_before_a_watch_ends() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let from = version(&client).await;
    let query = format!("watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=3");
    let mut watch = client
        .watch(&format!(
            "{SERVICES}?{query}&fieldSelector=metadata.name%3Dnothing"
        ))
        .await;
    some(&client, 2).await;
    let latest = version(&client).await;
    let bookmark = watch.next().await;
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert!(
        text(&bookmark, "object.metadata.resourceVersion")
            .parse::<u64>()
            .unwrap()
            >= latest,
        "{bookmark}"
    );
    while watch
        .within(Duration::from_secs(10))
        .await
        .expect("the watch ends after its time")
        .is_some()
    {}
}

#[tokio::test]
async fn many_watches_share_a_connection() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let from = version(&client).await;
    let mut connection = client.http2().await;
    let mut watches = vec![];
    for _ in 0..80 {
        watches.push(
            connection
                .watch(&format!("{SERVICES}?watch=1&resourceVersion={from}"))
                .await,
        );
    }
    some(&client, 1).await;
    for watch in &mut watches {
        assert_eq!(text(&watch.next().await, "object.metadata.name"), "s0");
    }
    assert_eq!(connection.get("/livez").await.status, 200);
}

/// Every change is seen once and in order, whatever else is written meanwhile.
#[tokio::test]
async fn a_watch_misses_nothing_under_load() {
    for store in [Store::Embedded, Store::Etcd] {
        let server = Server::start(store, &[]).await;
        let client = server.admin();
        let from = version(&client).await;
        let mut watch = client
            .watch(&format!("{SERVICES}?watch=1&resourceVersion={from}"))
            .await;
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let client = client.clone();
                tokio::spawn(async move {
                    for n in 0..25 {
                        let spec = json!({"ports": [{"port": 80}]});
                        client
                            .create_service(&format!("w{writer}-{n}"), spec)
                            .await
                            .expect(201);
                    }
                })
            })
            .collect();
        let (mut names, mut last) = (std::collections::BTreeSet::new(), from);
        for _ in 0..200 {
            let event = watch.next_change().await;
            let version: u64 = text(&event, "object.metadata.resourceVersion")
                .parse()
                .unwrap();
            assert!(version > last, "{version} after {last}");
            last = version;
            assert!(
                names.insert(text(&event, "object.metadata.name").to_owned()),
                "seen twice: {event}"
            );
        }
        for writer in writers {
            writer.await.unwrap();
        }
    }
}
