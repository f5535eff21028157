//! What becomes of a process and of the machine that it runs on, and what the machine's clock
//! shows.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Running,
    /// It gets nothing done, but its kernel keeps packets for it.
    Stopped,
    /// The whole machine stands still, and maybe its clock as well.
    Frozen,
    Dead,
}

/// How far a machine's clock is from that of the world.
pub(crate) struct Clock {
    ahead: Duration,
    behind: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            ahead: Duration::from_secs(1000),
            behind: Duration::ZERO,
        }
    }
}

impl Clock {
    pub(crate) fn shows(&self, now: Duration) -> Duration {
        now + self.ahead - self.behind
    }

    /// When it will show that, in the time of the world.
    pub(crate) fn when(&self, shown: Duration) -> Duration {
        (shown + self.behind).saturating_sub(self.ahead)
    }

    pub(crate) fn jump(&mut self, by: Duration) {
        self.ahead += by;
    }

    pub(crate) fn stand_still(&mut self, by: Duration) {
        self.behind += by;
    }
}
