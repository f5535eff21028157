//! Is a Lease still held: the report of a node, or the leadership of a controller? Decided once,
//! for the controller and for every tool.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Lasts a Lease that does not say how long it lasts.
const UNSAID: Duration = Duration::from_secs(30);
/// Two clocks may differ by this much before a Lease counts as lost. Clocks are compared only when
/// a Lease is seen for the first time.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);

/// What the renewals of a Lease say about its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It was renewed in time, and holds for this long if it is not renewed again.
    Alive {
        /// So long it stays alive if nothing comes in.
        holds: Duration,
    },
    /// By the clocks it was not renewed in time, and the clocks may differ: it is lost if it is not
    /// renewed within this time.
    Doubtful {
        /// So long until it is known.
        until: Duration,
    },
    /// It was last renewed longer ago than it lasts, or never.
    Silent,
}

impl Life {
    /// Whether the report counts.
    pub fn is_alive(self) -> bool {
        self.holds().is_some()
    }

    /// For how long it holds if it is not renewed again; `None` where it is lost.
    pub fn holds(self) -> Option<Duration> {
        match self {
            Self::Alive { holds } => Some(holds),
            Self::Doubtful { until } => Some(until),
            Self::Silent => None,
        }
    }
}

/// How long a Lease holds after each renewal.
pub fn lasts(lease: &Lease) -> Duration {
    let seconds = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_duration_seconds);
    seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(UNSAID, Duration::from_secs)
}

/// How many seconds ago a Lease was renewed; `None` where it never was.
pub fn renewed_ago(lease: &Lease, clock: Timestamp) -> Option<i64> {
    Some(clock.as_second() - renewed(lease)?.as_second())
}

/// Whether a Lease that is seen for the first time is held, by the clock of the caller.
///
/// One that is about to end is given the time in which a renewal comes if the holder lives.
pub fn life(lease: &Lease, clock: Timestamp) -> Life {
    let Some(renewed) = renewed(lease) else {
        return Life::Silent;
    };
    let lasts = lasts(lease);
    // A renewal in the future is that of a clock that is ahead: it counts as one of this moment.
    let age = Duration::try_from(clock.duration_since(renewed)).unwrap_or_default();
    match lasts.checked_sub(age) {
        Some(left) if !left.is_zero() => Life::Alive {
            holds: left.max(renewed_within(lasts)),
        },
        _ if age < lasts + CLOCK_DIFFERENCE => Life::Doubtful {
            until: renewed_within(lasts),
        },
        _ => Life::Silent,
    }
}

/// A Lease lasts for two and a half of the intervals at which it is renewed (`pace`); a renewal may
/// take a moment.
fn renewed_within(lasts: Duration) -> Duration {
    lasts * 9 / 20
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
}

/// A Lease as somebody who looks at it again and again knows it: from the second look on, only the
/// clock of the one who looks counts.
#[derive(Clone, Debug)]
pub struct WatchedLease {
    /// The Lease as it was last seen.
    pub lease: Lease,
    /// It holds until then, unless it is renewed.
    expires: Timestamp,
    doubtful: bool,
}

impl WatchedLease {
    /// `before` is what was known of the same Lease.
    pub fn new(lease: Lease, before: Option<&Self>, clock: Timestamp) -> Self {
        let after = |time: Duration| clock.checked_add(time).unwrap_or(clock);
        let (expires, doubtful) = match before {
            Some(before) if renewed(&before.lease) == renewed(&lease) => {
                (before.expires, before.doubtful)
            }
            Some(_) => (after(lasts(&lease)), false),
            None => {
                let life = life(&lease, clock);
                let expires = after(life.holds().unwrap_or_default());
                (expires, matches!(life, Life::Doubtful { .. }))
            }
        };
        Self {
            lease,
            expires,
            doubtful,
        }
    }

    /// Whether its holder renews it in time.
    pub fn is_alive(&self, clock: Timestamp) -> bool {
        clock < self.expires
    }

