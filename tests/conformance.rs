//! Holds the recorded conversations in `conformance/cases` against a server.
//!
//! The cases were recorded from a real kube-apiserver and run in fresh namespaces, several at a
//! time. They run on both stores, or on the server in `PORTICO_TEST_SERVER` (with
//! `PORTICO_TEST_TOKEN`) when that is set. `PORTICO_TEST_ONLY=TEXT` picks cases by topic/name.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "conformance/case.rs"]
mod case;
mod common;
#[path = "conformance/matching.rs"]
mod matching;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use case::{Picks, Run};
use common::random::Random;
use common::{Client, Server, Store};
use serde_json::Value;
use tokio::sync::Mutex;

/// More at once only makes the server's own queue longer.
const AT_ONCE: usize = 8;

#[tokio::test]
async fn recorded_conversations_on_the_embedded_store() {
    if elsewhere().is_none() {
        replay_on(Store::Embedded).await;
    }
}

#[tokio::test]
async fn recorded_conversations_on_etcd() {
    if elsewhere().is_none() {
        replay_on(Store::Etcd).await;
    }
}

#[tokio::test]
async fn recorded_conversations_elsewhere() {
    if let Some(client) = elsewhere() {
        replay(client).await;
    }
}

/// The server the environment points at.
fn elsewhere() -> Option<Client> {
    let url = std::env::var("PORTICO_TEST_SERVER").ok()?;
    let token = std::env::var("PORTICO_TEST_TOKEN").unwrap_or_default();
    Some(Client::new(
        url.trim_start_matches("https://").trim_end_matches('/'),
        &token,
        None,
    ))
}

async fn replay_on(store: Store) {
    let server = Server::start(store, &[]).await;
    replay(server.admin()).await;
}

/// Runs all cases; prints those that fail, and panics if any did.
async fn replay(client: Client) {
    let cases = Arc::new(Mutex::new(cases()));
    let picks = Arc::new(Picks::new());
    let prefix = format!("replay-{:06x}", Random::fresh_seed() & 0xff_ffff);
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            tokio::spawn(work(
                client.clone(),
                picks.clone(),
                cases.clone(),
                prefix.clone(),
            ))
        })
        .collect();
    let (mut passed, mut failed) = (0, 0);
    for worker in workers {
        let (good, bad) = worker.await.unwrap();
        (passed, failed) = (passed + good, failed + bad);
    }
    println!("{passed} passed, {failed} failed");
    assert!(
        passed > 0 && failed == 0,
        "{passed} passed, {failed} failed"
    );
}

type Queue = VecDeque<(usize, String, Value)>;

/// Takes cases from the queue until it is empty; how many passed and failed.
async fn work(
    client: Client,
    picks: Arc<Picks>,
    cases: Arc<Mutex<Queue>>,
    prefix: String,
) -> (usize, usize) {
    let (mut passed, mut failed) = (0, 0);
    loop {
        let Some((number, name, case)) = cases.lock().await.pop_front() else {
            return (passed, failed);
        };
        let differences = Run::new(&client, &picks, format!("{prefix}-{number}"))
            .case(&case)
            .await;
        if differences.is_empty() {
            passed += 1;
        } else {
            failed += 1;
            println!("FAIL {name}: {}", differences.join("; "));
        }
    }
}

/// All cases in the order of the files: number, topic/name, case.
fn cases() -> Queue {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/cases");
    let mut files: Vec<_> = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let only = std::env::var("PORTICO_TEST_ONLY").unwrap_or_default();
    let mut queue = Queue::new();
    for file in files.iter().filter(|file| {
        file.extension()
            .is_some_and(|extension| extension == "json")
    }) {
        let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        for case in cases {
            let name = format!(
                "{}/{}",
                file.file_stem().unwrap().display(),
                common::text(&case, "name")
            );
            if name.contains(&only) {
                queue.push_back((queue.len(), name, case));
            }
        }
    }
    queue
}
