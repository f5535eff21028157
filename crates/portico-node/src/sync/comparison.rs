//! When the whole table is compared with what the kernel has: at start, after a failure, when
//! another program changed our rules, and from time to time.

use crate::aligned_timer::AlignedTimer;
use portico_client::wait::Backoff;
use std::time::{Duration, Instant};

/// Rules that another program changes again and again are compared at most this often, so that a
/// program in a loop cannot keep the thread busy.
pub(super) const CALM: Duration = Duration::from_millis(200);

pub(super) struct Comparison {
    /// When it was asked for, if it was.
    asked: Option<Instant>,
    /// When the kernel was last known to have everything.
    matched: Instant,
    /// When the next periodic comparison is due.
    next_round: Instant,
    period: Duration,
    timer: AlignedTimer,
    backoff: Backoff,
    /// Something was tried that failed, so that differences need not be another program's work.
    half_done: bool,
}

impl Comparison {
    /// The first is due at once.
    pub(super) fn new(now: Instant, period: Duration, timer: AlignedTimer) -> Self {
        Self {
            asked: Some(now),
            matched: now,
            next_round: now,
            period,
            timer,
            backoff: Backoff::of_nodes(),
            half_done: false,
        }
    }

    pub(super) fn asked(&self) -> Option<Instant> {
        self.asked
    }

    pub(super) fn due(&self) -> Instant {
        self.asked.unwrap_or(self.next_round)
    }

    /// Due because of the time alone.
    pub(super) fn is_routine(&self, now: Instant) -> bool {
        self.asked.is_none() && self.next_round <= now
    }

    /// The last one failed, and another follows when its time has come.
    pub(super) fn is_failing(&self) -> bool {
        self.backoff.is_failing()
    }

    /// Asks for a comparison: everything may have changed. After a failure the next attempt still
    /// waits for its time.
    pub(super) fn ask(&mut self, now: Instant) {
        if !self.is_failing() {
            self.asked = Some(now);
        }
    }

    /// Asks for a comparison at this time, unless one is due already.
    pub(super) fn ask_once(&mut self, at: Instant) {
        self.asked.get_or_insert(at);
    }

    /// Another program changed our rules.
    pub(super) fn disturbed(&mut self, now: Instant) {
        self.ask_once(now.max(self.matched + CALM));
    }

    /// Asks for a comparison after something else failed half-way.
    pub(super) fn broken(&mut self, now: Instant) {
        self.half_done = true;
        self.asked = Some(now);
    }

    /// The kernel has everything, as far as is known.
    pub(super) fn matches(&mut self, now: Instant) {
        self.matched = now;
        self.next_round = self.timer.next(now, self.period);
    }

    /// The table is in the kernel. Says whether differences that were found may be what a failure
    /// of ours left.
    pub(super) fn succeeded(&mut self, now: Instant) -> bool {
        self.asked = None;
        self.matches(now);
        self.backoff.reset();
        std::mem::take(&mut self.half_done)
    }

    /// How long until the next attempt.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        let again = self.backoff.next_wait();
        self.broken(now + again);
        again
    }
}
