//! Keeps the mirror equal to the prefix in etcd: a read of everything at one revision, then a watch
//! from there. A broken watch is opened again where it stopped, on another member; if etcd has
//! forgotten that place, everything is read again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_stream::StreamExt;

use super::client::Client;
use super::clock::Clock;
use super::failure::Failure;
use super::proto::{self, KeyValue, RangeRequest, WatchCreate, WatchResponse};
use super::{restored, txn};
use crate::health::Health;
use crate::mirror::{Change, Commit, Mirror};
use crate::types::topic_of;
use crate::{Entry, Revision};

/// How many keys one read asks for: bounded in memory, few enough trips.
const PAGE: i64 = 500;
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Follower {
    pub mirror: Arc<Mirror>,
    pub client: Arc<Client>,
    pub prefix: String,
    pub clock: Clock,
    pub health: Arc<Health>,
}

/// Why following stopped.
enum Break {
    Lost(String),
    /// What comes next can no longer be had from a watch.
    Gone,
    /// A backup was restored under this process.
    Restored,
}

impl From<Failure> for Break {
    fn from(failure: Failure) -> Self {
        Self::Lost(failure.outage("to follow").to_string())
    }
}

impl Follower {
    pub(super) async fn run(self) {
        let mut pause = PAUSE;
        loop {
            let before = self.mirror.revision();
            match self.follow_or_read().await {
                Err(Break::Lost(reason)) => {
                    tracing::warn!(reason, "lost the watch of etcd");
                    self.client.go_on();
                }
                Err(Break::Restored) => {
                    self.health.set_lost(&restored(&self.prefix));
                    return self.mirror.close();
                }
                _ => {}
            }
            pause = if self.mirror.revision() != before {
                PAUSE
            } else {
                LONGEST_PAUSE.min(pause * 2)
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn follow_or_read(&self) -> Result<(), Break> {
        match self.follow().await {
            Err(Break::Gone) => {
                tracing::warn!("etcd's history is gone, reading everything");
                let (revision, entries) = read_all(&self.client, &self.prefix, self.clock).await?;
                self.mirror.replace(revision, entries);
                Ok(())
            }
            other => other,
        }
    }

    async fn follow(&self) -> Result<(), Break> {
        let from = self.mirror.revision();
        let answer = self.client.range(txn::read_head(&self.prefix)).await?;
        if answer.kvs.iter().any(|head| !self.is_ours(head)) {
            return Err(Break::Restored);
        }
        // Only a cluster that etcd restored from a snapshot of its own is behind us.
        if answer
            .header
            .is_none_or(|header| self.clock.revision(header.revision) < from)
        {
            return Err(Break::Gone);
        }
        let key = self.prefix.clone().into_bytes();
        let range_end = proto::prefix_end(&key);
        let mut stream = self
            .client
            .watch(WatchCreate {
                key,
                range_end,
                start_revision: self.clock.wire(from + 1),
            })
            .await?;
        while let Some(message) = stream.next().await {
            self.take(message.map_err(|status| Break::Lost(status.to_string()))?)?;
        }
        Err(Break::Lost("etcd ended it".into()))
    }

    fn take(&self, message: WatchResponse) -> Result<(), Break> {
        if message.compact_revision != 0 {
            return Err(Break::Gone);
        }
        if message.canceled {
            return Err(Break::Lost(message.cancel_reason));
        }
        let head = txn::etcd_key(&self.prefix, txn::HEAD);
        let mut heads = message.events.iter().filter_map(|event| {
            let kv = event.kv.as_ref().filter(|kv| kv.key == head)?;
            (event.kind != proto::KIND_DELETE).then_some(kv)
        });
        if heads.any(|head| !self.is_ours(head)) {
            return Err(Break::Restored);
        }
        let commits = commits(&self.prefix, self.clock, message.events);
        if !commits.is_empty() {
            self.mirror.publish(commits);
        }
        Ok(())
    }

    fn is_ours(&self, head: &KeyValue) -> bool {
        head.value == self.clock.head().into_bytes()
    }
}

/// The events of a message by revision. etcd never splits a revision over two messages.
fn commits(prefix: &str, clock: Clock, events: Vec<proto::Event>) -> Vec<Commit> {
    let mut commits: Vec<Commit> = Vec::new();
    for event in events {
        let Some(kv) = event.kv else { continue };
        let revision = clock.revision(kv.mod_revision);
        if commits.last().is_none_or(|last| last.revision != revision) {
            commits.push(Commit {
                revision,
                changes: Vec::new(),
            });
        }
        if let (Some(key), Some(last)) = (store_key(prefix, &kv.key), commits.last_mut()) {
            let now = (event.kind != proto::KIND_DELETE).then(|| entry(clock, key.clone(), kv));
            last.changes.push(Change { key, now });
        }
    }
    commits
}

/// Reads everything under the prefix, at one revision.
pub(super) async fn read_all(
    client: &Client,
    prefix: &str,
    clock: Clock,
) -> Result<(Revision, Vec<Entry>), Failure> {
    loop {
        match try_read_all(client, prefix, clock).await {
            // The revision was compacted while it was being read: begin again at a newer one.
            Err(failure) if failure.is_compacted() => continue,
            result => return result,
        }
    }
}

async fn try_read_all(
    client: &Client,
    prefix: &str,
    clock: Clock,
) -> Result<(Revision, Vec<Entry>), Failure> {
    let range_end = proto::prefix_end(prefix.as_bytes());
    let mut request = RangeRequest {
        key: prefix.into(),
        range_end,
        limit: PAGE,
        ..Default::default()
    };
    let mut entries = Vec::new();
    loop {
        let page = client.range(request.clone()).await?;
        if request.revision == 0 {
            request.revision = page.header.map_or(0, |header| header.revision);
        }
        if let Some(last) = page.kvs.last() {
            request.key = [&last.key[..], &[0]].concat();
        }
        entries.extend(
            page.kvs
                .into_iter()
                .filter_map(|kv| Some(entry(clock, store_key(prefix, &kv.key)?, kv))),
        );
        if !page.more {
            return Ok((clock.revision(request.revision), entries));
        }
    }
}

/// The store's key of an etcd key: none for the head, and for what a stranger put there.
fn store_key(prefix: &str, key: &[u8]) -> Option<Arc<str>> {
    let key = std::str::from_utf8(key.strip_prefix(prefix.as_bytes())?).ok()?;
    topic_of(key).map(|_| key.into())
}

fn entry(clock: Clock, key: Arc<str>, kv: KeyValue) -> Entry {
    Entry {
        key,
        value: Bytes::from(kv.value),
        created: clock.revision(kv.create_revision),
        modified: clock.revision(kv.mod_revision),
    }
}
