//! When a call that failed is made again, and after which wait. Pure: time and chance are
//! arguments.

use std::time::Duration;

/// What a caller allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// A second time does what the first did.
    Always,
    /// Only if the first time surely did nothing.
    IfRefused,
}

/// What is known of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server did nothing, and wants to be left alone for so long.
    Refused(Option<Duration>),
    /// The server may have done it.
    Unknown,
    /// It would fail again.
    Final,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The longest wait before the second try; it doubles with each.
    pub first: Duration,
    pub last: Duration,
    pub tries: u32,
    /// No try begins later than this after the first began.
    pub within: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            first: second / 2,
            last: 10 * second,
            tries: 5,
            within: 30 * second,
        }
    }
}

impl Policy {
    /// How long to wait for the next try; `None`: give up. `random` is between 0 and 1 (full
    /// jitter: those that failed together do not come back together).
    pub fn wait(
        &self,
        repeat: Repeat,
        failure: Failure,
        tries: u32,
        spent: Duration,
        random: f64,
    ) -> Option<Duration> {
        let asked = match (failure, repeat) {
            (Failure::Refused(after), _) => after.unwrap_or_default(),
            (Failure::Unknown, Repeat::Always) => Duration::ZERO,
            (Failure::Unknown, Repeat::IfRefused) | (Failure::Final, _) => return None,
        };
        let doubled = self
            .first
            .saturating_mul(1 << tries.saturating_sub(1).min(16))
            .min(self.last);
        let wait = asked + doubled.mul_f64(random.clamp(0.0, 1.0));
        (tries < self.tries && spent + wait <= self.within).then_some(wait)
    }
}

/// What all calls of a client may repeat together: a tenth of what succeeds, so that a cloud in
/// trouble does not get several times the requests that it gets at other times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Budget {
    repeats: f64,
}

impl Budget {
    const MOST: f64 = 50.0;
    const EARNED: f64 = 0.1;

    pub(super) fn succeeded(&mut self) {
        self.repeats = (self.repeats + Self::EARNED).min(Self::MOST);
    }

    /// Says whether there was one left.
    pub(super) fn take(&mut self) -> bool {
        let left = self.repeats >= 1.0;
        if left {
            self.repeats -= 1.0;
        }
        left
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            repeats: Self::MOST,
        }
    }
}

#[cfg(test)]
mod tests;
