//! The handle that the API server holds: reads and watches go to the mirror, commits to the engine.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::embedded::Embedded;
use crate::etcd::Etcd;
use crate::health::Health;
use crate::mirror::Mirror;
use crate::types::topic_of;
use crate::{
    Backup, CompactError, Damaged, EmbeddedOptions, Entry, EtcdOptions, OpenError, Outage, Range,
    RangeResult, ReadError, Revision, Txn, TxnError, Watch,
};

/// A transaction has at most so many checks and so many operations. etcd allows 128 of each; one is
/// the store's own.
pub const MAX_TXN_OPS: usize = 127;
/// The keys and values of a transaction have at most so many bytes together: etcd's default limit
/// less the envelope.
pub const MAX_TXN_BYTES: usize = 1_500_000;
/// How often the background task looks whether history is too old.
const TIDY_EVERY: Duration = Duration::from_secs(30);

/// A cheap handle: clones share one store.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    mirror: Arc<Mirror>,
    engine: Engine,
    health: Arc<Health>,
}

enum Engine {
    Embedded(Embedded),
    Etcd(Etcd),
}

impl Store {
    /// Opens the store in a directory of this machine, and makes it if it does not exist.
    pub async fn embedded(dir: &Path, options: EmbeddedOptions) -> Result<Self, OpenError> {
        let health = Arc::new(Health::default());
        let (mirror, engine) = Embedded::open(dir, options, health.clone()).await?;
        Ok(Self::start(mirror, Engine::Embedded(engine), health))
    }

    /// Opens the store that lives under a prefix of an etcd cluster.
    pub async fn etcd(options: EtcdOptions) -> Result<Self, OpenError> {
        let health = Arc::new(Health::default());
        let (mirror, engine) = Etcd::open(options, health.clone()).await?;
        Ok(Self::start(mirror, Engine::Etcd(engine), health))
    }

    fn start(mirror: Arc<Mirror>, engine: Engine, health: Arc<Health>) -> Self {
        let inner = Arc::new(Inner {
            mirror,
            engine,
            health,
        });
        tokio::spawn(tidy(Arc::downgrade(&inner)));
        Self { inner }
    }

    /// Returns after the transaction is durable, visible to reads of this store and, if that is
    /// soon, sent to the watchers.
    pub async fn commit(&self, txn: Txn) -> Result<Revision, TxnError> {
        validate(&txn)?;
        if txn.ops.is_empty() {
            return self.verify(txn).await;
        }
        let revision = match &self.inner.engine {
            Engine::Embedded(engine) => engine.commit(txn).await,
            Engine::Etcd(engine) => engine.commit(txn).await,
        }?;
        self.inner.mirror.heard(revision).await;
        Ok(revision)
    }

    async fn verify(&self, txn: Txn) -> Result<Revision, TxnError> {
        let revision = self.barrier().await.map_err(|error| match error {
            ReadError::Unavailable(outage) => TxnError::Unavailable(outage),
            other => TxnError::Invalid {
                reason: other.to_string(),
            },
        })?;
        match self.inner.mirror.failed_check(&txn.checks) {
            Some(check) => Err(TxnError::Conflict {
                key: check.key.clone(),
            }),
            None => Ok(revision),
        }
    }

    /// Returns when the mirror holds everything that was committed anywhere before the call.
    pub async fn barrier(&self) -> Result<Revision, ReadError> {
        match &self.inner.engine {
            Engine::Embedded(engine) => engine.barrier().map_err(ReadError::Unavailable),
            Engine::Etcd(engine) => engine.barrier().await.map_err(ReadError::Unavailable),
        }
    }

    /// Everything that is stored, at one revision that has all that was committed before the call.
    pub async fn backup(&self) -> Result<Backup, ReadError> {
        self.barrier().await?;
        let RangeResult {
            entries, revision, ..
        } = self.range(Range::default())?;
        Ok(Backup::now(revision, entries))
    }

    /// Whether writes can succeed, or why not. Told by the writes themselves.
    pub fn writable(&self) -> Result<(), Outage> {
        self.inner.health.writable()
    }

    /// Waits until the store can never go on, and says why: what is acknowledged is durable, and
    /// the process has to end.
    pub async fn lost(&self) -> Outage {
        self.inner.health.lost().await
    }

