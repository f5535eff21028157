//! The waits between the tries of a watch.

use std::time::{Duration, Instant};

use kube::runtime::utils::Backoff;

/// How long a watch waits after a failure: an expired one lists again at once, a dead server is
/// asked every two seconds.
#[derive(Default)]
pub struct WatchBackoff {
    failures: u32,
    last: Option<Instant>,
}

/// After this long without a failure, the next one counts as the first.
const CALM: Duration = Duration::from_secs(10);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let is_calm = self.last.is_none_or(|last| last.elapsed() > CALM);
        self.failures = if is_calm { 0 } else { self.failures + 1 };
        self.last = Some(Instant::now());
        let wait = Duration::from_millis(20).saturating_mul(1 << self.failures.min(10));
        Some(wait.min(Duration::from_secs(2)))
    }
}

impl Backoff for WatchBackoff {
    /// Does nothing: the start of a list counts as a success before the server has been asked.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_two_seconds_whatever_counts_as_success_in_between() {
        let mut backoff = WatchBackoff::default();
        let mut waits = Vec::new();
        for _ in 0..40 {
            backoff.reset();
            waits.extend(backoff.next().map(|wait| wait.as_millis()));
        }
        assert_eq!(waits[..8], [20, 40, 80, 160, 320, 640, 1280, 2000]);
        assert_eq!(waits.last(), Some(&2000));
    }

    #[test]
    fn a_failure_after_a_calm_time_is_the_first() {
        let past = Instant::now().checked_sub(CALM * 2);
        let mut backoff = WatchBackoff {
            failures: 9,
            last: past,
        };
        assert_eq!(backoff.next(), Some(Duration::from_millis(20)));
    }
}
