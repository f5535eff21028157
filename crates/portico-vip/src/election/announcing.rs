//! When the addresses are announced: a few times after a take-over, since any of these packets may
//! be lost, then now and then, for those that forgot.

use portico_vrrp::Time;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Announcing {
    times: u32,
    gap: Duration,
    every: Option<Duration>,
    /// How many of the first few announcements are still to come.
    left: u32,
    next: Option<Time>,
}

impl Announcing {
    pub(super) fn new(times: u32, gap: Duration, every: Option<Duration>) -> Self {
        Self {
            times,
            gap,
            every,
            left: 0,
            next: None,
        }
    }

    /// One is due now.
    pub(super) fn begin(&mut self, now: Time) {
        (self.left, self.next) = (self.times.max(1), Some(now));
    }

    pub(super) fn stop(&mut self) {
        (self.left, self.next) = (0, None);
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.next
    }

    /// Whether to announce now. Those that were missed are not made up for.
    pub(super) fn due(&mut self, now: Time) -> bool {
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        self.left = self.left.saturating_sub(1);
        self.next = if self.left > 0 {
            Some(now + self.gap)
        } else {
            self.every.map(|every| now + every)
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// When it announces, for two seconds, if it is asked whenever it wants to be.
    fn times(mut announcing: Announcing) -> Vec<u128> {
        let mut times = Vec::new();
        announcing.begin(ms(100));
        while let Some(next) = announcing.deadline().filter(|next| *next <= ms(2000)) {
            assert!(!announcing.due(next - ms(1)));
            assert!(announcing.due(next));
            times.push(next.as_millis());
        }
        times
    }

    #[test]
    fn a_few_times_and_then_now_and_then() {
        assert_eq!(
            times(Announcing::new(3, ms(50), Some(ms(900)))),
            [100, 150, 200, 1100, 2000]
        );
        assert_eq!(times(Announcing::new(2, ms(50), None)), [100, 150]);
        assert_eq!(times(Announcing::new(0, ms(50), None)), [100]);
    }

    #[test]
    fn it_stops_and_begins_anew() {
        let mut announcing = Announcing::new(2, ms(10), Some(ms(100)));
        announcing.begin(ms(0));
        announcing.stop();
        assert_eq!(
            (announcing.deadline(), announcing.due(ms(1000))),
            (None, false)
        );
        announcing.begin(ms(2000));
        assert!(announcing.due(ms(2500)));
        assert_eq!(announcing.deadline(), Some(ms(2510)));
    }
}
