//! The in-memory picture of the store that serves every read and every watch. Owns the lock, the
//! clock and the wakers; the rules are in `state`. One engine at a time publishes into it, in
//! revision order.

mod chain;
mod delivery;
mod history;
mod state;
#[cfg(test)]
mod tests;
mod topics;

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use tokio::sync::watch;

pub(crate) use self::delivery::Listener;
use self::delivery::{Delivery, TopicWatchers};
pub use self::history::HistoryLimits;
use self::state::State;
use self::topics::Woken;
use crate::{Check, Entry, Event, Range, RangeResult, ReadError, Revision, WatchError};

/// What one revision changed.
#[derive(Debug)]
pub(crate) struct Commit {
    pub revision: Revision,
    pub changes: Vec<Change>,
}

/// One key's new entry, or `None` for a deletion.
#[derive(Debug)]
pub(crate) struct Change {
    pub key: Arc<str>,
    pub now: Option<Entry>,
}

/// What a watcher gets at once, and where it stands behind that.
pub(crate) struct Batch {
    pub events: Vec<Arc<Event>>,
    pub position: Revision,
}

/// What a watcher needs to follow a topic.
pub(crate) struct Subscription {
    pub watchers: Arc<TopicWatchers>,
    pub generation: u64,
}

pub(crate) struct Mirror {
    state: RwLock<State>,
    /// The newest published revision, or `None` once closed.
    progress: watch::Sender<Option<Revision>>,
    /// The newest revision, and the watchers that have received it so far.
    newest: Mutex<(Revision, Option<Arc<Delivery>>)>,
}

impl Mirror {
    pub(crate) fn new(
        revision: Revision,
        entries: impl IntoIterator<Item = Entry>,
        limits: HistoryLimits,
    ) -> Self {
        let state = RwLock::new(State::new(revision, entries, limits));
        Self {
            state,
            progress: watch::Sender::new(Some(revision)),
            newest: Mutex::new((revision, None)),
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        self.read().revision()
    }

    pub(crate) fn compacted(&self) -> Revision {
        self.read().compacted()
    }

    pub(crate) fn get(&self, key: &str) -> Option<Entry> {
        self.read().get(key)
    }

    pub(crate) fn get_at(&self, key: &str, at: Revision) -> Result<Option<Entry>, ReadError> {
        self.read().get_at(key, at)
    }

    pub(crate) fn range(&self, range: Range<'_>) -> Result<RangeResult, ReadError> {
        self.read().range(range)
    }

    pub(crate) fn page(&self, range: Range<'_>) -> Result<(Vec<Entry>, bool), ReadError> {
        self.read().page(range)
    }

    /// The first of the checks that does not hold now.
    pub(crate) fn failed_check<'a>(&self, checks: &'a [Check]) -> Option<&'a Check> {
        let state = self.read();
        checks
            .iter()
            .find(|check| state.get(&check.key).map_or(0, |entry| entry.modified) != check.modified)
    }

    /// Makes commits visible, all at once, and wakes the watchers.
    pub(crate) fn publish(&self, commits: Vec<Commit>) {
        let now = Instant::now();
        let mut woken = Woken::default();
        let mut state = self.write();
        commits
            .into_iter()
            .for_each(|commit| state.apply(commit, now, &mut woken));
        let revision = state.revision();
        drop(state);
        self.wake(revision, woken);
    }

    /// Takes over contents read as a whole. If they are what the mirror shows already, watches go
    /// on.
    pub(crate) fn replace(&self, revision: Revision, entries: Vec<Entry>) {
        let mut state = self.write();
        if revision >= state.revision() && state.shows(&entries) {
            state.apply(
                Commit {
                    revision,
                    changes: Vec::new(),
                },
                Instant::now(),
                &mut Woken::default(),
            );
        } else {
            state.replace(revision, entries);
        }
        let woken = state.everybody();
        drop(state);
        self.wake(revision, woken);
    }

    fn wake(&self, revision: Revision, woken: Woken) {
        let delivery = woken.wake();
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = (revision, Some(delivery));
        self.progress
            .send_modify(|progress| *progress = progress.and(Some(revision)));
    }

    /// Waits a little until the watchers have received what `revision` changed, unless there is
    /// something newer.
    pub(crate) async fn heard(&self, revision: Revision) {
        let newest = self
            .newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let (newest, Some(delivery)) = newest
            && newest == revision
        {
            delivery.wait().await;
        }
    }

    /// Waits until `revision` is visible. False if the mirror was closed before.
    pub(crate) async fn reached(&self, revision: Revision) -> bool {
        let mut progress = self.progress.subscribe();
        let reached = progress
            .wait_for(|now| now.is_none_or(|now| now >= revision))
            .await;
        reached.is_ok_and(|now| now.is_some())
    }

    pub(crate) fn compact(&self, revision: Revision) {
        self.write().compact(revision);
    }

    /// Compacts what the limits say is due now, and tells how far the mirror is compacted.
    pub(crate) fn compact_due(&self) -> Revision {
        let mut state = self.write();
        if let Some(due) = state.due(Instant::now()) {
            state.compact(due);
        }
        state.compacted()
    }

    pub(crate) fn subscribe(
        &self,
        prefix: &str,
        from: Revision,
    ) -> Result<Subscription, ReadError> {
        self.write().subscribe(prefix, from)
    }

    pub(crate) fn events(
        &self,
        prefix: &str,
        position: Revision,
        generation: u64,
    ) -> Result<Batch, WatchError> {
        self.read().events(prefix, position, generation)
    }

    pub(crate) fn seen(&self, prefix: &str, position: Revision, generation: u64) -> Revision {
        self.read().seen(prefix, position, generation)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.progress.borrow().is_none()
    }

    pub(crate) fn close(&self) {
        self.progress.send_replace(None);
        let woken = self.read().everybody();
        woken.wake();
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
