//! The one thread that writes. It drains the queue into one disk transaction (group commit),
//! publishes what became durable, and only then answers. If the disk fails, nothing is published.
//!
//! A disk that is full is waited for: the file is opened anew once there is room. After any other
//! failure this process can no longer know what is on the disk, because the kernel takes pages that
//! it could not write for written: the store is lost, and the process that opened it has to end.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::backend::Fault;
use super::closed;
use super::disk::{Contents, Disk};
use crate::health::Health;
use crate::mirror::{Change, Commit, Mirror};
use crate::{Check, Damaged, Entry, Op, OpenError, Outage, Revision, Txn, TxnError};

/// At most so many transactions, or so many bytes, share one sync of the disk.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 8 << 20;
/// How often a full disk is asked whether there is room, and how soon a write is refused meanwhile.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(1);
const REFUSE_WITHIN: Duration = Duration::from_millis(20);

type Answer = oneshot::Sender<Result<Revision, TxnError>>;

pub(super) enum Job {
    Commit { txn: Txn, answer: Answer },
    Stop { answer: oneshot::Sender<()> },
}

/// The files of a store: where it is opened again after its disk was full.
pub(super) trait StoreFiles: Send {
    fn open(&self) -> Result<(Disk, Contents), OpenError>;

    /// Whether a small write would find room.
    fn has_room(&self) -> io::Result<()>;
}

pub(super) struct Writer {
    mirror: Arc<Mirror>,
    place: Box<dyn StoreFiles>,
    health: Arc<Health>,
    /// Keys whose records are damaged: what they hold is not known, so nothing may build on it.
    damaged: HashSet<String>,
    disk: State,
}

enum State {
    Open(Disk),
    /// The disk is full. What the failed write left behind is known after opening the file again.
    Full(Outage),
    Lost,
}

impl Writer {
    pub(super) fn new(
        disk: Disk,
        mirror: Arc<Mirror>,
        place: Box<dyn StoreFiles>,
        health: Arc<Health>,
        damaged: Arc<[Damaged]>,
    ) -> Self {
        Self {
            mirror,
            place,
            health,
            damaged: damaged.iter().map(|found| found.key.clone()).collect(),
            disk: State::Open(disk),
        }
    }

    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        while let Some(job) = self.next(&mut queue) {
            let (group, stop) = gather(job, &mut queue);
            self.commit(group);
            if stop.is_some() || matches!(self.disk, State::Lost) {
                refuse_rest(queue);
                // The lock must be gone before the answer. The receiver may be gone, which is no
                // error.
                drop(self);
                if let Some(answer) = stop {
                    let _ = answer.send(());
                }
                return;
            }
        }
    }

    /// Waits for work. While the disk is full it looks for room as well.
    fn next(&mut self, queue: &mut mpsc::Receiver<Job>) -> Option<Job> {
        let mut looked = Instant::now();
        while matches!(self.disk, State::Full(_)) {
            match queue.try_recv() {
                Ok(job) => return Some(job),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => std::thread::sleep(REFUSE_WITHIN),
            }
            if looked.elapsed() >= LOOK_FOR_ROOM {
                self.recover();
                looked = Instant::now();
            }
        }
        queue.blocking_recv()
    }

    fn commit(&mut self, group: Vec<(Txn, Answer)>) {
        if let State::Full(outage) = &self.disk {
            for (_, answer) in group {
                let _ = answer.send(Err(TxnError::Unavailable(outage.clone())));
            }
            return;
        }
        let mut plan = Plan::new(&self.mirror, &self.damaged);
        let planned: Vec<_> = group
            .into_iter()
            .map(|(txn, answer)| (plan.add(txn), answer))
            .collect();
        let commits = plan.commits;
        let outage = self.persist(commits).err();
        for (result, answer) in planned {
            let result = match (&outage, result) {
                (Some(outage), Ok(_)) => Err(TxnError::Unavailable(outage.clone())),
                (_, result) => result,
            };
            // A caller that no longer waits has given up on the answer.
            let _ = answer.send(result);
        }
    }

    /// Opens the file again if there is room, and shows what is really in it.
    fn recover(&mut self) {
        if self.place.has_room().is_err() {
            return;
        }
        let (
            mut disk,
            Contents {
                revision, entries, ..
            },
        ) = match self.place.open() {
            Ok(opened) => opened,
            Err(error) if is_full(&error) => return,
            Err(error) => return self.lose(&Outage::new("the disk failed").because(error)),
        };
        self.mirror.replace(revision, entries);
        match disk.probe() {
            Ok(()) => {
                self.disk = State::Open(disk);
                self.health.set_writable();
            }
            Err(Fault::Full(_)) => {}
            Err(Fault::Lost(text)) => self.lose(&failed(&text)),
        }
    }

    fn persist(&mut self, commits: Vec<Commit>) -> Result<(), Outage> {
        let State::Open(disk) = &mut self.disk else {
            return Err(closed());
        };
        if commits.is_empty() {
            return Ok(());
        }
        match disk.write(&commits) {
            Ok(()) => {
                self.mirror.publish(commits);
                Ok(())
            }
            Err(Fault::Full(text)) => {
                let outage = Outage::new(format!("no room on the disk: {text}; free some space"));
                self.health.set_blocked(&outage);
                self.disk = State::Full(outage);
                Err(Outage::unknown(format!("no room on the disk: {text}")))
            }
            Err(Fault::Lost(text)) => {
                self.lose(&failed(&text));
                Err(Outage::unknown(format!("the disk failed: {text}")))
            }
        }
    }

    fn lose(&mut self, outage: &Outage) {
        self.disk = State::Lost;
        self.health.set_lost(outage);
    }
}

fn failed(text: &str) -> Outage {
    Outage::new(format!(
        "the disk failed: {text}; every acknowledged write is on it, but this process can no \
         longer tell what else is: it ends. Look at the disk (dmesg, smartctl), then start again"
    ))
}

/// Whether an error comes from a disk that has no room.
fn is_full(error: &(dyn StdError + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let kind = |error: &(dyn StdError + 'static)| match error.downcast_ref::<redb::Error>() {
        Some(redb::Error::Io(error)) => Some(error.kind()),
        _ => error.downcast_ref::<io::Error>().map(io::Error::kind),
    };
    causes.filter_map(kind).any(|kind| {
        matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    })
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
    damaged: &'a HashSet<String>,
    revision: Revision,
    /// Created and modified of the keys that the group writes; `None` for a deleted key.
    written: HashMap<Arc<str>, Option<(Revision, Revision)>>,
    commits: Vec<Commit>,
}

impl Plan<'_> {
    fn new<'a>(mirror: &'a Mirror, damaged: &'a HashSet<String>) -> Plan<'a> {
        Plan {
            mirror,
            damaged,
            revision: mirror.revision(),
            written: HashMap::new(),
            commits: Vec::new(),
        }
    }

    fn add(&mut self, txn: Txn) -> Result<Revision, TxnError> {
        let checked = txn.checks.iter().map(|check| check.key.as_str());
        let mut keys = checked.chain(txn.ops.iter().map(Op::key));
        if let Some(key) = keys.find(|key| self.damaged.contains(*key)) {
            return Err(TxnError::Damaged { key: key.into() });
        }
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
