//! The embedded engine: one redb file in one directory, written by one thread. Owns opening and
//! closing; the file's layout is in `disk`, the thread in `writer`.

mod disk;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use self::disk::Disk;
use self::writer::{Job, Writer};
use crate::mirror::{HistoryLimits, Mirror};
use crate::{OpenError, Outage, Revision, Txn, TxnError};

#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    pub history: HistoryLimits,
    /// The page cache. Reads never go to disk after the start, so a small one is enough.
    pub cache_bytes: usize,
    /// So many transactions may wait for the writer; more make `commit` wait.
    pub queue: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> EmbeddedOptions {
        EmbeddedOptions {
            history: HistoryLimits::default(),
            cache_bytes: 8 << 20,
            queue: 1024,
        }
    }
}

pub(crate) struct Embedded {
    mirror: Arc<Mirror>,
    jobs: mpsc::Sender<Job>,
}

impl Embedded {
    pub async fn open(
        dir: &Path,
        options: EmbeddedOptions,
    ) -> Result<(Arc<Mirror>, Embedded), OpenError> {
        let dir = dir.to_owned();
        let failed = dir.clone();
        let opened = tokio::task::spawn_blocking(move || open(dir, options)).await;
        opened.map_err(|error| OpenError::Storage {
            path: failed,
            source: error.into(),
        })?
    }

    pub async fn commit(&self, txn: Txn) -> Result<Revision, TxnError> {
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
    pub fn barrier(&self) -> Result<Revision, Outage> {
        if self.mirror.is_closed() {
            Err(closed())
        } else {
            Ok(self.mirror.revision())
        }
    }

    pub async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        if self.jobs.send(Job::Stop { answer }).await.is_ok() {
            // The writer drops the sender if it is already gone, which is what is wanted.
            let _ = answered.await;
        }
    }
}

fn open(dir: PathBuf, options: EmbeddedOptions) -> Result<(Arc<Mirror>, Embedded), OpenError> {
    let (disk, contents) = Disk::open(&dir, options.cache_bytes)?;
    let mirror = Arc::new(Mirror::new(
        contents.revision,
        contents.entries,
        options.history,
    ));
    let (jobs, queue) = mpsc::channel(options.queue.max(1));
    let writer = Writer::new(disk, mirror.clone(), dir.clone(), options.cache_bytes);
    let thread = std::thread::Builder::new()
        .name("portico-store".into())
        .spawn(move || writer.run(queue));
    thread.map_err(|source| OpenError::Storage {
        path: dir,
        source: source.into(),
    })?;
    Ok((mirror.clone(), Embedded { mirror, jobs }))
}

fn closed() -> Outage {
    Outage::new("the store is closed")
}