    /// Objects that were found damaged. They are not shown, and cannot be written.
    pub fn damaged(&self) -> &[Damaged] {
        match &self.inner.engine {
            Engine::Embedded(engine) => &engine.damaged,
            Engine::Etcd(_) => &[],
        }
    }

    /// The newest revision that reads show.
    pub fn revision(&self) -> Revision {
        self.inner.mirror.revision()
    }

    /// The oldest revision that can be read or watched from.
    pub fn compacted(&self) -> Revision {
        self.inner.mirror.compacted()
    }

    /// The entry of a key as it is now.
    pub fn get(&self, key: &str) -> Option<Entry> {
        self.inner.mirror.get(key)
    }

    /// The entry of a key as it was at a revision.
    pub fn get_at(&self, key: &str, at: Revision) -> Result<Option<Entry>, ReadError> {
        self.inner.mirror.get_at(key, at)
    }

    /// The entries of a range, in the order of keys.
    pub fn range(&self, range: Range<'_>) -> Result<RangeResult, ReadError> {
        self.inner.mirror.range(range)
    }

    /// The entries of a range, and whether more follow: cheaper than `range`, which counts those.
    pub fn page(&self, range: Range<'_>) -> Result<(Vec<Entry>, bool), ReadError> {
        self.inner.mirror.page(range)
    }

    /// Events under `prefix` with a revision greater than `from`. The prefix holds a whole topic
    /// and its `/`.
    pub fn watch(&self, prefix: &str, from: Revision) -> Result<Watch, ReadError> {
        Watch::open(self.inner.mirror.clone(), prefix, from)
    }

    /// Forgets the history before `at`: it can then neither be read nor watched from.
    pub async fn compact(&self, at: Revision) -> Result<(), CompactError> {
        let current = self.revision();
        if at > current {
            return Err(CompactError::Future {
                revision: at,
                current,
            });
        }
        self.inner.mirror.compact(at);
        self.inner.compact_engine(at).await
    }

    /// Ends all watches and releases the directory or the connections. Commits that were accepted
    /// are finished first.
    pub async fn close(&self) {
        self.inner.mirror.close();
        match &self.inner.engine {
            Engine::Embedded(engine) => engine.close().await,
            Engine::Etcd(engine) => engine.close(),
        }
    }
}

impl Inner {
    async fn compact_engine(&self, at: Revision) -> Result<(), CompactError> {
        match &self.engine {
            Engine::Embedded(_) => Ok(()),
            Engine::Etcd(engine) => engine.compact(at).await.map_err(CompactError::Unavailable),
        }
    }
}

/// Watches may outlive the last handle: they end.
impl Drop for Inner {
    fn drop(&mut self) {
        self.mirror.close();
    }
}

fn validate(txn: &Txn) -> Result<(), TxnError> {
    let size: usize = txn.ops.iter().map(|op| op.size()).sum::<usize>()
        + txn
            .checks
            .iter()
            .map(|check| check.key.len())
            .sum::<usize>();
    for (what, size, limit) in [
        ("operations", txn.ops.len(), MAX_TXN_OPS),
        ("checks", txn.checks.len(), MAX_TXN_OPS),
        ("bytes", size, MAX_TXN_BYTES),
    ] {
        if size > limit {
            return Err(TxnError::TooLarge { what, size, limit });
        }
    }
    let mut written = HashSet::new();
    for key in txn.ops.iter().map(|op| op.key()) {
        if topic_of(key).is_none_or(str::is_empty) {
            return Err(TxnError::Invalid {
                reason: format!("the key {key:?} does not start with a topic and a slash"),
            });
        }
        if !written.insert(key) {
            return Err(TxnError::Invalid {
                reason: format!("the key {key:?} is written twice"),
            });
        }
    }
    Ok(())
}

/// Lets history go when it is too old, until the store is closed or dropped.
async fn tidy(store: Weak<Inner>) {
    let mut done = store.upgrade().map_or(0, |inner| inner.mirror.compacted());
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let Some(inner) = store.upgrade().filter(|inner| !inner.mirror.is_closed()) else {
            return;
        };
        let revision = inner.mirror.compact_due();
        if revision <= done {
            continue;
        }
        match inner.compact_engine(revision).await {
            Ok(()) => done = revision,
            Err(error) => tracing::warn!(%error, revision, "cannot compact"),
        }
    }
}
