//! How fast a client asks: a bucket of tokens. Pure: the time is an argument.

use std::time::{Duration, Instant};

/// Fills with `rate` tokens a second up to `burst`. Taking a token that is not there yet returns
/// how long to wait for it: turns are given in the order in which they are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    interval: Duration,
    burst: Duration,
    /// When the bucket was, or will be, empty.
    empty: Option<Instant>,
}

impl TokenBucket {
    pub(crate) fn new(rate: f64, burst: u32) -> Self {
        let interval = Duration::from_secs_f64(1.0 / rate);
        Self {
            interval,
            burst: interval * burst,
            empty: None,
        }
    }

    pub(crate) fn take(&mut self, now: Instant) -> Duration {
        let full = now.checked_sub(self.burst).unwrap_or(now);
        let empty = self.empty.map_or(full, |empty| empty.max(full)) + self.interval;
        self.empty = Some(empty);
        empty.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_a_steady_rate() {
        let (start, mut bucket) = (Instant::now(), TokenBucket::new(10.0, 3));
        let waits: Vec<u128> = (0..6).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        // The turns that were given out are over then, and one token is left.
        assert_eq!(
            bucket.take(start + Duration::from_millis(400)),
            Duration::ZERO
        );
        assert_eq!(
            bucket.take(start + Duration::from_millis(400)).as_millis(),
            100
        );
    }

    #[test]
    fn rest_fills_no_more_than_the_burst() {
        let (start, mut bucket) = (Instant::now(), TokenBucket::new(1.0, 2));
        bucket.take(start);
        let later = start + Duration::from_secs(1000);
        let waits: Vec<u64> = (0..3).map(|_| bucket.take(later).as_secs()).collect();
        assert_eq!(waits, [0, 0, 1]);
    }
}
