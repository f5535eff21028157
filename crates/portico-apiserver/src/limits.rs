//! How much the server takes on at once; beyond that it refuses requests (429) instead of queueing
//! without end.
//!
//! `shares` decides how much each user gets; this part has the lock, and gives back what is
//! dropped.

use crate::metrics::{Metrics, Refused};
use crate::shares::{Flow, Pool};
use portico_api::status::ApiError;
use portico_client::connections;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The largest request body.
pub(crate) const MOST_BODY: usize = 3 * 1024 * 1024;
/// Bodies that are arriving, for each write that may be under way.
const BODIES_PER_WRITE: usize = 8;
/// So few requests under way do not wait for each other.
const FEW: u64 = 4;
/// What those who are refused are told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Who does not wait is held back for so long for each that is held back at the time: telling them
/// takes a part of the processor that does not grow with their number.
const HELD_BACK: Duration = Duration::from_millis(4);
/// For TLS, and for the head of the first request.
const FIRST_REQUEST: Duration = Duration::from_secs(10);
/// The time between two requests of a client that has not authenticated.
const STRANGER_IDLE: Duration = Duration::from_secs(30);

/// How much the server takes on at once.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Reads under way.
    pub reads: usize,
    /// Writes under way.
    pub writes: usize,
    /// Open watches.
    pub watches: usize,
    /// MiB of bodies that arrive and of answers that are not sent yet.
    pub mebibytes: usize,
    /// Connections at a time.
    pub connections: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            watches: 20_000,
            mebibytes: 512,
            connections: 16_384,
        }
    }
}

impl Sizes {
    /// A quarter of all connections may be those of strangers, of which a quarter may come from
    /// one address; one identity may have half.
    pub fn connection_limits(&self) -> connections::Limits {
        let all = self.connections.max(1);
        connections::Limits {
            all,
            strangers: all.div_ceil(4),
            of_one_peer: all.div_ceil(16),
            of_one_identity: all.div_ceil(2),
            first_request: FIRST_REQUEST,
            idle: STRANGER_IDLE,
        }
    }
}

/// What there is only so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Read,
    Write,
    Watch,
    /// A request body that is arriving.
    Body,
    /// Bodies and answers in memory.
    Bytes,
}

impl Load {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Watch => "watches",
            Self::Body => "bodies",
            Self::Bytes => "bytes",
        }
    }
}

pub(crate) struct Limits {
    pools: [Mutex<Pool>; 5],
    held_back: AtomicU32,
    metrics: Arc<Metrics>,
}

impl Limits {
    pub(crate) fn new(sizes: Sizes, metrics: Arc<Metrics>) -> Arc<Self> {
        let pool = |size: usize| Mutex::new(Pool::new(size as u64));
        Arc::new(Self {
            pools: [
                pool(sizes.reads),
                pool(sizes.writes),
                pool(sizes.watches),
                pool(sizes.writes.saturating_mul(BODIES_PER_WRITE)),
                pool(sizes.mebibytes.saturating_mul(1 << 20)),
            ],
            held_back: AtomicU32::new(0),
            metrics,
        })
    }

    /// A share for this request, kept until it is dropped; or 429.
    pub(crate) fn take(
        self: &Arc<Self>,
        flow: &Flow,
        load: Load,
        amount: usize,
    ) -> Result<Share, Full> {
        if self.pool(load).take(flow, amount as u64) {
            return Ok(self.share(flow, load, amount));
        }
        Err(self.full(flow, load))
    }

    /// Would there be room? For what is better refused before it costs anything.
    pub(crate) fn check(&self, flow: &Flow, load: Load) -> Result<(), Full> {
        match self.pool(load).has_room(flow, 1) {
            true => Ok(()),
            false => Err(self.full(flow, load)),
        }
    }

    /// A share for what cannot be refused any more.
    pub(crate) fn charge(self: &Arc<Self>, flow: &Flow, load: Load, amount: usize) -> Share {
        self.pool(load).charge(flow, amount as u64);
        self.share(flow, load, amount)
    }

    /// Wait behind the requests that were let in before. How long that takes decides how many are
    /// let in at a time: what is let in is done soon, and the rest is refused before it costs much.
    pub(crate) async fn line_up(&self, load: Load) {
        if self.pool(load).used() < FEW {
            return;
        }
        let since = Instant::now();
        tokio::task::yield_now().await;
        self.pool(load).waited(since.elapsed());
    }

    /// Somebody is refused on this connection. The first time they are told at once; if they come
    /// again before they should, they are told later.
    pub(crate) async fn hold_back(&self, last: &LastRefusal) {
        let held = HeldBack::new(&self.held_back);
        let pause = pause(last.age(), held.count);
        if pause > Duration::ZERO {
            tokio::time::sleep(pause).await;
        }
        last.note();
    }

    fn share(self: &Arc<Self>, flow: &Flow, load: Load, amount: usize) -> Share {
        Share {
            limits: Arc::clone(self),
            flow: flow.clone(),
            load,
            amount: amount as u64,
        }
    }

