//! What is done by the clock is done together. To wake up costs more than most of it, and a timer
//! that is far away wakes the runtime several times before it is due.

use crate::backoff::fraction;
use std::time::{Duration, Instant};

/// What the API server hears of comes at least as often.
const LONGEST: Duration = Duration::from_secs(60);

/// The moments at which that is.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    first: Instant,
}

impl Rounds {
    /// At other moments on each node: the API server hears of all of them.
    pub fn by_chance() -> Rounds {
        let now = Instant::now();
        Rounds {
            first: now.checked_sub(LONGEST.mul_f64(fraction())).unwrap_or(now),
        }
    }

    /// When to do again what was done, once in a period. Everybody with this period, and with
    /// multiples of it, has the same moments; the first of them may be soon.
    pub fn next(self, done: Instant, period: Duration) -> Instant {
        let latest = done + period;
        // Centuries of nanoseconds.
        let [passed, period] = [latest.saturating_duration_since(self.first), period]
            .map(|time| time.as_nanos() as u64);
        latest - Duration::from_nanos(passed.checked_rem(period).unwrap_or_default())
    }
}

#[cfg(test)]
impl Rounds {
    pub fn from(first: Instant) -> Rounds {
        Rounds { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_meet() {
        let first = Instant::now();
        let rounds = Rounds::from(first);
        let at = |millis| first + Duration::from_millis(millis);
        let half = Duration::from_secs(30);
        let whole = Duration::from_secs(60);
        assert_eq!(rounds.next(at(1), half), at(30_000));
        assert_eq!(rounds.next(at(29_999), half), at(30_000));
        assert_eq!(rounds.next(at(30_000), half), at(60_000));
        assert_eq!(
            rounds.next(at(30_002), half),
            at(60_000),
            "a timer is late, its round is not"
        );
        assert_eq!(rounds.next(at(7_000), whole), at(60_000));
    }

    #[test]
    fn nobody_waits_longer_than_a_period_or_not_at_all() {
        let first = Instant::now();
        let rounds = Rounds::from(first);
        for period in [1, 100, 30_000, 60_000].map(Duration::from_millis) {
            for done in (0..200_000)
                .step_by(777)
                .map(|millis| first + Duration::from_millis(millis))
            {
                let next = rounds.next(done, period);
                assert!(done < next && next <= done + period);
            }
        }
        assert_eq!(
            rounds.next(first, Duration::ZERO),
            first,
            "a period of nothing is always over"
        );
    }
}
