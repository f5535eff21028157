//! How long to wait: before something is tried again, and until a moment that may never come.

use kube::runtime::utils::Backoff as KubeBackoff;
use std::future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The waits between the tries of what fails: each twice as long as the one before, up to a bound.
/// Chance takes up to half of each, so that those that failed together do not return together.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// For what a cluster has a few of, and people wait for.
    pub const fn of_controllers() -> Self {
        Self::new(Duration::from_millis(20), Duration::from_secs(2))
    }

    /// For what runs on every node: thousands must not keep an API server from coming back.
    pub const fn of_nodes() -> Self {
        Self::new(Duration::from_millis(250), Duration::from_secs(30))
    }

    /// What was tried worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The last try failed.
    pub fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// The time until the next try, after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let wait = doubled(self.first, self.failures, self.longest);
        self.failures = self.failures.saturating_add(1);
        wait.mul_f64(0.5 + fraction() / 2.0)
    }

    /// Waits after one more failure.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.next_wait()).await;
    }
}

/// `first`, doubled so many times, and at most `longest`.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first
        .saturating_mul(2_u32.saturating_pow(times))
        .min(longest)
}

/// From 0 to 1, by chance.
pub fn fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// Until then, or for ever.
pub async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => future::pending().await,
    }
}

/// After this long without a failure, the next one counts as the first.
const CALM: Duration = Duration::from_secs(10);

/// A [`Backoff`] for a watch of `kube`. That calls a watch a success when it begins to list, before
/// the server has been asked: here, only time without a failure is a success.
#[derive(Debug)]
pub(crate) struct WatchBackoff {
    backoff: Backoff,
    last: Option<Instant>,
}

impl WatchBackoff {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            last: None,
        }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.last.is_none_or(|last| last.elapsed() > CALM) {
            self.backoff.reset();
        }
        let wait = self.backoff.next_wait();
        // The wait itself is no time without a failure.
        self.last = Instant::now().checked_add(wait);
        Some(wait)
    }
}

impl KubeBackoff for WatchBackoff {
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_shortened_by_at_most_half() {
        let (first, longest) = (Duration::from_millis(250), Duration::from_secs(30));
        let mut backoff = Backoff::new(first, longest);
        assert!(!backoff.is_failing());
        for failures in 0..40 {
            let most = doubled(first, failures, longest);
            let wait = backoff.next_wait();
            assert!(wait <= most && wait >= most / 2, "{failures}: {wait:?}");
        }
        assert!(backoff.is_failing());
        assert_eq!(doubled(first, 39, longest), longest);
        assert_eq!(doubled(first, 2, longest), first * 4);
        backoff.reset();
        assert!(backoff.next_wait() <= first);
    }

    #[test]
    fn a_watch_waits_longer_whatever_kube_counts_as_success_in_between() {
        let mut backoff = WatchBackoff::new(Backoff::of_controllers());
        let mut waits = Vec::new();
        for _ in 0..40 {
            KubeBackoff::reset(&mut backoff);
            waits.extend(backoff.next());
        }
        assert!(waits[0] <= Duration::from_millis(20));
        assert!(waits[39] >= Duration::from_secs(1) && waits[39] <= Duration::from_secs(2));
    }

    #[test]
    fn a_failure_after_a_calm_time_is_the_first() {
        let mut backoff = WatchBackoff::new(Backoff::of_controllers());
        while backoff.next().unwrap() < Duration::from_secs(1) {}
        backoff.last = Instant::now().checked_sub(CALM * 2);
        assert!(backoff.next().unwrap() <= Duration::from_millis(20));
    }
}
