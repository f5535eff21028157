//! Periodic work of several parts falls due at the same moments: waking up costs more than most of
//! that work, and a timer that is far away wakes the runtime several times before it is due.

use portico_client::wait::fraction;
use std::time::{Duration, Instant};

/// The longest period of work that sends something to the API server.
const LONGEST: Duration = Duration::from_secs(60);

/// The moments at which periodic work is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlignedTimer {
    first: Instant,
}

impl AlignedTimer {
    /// A timer with a random offset, so that the API server does not hear of all nodes at once.
    pub(crate) fn by_chance() -> Self {
        let now = Instant::now();
        Self {
            first: now.checked_sub(LONGEST.mul_f64(fraction())).unwrap_or(now),
        }
    }

    /// When work that was done is due again. All work with this period, or a multiple of it, is due
    /// at the same moments; the first of them may be soon.
    pub(crate) fn next(self, done: Instant, period: Duration) -> Instant {
        let latest = done + period;
        // Centuries of nanoseconds.
        let [passed, period] = [latest.saturating_duration_since(self.first), period]
            .map(|time| time.as_nanos() as u64);
        latest - Duration::from_nanos(passed.checked_rem(period).unwrap_or_default())
    }
}

#[cfg(test)]
impl AlignedTimer {
    pub(crate) fn from(first: Instant) -> Self {
        Self { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_meet() {
        let first = Instant::now();
        let timer = AlignedTimer::from(first);
        let at = |millis| first + Duration::from_millis(millis);
        let half = Duration::from_secs(30);
        let whole = Duration::from_secs(60);
        assert_eq!(timer.next(at(1), half), at(30_000));
        assert_eq!(timer.next(at(29_999), half), at(30_000));
        assert_eq!(timer.next(at(30_000), half), at(60_000));
        assert_eq!(
            timer.next(at(30_002), half),
            at(60_000),
            "a timer is late, its round is not"
        );
        assert_eq!(timer.next(at(7_000), whole), at(60_000));
    }

    #[test]
    fn nobody_waits_longer_than_a_period_or_not_at_all() {
        let first = Instant::now();
        let timer = AlignedTimer::from(first);
        for period in [1, 100, 30_000, 60_000].map(Duration::from_millis) {
            for done in (0..200_000)
                .step_by(777)
                .map(|millis| first + Duration::from_millis(millis))
            {
                let next = timer.next(done, period);
                assert!(done < next && next <= done + period);
            }
        }
        assert_eq!(
            timer.next(first, Duration::ZERO),
            first,
            "a period of nothing is always over"
        );
    }
}