    /// It says the same as before, by a holder that was alive all the time.
    pub fn is_only_renewed(&self, before: &Self, clock: Timestamp) -> bool {
        let holder = |lease: &Lease| {
            let spec = lease.spec.as_ref();
            spec.and_then(|spec| spec.holder_identity.clone())
        };
        before.is_alive(clock)
            && !before.doubtful
            && before.lease.metadata.annotations == self.lease.metadata.annotations
            && holder(&before.lease) == holder(&self.lease)
    }

    /// How long it takes until it is known whether a Lease is held that may be lost already.
    pub fn doubt(&self, clock: Timestamp) -> Option<Duration> {
        let left = Duration::try_from(self.expires.duration_since(clock)).ok();
        left.filter(|left| self.doubtful && !left.is_zero())
    }

    /// When it is lost unless it is renewed; `None` where it is lost.
    pub fn expires(&self, clock: Timestamp) -> Option<Timestamp> {
        Some(self.expires).filter(|_| self.is_alive(clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lease_is_alive_while_it_is_renewed_in_time() {
        let clock: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let alive = |seconds| Life::Alive {
            holds: Duration::from_secs(seconds),
        };
        let soon = Duration::from_millis(13_500);
        let renewed = |time: &str| {
            let time = format!("2026-01-01T{time}.000000Z");
            json!({"leaseDurationSeconds": 30, "renewTime": time})
        };
        let table = [
            (json!({}), Life::Silent),
            (json!({"leaseDurationSeconds": 30}), Life::Silent),
            (renewed("00:01:00"), alive(30)),
            (renewed("00:00:50"), alive(20)),
            (renewed("00:00:31"), Life::Alive { holds: soon }),
            (renewed("00:00:30"), Life::Doubtful { until: soon }),
            (renewed("00:00:26"), Life::Doubtful { until: soon }),
            (renewed("00:00:25"), Life::Silent),
            (renewed("09:00:00"), alive(30)),
            (
                json!({"renewTime": "2026-01-01T00:00:50.000000Z"}),
                alive(20),
            ),
            (
                json!({"leaseDurationSeconds": -1, "renewTime": "2026-01-01T00:01:00.000000Z"}),
                alive(30),
            ),
        ];
        for (spec, expected) in table {
            let lease: Lease = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(life(&lease, clock), expected, "{spec}");
        }
    }
    #[test]
    fn who_watches_compares_no_clocks() {
        let at = |seconds: i64| Timestamp::from_second(1_767_225_600 + seconds).unwrap();
        let lease = |renewed: i64| -> Lease {
            let time = at(renewed)
                .strftime("%Y-%m-%dT%H:%M:%S.000000Z")
                .to_string();
            let spec = json!({"leaseDurationSeconds": 3, "renewTime": time});
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        // The holder's clock is 4 s behind: at first sight its Lease may well be lost.
        let first = WatchedLease::new(lease(-5), None, at(0));
        assert_eq!(first.doubt(at(0)), Some(Duration::from_millis(1350)));
        assert!(first.is_alive(at(1)) && !first.is_alive(at(2)));
        let same = WatchedLease::new(lease(-5), Some(&first), at(1));
        assert!(
            !same.is_alive(at(2)),
            "it was listed again, and not renewed"
        );
        let renewed = WatchedLease::new(lease(-4), Some(&first), at(1));
        assert_eq!(renewed.doubt(at(1)), None);
        assert!(renewed.is_alive(at(3)) && !renewed.is_alive(at(4)));
        assert_eq!(renewed.expires(at(1)), Some(at(4)));
        assert_eq!(renewed.expires(at(5)), None);
        let lost = WatchedLease::new(lease(-60), None, at(0));
        assert!(!lost.is_alive(at(0)) && lost.doubt(at(0)).is_none());
        let back = WatchedLease::new(lease(-59), Some(&lost), at(0));
        assert!(back.is_alive(at(2)));
    }
}