    fn full(&self, flow: &Flow, load: Load) -> Full {
        self.metrics.refused(Refused {
            priority_level: flow.level.name(),
            reason: load.name(),
        });
        Full(load)
    }

    fn pool(&self, load: Load) -> MutexGuard<'_, Pool> {
        self.pools[load as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// When somebody was last refused on a connection.
#[derive(Debug, Default)]
pub(crate) struct LastRefusal(Mutex<Option<Instant>>);

impl LastRefusal {
    fn age(&self) -> Option<Duration> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|last| last.elapsed())
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// How much later somebody is told who was refused so long ago, where so many are held back.
fn pause(refused: Option<Duration>, held_back: u32) -> Duration {
    match refused {
        Some(ago) if ago < RETRY_AFTER => RETRY_AFTER.min(HELD_BACK * held_back),
        _ => Duration::ZERO,
    }
}

/// One more that is held back, until it is dropped.
struct HeldBack<'a> {
    all: &'a AtomicU32,
    /// How many there are with this one.
    count: u32,
}

impl<'a> HeldBack<'a> {
    fn new(all: &'a AtomicU32) -> Self {
        let count = all.fetch_add(1, Ordering::Relaxed) + 1;
        Self { all, count }
    }
}

impl Drop for HeldBack<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// There was no room.
#[derive(Debug)]
pub struct Full(Load);

impl From<Full> for ApiError {
    fn from(Full(load): Full) -> Self {
        let text = match load {
            Load::Bytes => "the server has as many bytes of answers and bodies for you in memory \
                            as it takes: take the answers that are under way, or ask for less at \
                            a time with limit="
                .to_owned(),
            load => format!(
                "the server has as many {} of yours under way as it takes, please try again",
                load.name()
            ),
        };
        Self::too_many_requests(text, RETRY_AFTER.as_secs())
    }
}

/// What was taken from a pool; given back when dropped.
pub(crate) struct Share {
    limits: Arc<Limits>,
    flow: Flow,
    load: Load,
    amount: u64,
}

impl Share {
    /// Take more, if there is room.
    pub(crate) fn grow(&mut self, by: usize) -> Result<(), Full> {
        if !self.limits.pool(self.load).take(&self.flow, by as u64) {
            return Err(self.limits.full(&self.flow, self.load));
        }
        self.amount += by as u64;
        Ok(())
    }

    /// It turned out to be so much.
    pub(crate) fn settle(&mut self, amount: usize) {
        let (amount, before) = (amount as u64, self.amount);
        let mut pool = self.limits.pool(self.load);
        match amount.checked_sub(before) {
            Some(more) => pool.charge(&self.flow, more),
            None => pool.give(&self.flow, before - amount),
        }
        drop(pool);
        self.amount = amount;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.limits.pool(self.load).give(&self.flow, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_api::gates::Gates;

    fn metrics() -> Arc<Metrics> {
        Arc::new(Metrics::new(&Gates::default()))
    }

    #[test]
    fn a_full_server_says_when_to_come_back() {
        let sizes = Sizes {
            reads: 1,
            watches: 0,
            ..Sizes::default()
        };
        let (limits, flow) = (Limits::new(sizes, metrics()), Flow::own());
        let first = limits.take(&flow, Load::Read, 1);
        assert!(first.is_ok() && limits.check(&flow, Load::Read).is_err());
        let error = ApiError::from(limits.take(&flow, Load::Read, 1).map(drop).unwrap_err());
        assert_eq!(
            (error.code, error.details.get("retryAfterSeconds")),
            (429, Some(&1.into()))
        );
        drop(first);
        assert!(limits.take(&flow, Load::Read, 1).is_ok());
        assert!(limits.take(&flow, Load::Watch, 1).is_err());
    }

    #[test]
    fn who_comes_again_too_soon_is_told_later() {
        let soon = Some(RETRY_AFTER / 2);
        assert_eq!(pause(None, 1_000), Duration::ZERO);
        assert_eq!(pause(Some(RETRY_AFTER), 1_000), Duration::ZERO);
        assert_eq!(pause(soon, 1), HELD_BACK);
        assert_eq!(pause(soon, 10), 10 * HELD_BACK);
        assert_eq!(pause(soon, 1_000), RETRY_AFTER);
    }

    #[test]
    fn a_share_gives_back_what_it_came_to() {
        let (limits, flow) = (Limits::new(Sizes::default(), metrics()), Flow::own());
        let level = flow.level;
        let in_use = || limits.pool(Load::Bytes).in_use(level);
        let mut share = limits.take(&flow, Load::Bytes, 100).unwrap();
        share.grow(50).unwrap();
        assert_eq!(in_use(), 150);
        share.settle(20);
        assert_eq!(in_use(), 20);
        share.settle(200);
        assert_eq!(in_use(), 200);
        assert!(share.grow(1 << 40).is_err());
        drop(share);
        assert_eq!(in_use(), 0);
    }
}
