//! Who writes is answered after those who watch have been told, if that is soon: a client that goes
//! on when it has its answer then finds that the change has arrived. It is an order, not a promise.
//! Who watches and does not read is not waited for, nor is anybody while others write, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// No answer is later than by this.
const PATIENCE: Duration = Duration::from_millis(2);

/// Wakes those who follow a topic.
pub(crate) struct Bell {
    wake: watch::Sender<Arc<Hearing>>,
    /// Those who wait and will say that they have heard.
    waiting: AtomicUsize,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell {
            wake: watch::Sender::new(Arc::new(Hearing::of(0))),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl Bell {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn ring(&self, hearing: &Arc<Hearing>) {
        // Of two at once the first is not seen by everybody any more.
        self.wake.send_replace(Arc::clone(hearing)).end();
    }
}

/// How far a change has come among those who waited for it.
pub(crate) struct Hearing {
    missing: AtomicUsize,
    over: Notify,
}

impl Hearing {
    pub(super) fn of(waiting: usize) -> Hearing {
        Hearing {
            missing: AtomicUsize::new(waiting),
            over: Notify::new(),
        }
    }

    fn heard(&self) {
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

    /// Waits until all have heard. One at a time waits for it: the writer.
    pub async fn wait(&self) {
        if self.missing.load(Ordering::Acquire) > 0 {
            // Too late is no harm.
            let _ = timeout(PATIENCE, self.over.notified()).await;
        }
    }
}

/// One that follows a topic.
pub(crate) struct Listener {
    bell: Arc<Bell>,
    wake: watch::Receiver<Arc<Hearing>>,
    /// Does it say when it has heard?
    confirms: bool,
    /// What it has not confirmed yet.
    open: Option<Arc<Hearing>>,
}

impl Listener {
    pub fn of(bell: Arc<Bell>) -> Listener {
        Listener {
            wake: bell.wake.subscribe(),
            bell,
            confirms: false,
            open: None,
        }
    }

    pub fn confirm(&mut self) {
        self.confirms = true;
    }

    /// Whatever rang before is known.
    pub fn forget(&mut self) {
        self.wake.mark_unchanged();
    }

    /// Waits for the bell. One that waits again has taken what it was woken for before.
    pub async fn listen(&mut self) {
        if self.open.is_some() {
            self.pass_on();
        }
        let place = self.confirms.then(|| Place::take(&self.bell));
        // It cannot be that nobody rings any more: the bell is here.
        let _ = self.wake.changed().await;
        self.open = place.map(|_| Arc::clone(&self.wake.borrow()));
    }

    fn pass_on(&mut self) {
        if let Some(open) = self.open.take() {
            open.heard();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.pass_on();
    }
}

/// A place among those who wait.
struct Place<'a>(&'a Bell);

impl Place<'_> {
    fn take(bell: &Bell) -> Place<'_> {
        bell.waiting.fetch_add(1, Ordering::Relaxed);
        Place(bell)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
