//! Is a Lease still held: the report of a node, or the leadership of a controller? Decided once,
//! for the controller and for every tool.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use std::time::Duration;

/// Lasts a Lease that does not say how long it lasts.
const UNSAID: Duration = Duration::from_secs(30);
/// Two clocks may differ by this much before a Lease counts as lost. Programs that watch Leases
/// compare clocks only when they see a Lease for the first time.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(5);

/// What the renewals of a Lease say about its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It was renewed in time, and holds for this long if it is not renewed again.
    Alive {
        /// How long it still holds.
        holds: Duration,
    },
    /// It was last renewed longer ago than it lasts, or never.
    Silent,
}

impl Life {
    /// Whether the report counts.
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Alive { .. })
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
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    Some(clock.as_second() - renewed.as_second())
}

/// Whether a Lease is held, by the clock of the caller.
pub fn life(lease: &Lease, clock: Timestamp) -> Life {
    let Some(renewed) = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.renew_time.as_ref())
    else {
        return Life::Silent;
    };
    let lasts = lasts(lease) + CLOCK_DIFFERENCE;
    // A renewal in the future is that of a clock that is ahead: it counts as one of this moment.
    let age = Duration::try_from(clock.duration_since(renewed.0)).unwrap_or_default();
    match lasts.checked_sub(age) {
        Some(holds) if !holds.is_zero() => Life::Alive { holds },
        _ => Life::Silent,
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
        let table = [
            (json!({}), Life::Silent),
            (json!({"leaseDurationSeconds": 30}), Life::Silent),
            (
                json!({"leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:01:00.000000Z"}),
                alive(35),
            ),
            (
                json!({"leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:31.000000Z"}),
                alive(6),
            ),
            (
                json!({"leaseDurationSeconds": 30, "renewTime": "2026-01-01T00:00:25.000000Z"}),
                Life::Silent,
            ),
            (
                json!({"renewTime": "2026-01-01T00:00:50.000000Z"}),
                alive(25),
            ),
            (
                json!({"leaseDurationSeconds": 30, "renewTime": "2026-01-01T09:00:00.000000Z"}),
                alive(35),
            ),
            (
                json!({"leaseDurationSeconds": -1, "renewTime": "2026-01-01T00:01:00.000000Z"}),
                alive(35),
            ),
        ];
        for (spec, expected) in table {
            let lease: Lease = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(life(&lease, clock), expected, "{spec}");
        }
    }
}
