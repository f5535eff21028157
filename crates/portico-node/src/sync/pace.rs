//! Whether a step may go before what others do on the machine. A single change takes a fraction of
//! a millisecond, and somebody waits for it; lists, bursts and comparisons of everything take long,
//! and nobody may be kept from running for long.

use std::time::{Duration, Instant};

/// So many steps in so much time are no longer single ones.
const MOST: u32 = 100;
const WINDOW: Duration = Duration::from_millis(100);
/// Nor are steps that take so much of it, however few they are.
const MOST_TIME: Duration = Duration::from_millis(25);
/// After much work it is as likely that more follows.
const REST: Duration = Duration::from_millis(500);

pub struct Pace {
    calm_at: Instant,
    window: Instant,
    steps: u32,
    spent: Duration,
}

impl Pace {
    /// From a start, which is much work.
    pub fn new(now: Instant) -> Pace {
        Pace {
            calm_at: now + REST,
            window: now,
            steps: 0,
            spent: Duration::ZERO,
        }
    }

    /// A step begins, large or not: may it go first?
    pub fn step(&mut self, large: bool, now: Instant) -> bool {
        if now > self.window + WINDOW {
            (self.window, self.steps, self.spent) = (now, 0, Duration::ZERO);
        }
        self.steps = self.steps.saturating_add(1);
        if large || self.steps > MOST {
            self.calm_at = now + REST;
        }
        self.calm_at <= now
    }

    /// What a step took, from when it began.
    pub fn took(&mut self, time: Duration, began: Instant) {
        self.spent += time;
        if self.spent > MOST_TIME {
            self.calm_at = began + time + REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_changes_go_first() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(start);
        assert!(!pace.step(false, at(10)), "it has just started");
        assert!(pace.step(false, at(600)) && pace.step(false, at(601)));
        assert!(
            !pace.step(true, at(700)) && !pace.step(false, at(1100)),
            "much was done a moment ago"
        );
        assert!(pace.step(false, at(1300)));
    }

    #[test]
    fn steps_that_take_long_are_no_single_changes_however_few_they_are() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(start);
        assert!(pace.step(false, at(600)));
        pace.took(Duration::from_millis(20), at(600));
        assert!(pace.step(false, at(620)));
        pace.took(Duration::from_millis(20), at(620));
        assert!(!pace.step(false, at(640)) && !pace.step(false, at(1130)));
        assert!(pace.step(false, at(1200)));
        // Time is counted anew in each window.
        for step in 0..20 {
            assert!(pace.step(false, at(2000 + 110 * step)), "{step}");
            pace.took(Duration::from_millis(20), at(2000 + 110 * step));
        }
    }

    #[test]
    fn a_storm_of_single_changes_does_not() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut first = 0;
        for step in 0..40_000_u64 {
            first += u64::from(pace.step(false, start + REST + Duration::from_micros(100 * step)));
        }
        assert!(
            first <= 700,
            "{first} of 40000 steps in four seconds went first"
        );
    }
}
