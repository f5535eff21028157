//! The embedded engine: one redb file in one directory, written by one thread. Owns opening and
//! closing; the file's layout is in `disk`, the thread in `writer`, work on a store that no server
//! has open in `offline`.

mod backend;
mod disk;
mod guard;
mod mark;
pub(crate) mod offline;
mod record;
mod salvage;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use self::disk::{Contents, Disk, Start};
use self::writer::{Job, StoreFiles, Writer};
use crate::health::Health;
use crate::mirror::{HistoryLimits, Mirror};
use crate::{Damaged, OpenError, Outage, Revision, Txn, TxnError};

/// How an embedded store is opened.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    /// How much of the past is kept for watches.
    pub history: HistoryLimits,
    /// The page cache. Reads never go to disk after the start, so a small one is enough.
    pub cache_bytes: usize,
    /// So many transactions may wait for the writer; more make `commit` wait.
    pub queue: usize,
    /// Make a new store where there was one that is gone. An error if there is one.
    pub anew: bool,
    /// There was a store before, whatever its directory says.
    pub expected: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            history: HistoryLimits::default(),
            cache_bytes: 8 << 20,
            queue: 1024,
            anew: false,
            expected: false,
        }
    }
}

pub(crate) struct Embedded {
    mirror: Arc<Mirror>,
    jobs: mpsc::Sender<Job>,
    pub damaged: Arc<[Damaged]>,
}

impl Embedded {
    pub(crate) async fn open(
        dir: &Path,
        options: EmbeddedOptions,
        health: Arc<Health>,
    ) -> Result<(Arc<Mirror>, Self), OpenError> {
        let dir = dir.to_owned();
        let failed = dir.clone();
        let opened = tokio::task::spawn_blocking(move || open(dir, options, health)).await;
        opened.map_err(|error| OpenError::Storage {
            path: failed,
            source: error.into(),
        })?
    }

    pub(crate) async fn commit(&self, txn: Txn) -> Result<Revision, TxnError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.jobs.send(Job::Commit { txn, answer }).await;
        sent.map_err(|_| TxnError::Unavailable(closed()))?;
        let lost = |_| {
            Err(TxnError::Unavailable(Outage::unknown(
                "the store was closed",
            )))
        };
        answered.await.unwrap_or_else(lost)
    }

    /// A commit is published before it is answered, so the mirror always holds everything.
    pub(crate) fn barrier(&self) -> Result<Revision, Outage> {
        if self.mirror.is_closed() {
            Err(closed())
        } else {
            Ok(self.mirror.revision())
        }
    }

    pub(crate) async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        if self.jobs.send(Job::Stop { answer }).await.is_ok() {
            // The writer drops the sender if it is already gone, which is what is wanted.
            let _ = answered.await;
        }
    }
}

/// The directory of a store, as the writer opens it again after the disk was full.
struct Directory {
    dir: PathBuf,
    cache_bytes: usize,
}

impl StoreFiles for Directory {
    fn open(&self) -> Result<(Disk, Contents), OpenError> {
        Disk::open(&self.dir, self.cache_bytes, Start::Again)
    }

    /// Opening reads everything, so room is looked for with a file beside it.
    fn has_room(&self) -> io::Result<()> {
        disk::write_something(&self.dir)
    }
}

fn open(
    dir: PathBuf,
    options: EmbeddedOptions,
    health: Arc<Health>,
) -> Result<(Arc<Mirror>, Embedded), OpenError> {
    let start = match options {
        EmbeddedOptions { anew: true, .. } => Start::Anew,
        EmbeddedOptions { expected: true, .. } => Start::Again,
        _ => Start::First,
    };
    let (disk, contents) = Disk::open(&dir, options.cache_bytes, start)?;
    let damaged: Arc<[Damaged]> = contents.damaged.into_iter().map(|(key, _)| key).collect();
    let mirror = Arc::new(Mirror::new(
        contents.revision,
        contents.entries,
        options.history,
    ));
    let (jobs, queue) = mpsc::channel(options.queue.max(1));
    let place = Directory {
        dir: dir.clone(),
        cache_bytes: options.cache_bytes,
    };
    let writer = Writer::new(
        disk,
        mirror.clone(),
        Box::new(place),
        health,
        damaged.clone(),
    );
    let thread = std::thread::Builder::new()
        .name("portico-store".into())
        .spawn(move || writer.run(queue));
    thread.map_err(|source| OpenError::Storage {
        path: dir,
        source: source.into(),
    })?;
    let embedded = Embedded {
        mirror: mirror.clone(),
        jobs,
        damaged,
    };
    Ok((mirror, embedded))
}

fn closed() -> Outage {
    Outage::new("the store is closed")
}
