//! When a server counts as healthy: after so many good probes in a row, until so many bad ones.

use std::time::SystemTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    pub healthy_after: u32,
    pub unhealthy_after: u32,
}

/// What the probes of one server said so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    pub healthy: bool,
    pub since: SystemTime,
    /// What the last probe said, where it was not plainly good.
    pub last: Option<String>,
    /// The server refuses connections or does not answer at all, so open ones are dead.
    pub gone: bool,
    against: u32,
}

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Ready,
    /// It answers, but does not say whether it is ready.
    Silent(String),
    NotReady(String),
    /// No connection.
    Unreachable(String),
}

impl Health {
    /// The first probe decides at once.
    pub fn new(finding: &Finding, now: SystemTime) -> Self {
        let (healthy, last) = read(finding);
        Self {
            healthy,
            since: now,
            last,
            gone: is_gone(finding),
            against: 0,
        }
    }

    /// Something else says that it is gone: until the next good probe it counts as that. Whether
    /// that is new.
    pub fn doubt(&mut self, why: &str, thresholds: Thresholds, now: SystemTime) -> bool {
        if !self.healthy {
            return false;
        }
        let against = thresholds.healthy_after.saturating_sub(1);
        *self = Self {
            healthy: false,
            since: now,
            last: Some(why.to_owned()),
            gone: true,
            against,
        };
        true
    }

    /// Whether something changed that matters to others.
    pub fn record(&mut self, finding: &Finding, thresholds: Thresholds, now: SystemTime) -> bool {
        let before = (self.healthy, self.gone, self.last.is_some());
        let (good, last) = read(finding);
        self.last = last;
        self.against = if good == self.healthy {
            0
        } else {
            self.against + 1
        };
        let limit = if good {
            thresholds.healthy_after
        } else {
            thresholds.unhealthy_after
        };
        if self.against >= limit.max(1) {
            self.healthy = good;
            self.since = now;
            self.against = 0;
        }
        self.gone = !self.healthy && is_gone(finding);
        before != (self.healthy, self.gone, self.last.is_some())
    }
}

fn read(finding: &Finding) -> (bool, Option<String>) {
    match finding {
        Finding::Ready => (true, None),
        Finding::Silent(why) => (true, Some(why.clone())),
        Finding::NotReady(why) | Finding::Unreachable(why) => (false, Some(why.clone())),
    }
}

fn is_gone(finding: &Finding) -> bool {
    matches!(finding, Finding::Unreachable(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_as_many_as_it_takes() {
        let thresholds = Thresholds {
            healthy_after: 3,
            unhealthy_after: 2,
        };
        let (ready, bad) = (Finding::Ready, Finding::NotReady("500".to_owned()));
        let mut health = Health::new(&ready, SystemTime::UNIX_EPOCH);
        let told = [
            (&bad, true),
            (&ready, true), // the count begins anew
            (&bad, true),
            (&bad, false),
            (&ready, false),
            (&ready, false),
            (&bad, false),
            (&ready, false),
            (&ready, false),
            (&ready, true),
        ];
        for (step, (finding, healthy)) in told.into_iter().enumerate() {
            health.record(finding, thresholds, SystemTime::UNIX_EPOCH);
            assert_eq!(health.healthy, healthy, "step {step}");
        }
    }

    #[test]
    fn a_doubt_lasts_until_the_next_good_probe() {
        let thresholds = Thresholds {
            healthy_after: 3,
            unhealthy_after: 1,
        };
        let mut health = Health::new(&Finding::Ready, SystemTime::UNIX_EPOCH);
        assert!(health.doubt("silent", thresholds, SystemTime::UNIX_EPOCH));
        assert!(!health.doubt("silent", thresholds, SystemTime::UNIX_EPOCH));
        assert!(!health.healthy && health.gone);
        health.record(&Finding::Ready, thresholds, SystemTime::UNIX_EPOCH);
        assert!(health.healthy && !health.gone);
    }

    #[test]
    fn only_who_takes_no_connections_is_gone() {
        let thresholds = Thresholds {
            healthy_after: 1,
            unhealthy_after: 1,
        };
        let mut health = Health::new(&Finding::Silent("401".to_owned()), SystemTime::UNIX_EPOCH);
        assert!(health.healthy);
        assert!(health.record(
            &Finding::NotReady("500".to_owned()),
            thresholds,
            SystemTime::UNIX_EPOCH
        ));
        assert!(!health.healthy && !health.gone);
        assert!(health.record(
            &Finding::Unreachable("refused".to_owned()),
            thresholds,
            SystemTime::UNIX_EPOCH
        ));
        assert!(!health.healthy && health.gone);
        assert!(health.record(&Finding::Ready, thresholds, SystemTime::UNIX_EPOCH));
        assert!(health.healthy && !health.gone && health.last.is_none());
        assert!(!health.record(&Finding::Ready, thresholds, SystemTime::UNIX_EPOCH));
    }
}
