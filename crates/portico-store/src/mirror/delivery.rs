//! A writer is answered after the watchers have the change, where that takes no longer than 2 ms: a
//! client that goes on when it has its answer then finds that its change has arrived. This is an
//! order, not a promise: a watcher that does not read is not waited for, and a write that follows
//! at once ends the waiting of the one before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// An answer to a writer waits no longer than this for watchers.
const PATIENCE: Duration = Duration::from_millis(2);

/// The watchers of a topic: wakes them, and counts those that will say when they have a change.
pub(crate) struct TopicWatchers {
    wake: watch::Sender<Arc<Delivery>>,
    /// Watchers that wait and will confirm what they are woken for.
    waiting: AtomicUsize,
}

impl Default for TopicWatchers {
    fn default() -> Self {
        Self {
            wake: watch::Sender::new(Arc::new(Delivery::of(0))),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl TopicWatchers {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn wake(&self, delivery: &Arc<Delivery>) {
        // Some watchers see only the later of two changes, so nothing waits for the first.
        self.wake.send_replace(Arc::clone(delivery)).end();
    }
}

/// A change on its way to the watchers that waited for it.
pub(crate) struct Delivery {
    missing: AtomicUsize,
    over: Notify,
}

impl Delivery {
    pub(super) fn of(waiting: usize) -> Self {
        Self {
            missing: AtomicUsize::new(waiting),
            over: Notify::new(),
        }
    }

    fn confirm(&self) {
        let one_less = |missing: usize| missing.checked_sub(1);
        if self
            .missing
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less)
            == Ok(1)
        {
            self.over.notify_one();
        }
    }

    fn end(&self) {
        if self.missing.swap(0, Ordering::AcqRel) > 0 {
            self.over.notify_one();
        }
    }

    /// Waits until all watchers have confirmed. Only the writer waits for it.
    pub(super) async fn wait(&self) {
        if self.missing.load(Ordering::Acquire) > 0 {
            // A change that takes longer arrives all the same.
            let _ = timeout(PATIENCE, self.over.notified()).await;
        }
    }
}

/// One watcher of a topic.
pub(crate) struct Listener {
    watchers: Arc<TopicWatchers>,
    wake: watch::Receiver<Arc<Delivery>>,
    /// Whether it says when it has a change.
    confirms: bool,
    /// What it has not confirmed yet.
    open: Option<Arc<Delivery>>,
}

impl Listener {
    pub(crate) fn of(watchers: Arc<TopicWatchers>) -> Self {
        Self {
            wake: watchers.wake.subscribe(),
            watchers,
            confirms: false,
            open: None,
        }
    }

    pub(crate) fn confirm(&mut self) {
        self.confirms = true;
    }

    /// Changes before this moment are known to it.
    pub(crate) fn forget(&mut self) {
        self.wake.mark_unchanged();
    }

    /// Waits for a change. A watcher that waits again has taken what it was woken for before.
    pub(crate) async fn listen(&mut self) {
        if self.open.is_some() {
            self.pass_on();
        }
        let waiting = self.confirms.then(|| WaitingWatcher::take(&self.watchers));
        // The sender cannot be gone: it is part of `self.watchers`.
        let _ = self.wake.changed().await;
        self.open = waiting.map(|_| Arc::clone(&self.wake.borrow()));
    }

    fn pass_on(&mut self) {
        if let Some(open) = self.open.take() {
            open.confirm();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.pass_on();
    }
}

/// Counts a watcher as waiting for as long as this lives.
struct WaitingWatcher<'a>(&'a TopicWatchers);

impl WaitingWatcher<'_> {
    fn take(watchers: &TopicWatchers) -> WaitingWatcher<'_> {
        watchers.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingWatcher(watchers)
    }
}

impl Drop for WaitingWatcher<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
