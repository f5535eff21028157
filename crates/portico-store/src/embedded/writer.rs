//! The one thread that writes. It drains the queue into one disk transaction (group commit),
//! publishes what became durable, and only then answers. If the disk fails, nothing is published
//! and the file is opened anew for the next batch.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::closed;
use super::disk::{Contents, Disk};
use crate::mirror::{Change, Commit, Mirror};
use crate::{Check, Entry, Op, Outage, Revision, Txn, TxnError};

/// At most so many transactions, or so many bytes, share one sync of the disk.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 8 << 20;

type Answer = oneshot::Sender<Result<Revision, TxnError>>;

pub(super) enum Job {
    Commit { txn: Txn, answer: Answer },
    Stop { answer: oneshot::Sender<()> },
}

pub(super) struct Writer {
    mirror: Arc<Mirror>,
    dir: PathBuf,
    cache_bytes: usize,
    /// `None` after it failed: what a failed write left behind is only known after opening it
    /// again.
    disk: Option<Disk>,
}

impl Writer {
    pub fn new(disk: Disk, mirror: Arc<Mirror>, dir: PathBuf, cache_bytes: usize) -> Writer {
        Writer {
            mirror,
            dir,
            cache_bytes,
            disk: Some(disk),
        }
    }

    pub fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(job) = queue.blocking_recv() {
            let (group, stop) = gather(job, &mut queue);
            self.commit(group);
            if let Some(answer) = stop {
                refuse_rest(queue);
                // The lock must be gone before the answer. Nobody listening is fine.
                drop(self);
                let _ = answer.send(());
                return;
            }
        }
    }

    fn commit(&mut self, group: Vec<(Txn, Answer)>) {
        let recovered = self.recover();
        let mut plan = Plan::new(&self.mirror);
        let planned: Vec<_> = group
            .into_iter()
            .map(|(txn, answer)| (plan.add(txn), answer))
            .collect();
        let commits = plan.commits;
        let outage = recovered.and_then(|()| self.persist(commits)).err();
        for (result, answer) in planned {
            let result = match (&outage, result) {
                (Some(outage), Ok(_)) => Err(TxnError::Unavailable(outage.clone())),
                (_, result) => result,
            };
            // A caller that no longer waits has given up on the answer.
            let _ = answer.send(result);
        }
    }

    /// Opens the file again if it failed, and shows what is really in it.
    fn recover(&mut self) -> Result<(), Outage> {
        if self.disk.is_none() {
            let opened = Disk::open(&self.dir, self.cache_bytes);
            let (disk, Contents { revision, entries }) =
                opened.map_err(|error| Outage::new("the disk failed").because(error))?;
            self.mirror.replace(revision, entries);
            self.disk = Some(disk);
        }
        Ok(())
    }

    fn persist(&mut self, commits: Vec<Commit>) -> Result<(), Outage> {
        let Some(disk) = self.disk.as_ref().filter(|_| !commits.is_empty()) else {
            return Ok(());
        };
        if let Err(error) = disk.write(&commits) {
            tracing::error!(%error, "the disk failed");
            self.disk = None;
            return Err(Outage::unknown("the disk failed").because(error));
        }
        self.mirror.publish(commits);
        Ok(())
    }
}

/// Without its writer the store is closed, however the writer ended.
impl Drop for Writer {
    fn drop(&mut self) {
        self.mirror.close();
    }
}

/// What came after the stop surely does not happen, and is told so.
fn refuse_rest(mut queue: mpsc::Receiver<Job>) {
    queue.close();
    while let Some(job) = queue.blocking_recv() {
        if let Job::Commit { answer, .. } = job {
            let _ = answer.send(Err(TxnError::Unavailable(closed())));
        }
    }
}

/// The first job and what else is waiting, up to a stop.
fn gather(
    first: Job,
    queue: &mut mpsc::Receiver<Job>,
) -> (Vec<(Txn, Answer)>, Option<oneshot::Sender<()>>) {
    let mut group = Vec::new();
    let mut bytes = 0;
    let mut next = Some(first);
    while let Some(job) = next {
        match job {
            Job::Stop { answer } => return (group, Some(answer)),
            Job::Commit { txn, answer } => {
                bytes += txn.ops.iter().map(Op::size).sum::<usize>();
                group.push((txn, answer));
            }
        }
        next = if group.len() < GROUP && bytes < GROUP_BYTES {
            queue.try_recv().ok()
        } else {
            None
        };
    }
    (group, None)
}

/// What a group will do: each transaction sees the mirror and those before it in the group.
struct Plan<'a> {
    mirror: &'a Mirror,
    revision: Revision,
    /// Created and modified of the keys that the group writes; `None` for a deleted key.
    written: HashMap<Arc<str>, Option<(Revision, Revision)>>,
    commits: Vec<Commit>,
}

impl Plan<'_> {
    fn new(mirror: &Mirror) -> Plan<'_> {
        Plan {
            mirror,
            revision: mirror.revision(),
            written: HashMap::new(),
            commits: Vec::new(),
        }
    }

    fn add(&mut self, txn: Txn) -> Result<Revision, TxnError> {
        if let Some(Check { key, .. }) = txn
            .checks
            .into_iter()
            .find(|check| self.modified(&check.key) != check.modified)
        {
            return Err(TxnError::Conflict { key });
        }
        self.revision += 1;
        let changes = txn.ops.into_iter().map(|op| self.change(op)).collect();
        self.commits.push(Commit {
            revision: self.revision,
            changes,
        });
        Ok(self.revision)
    }

    fn change(&mut self, op: Op) -> Change {
        let (key, value) = match op {
            Op::Put { key, value } => (Arc::from(key), Some(value)),
            Op::Delete { key } => (Arc::from(key), None),
        };
        let created = self
            .current(&key)
            .map_or(self.revision, |(created, _)| created);
        let modified = self.revision;
        self.written.insert(
            Arc::clone(&key),
            value.as_ref().map(|_| (created, modified)),
        );
        // A copy of exactly the right size: the caller's may be a slice of something big.
        let entry = |value: Bytes| Entry {
            key: key.clone(),
            value: Bytes::copy_from_slice(&value),
            created,
            modified,
        };
        let now = value.map(entry);
        Change { key, now }
    }

    fn modified(&self, key: &str) -> Revision {
        self.current(key).map_or(0, |(_, modified)| modified)
    }

    fn current(&self, key: &str) -> Option<(Revision, Revision)> {
        match self.written.get(key) {
            Some(written) => *written,
            None => self
                .mirror
                .get(key)
                .map(|entry| (entry.created, entry.modified)),
        }
    }
}
