//! How often nodes report. A report is a write to the API server, and there is one for each node,
//! so the intervals grow with the number of nodes and the writes of the whole cluster are bounded.
//!
//! | nodes | renewed every | alive for | changes told within | awaited changes | writes a second: at rest, changes, awaited changes |
//! |---|---|---|---|---|---|
//! | 3 | 1 s | 3 s | at once | at once | 3, 6, 6 |
//! | 100 | 10 s | 25 s | 2 s | at once | 10, 50, 200 |
//! | 1,000 | 30 s | 75 s | 20 s | 2 s | 33, 67, 500 |
//! | 5,000 | 30 s | 75 s | 30 s | 10 s | 167, 167, 500 |

use std::time::Duration;

/// What all nodes together write in a second, as long as the longest interval allows it: at rest,
/// while Services change, and while changes come that a user waits for. For comparison: the
/// kubelets of 5,000 nodes renew 500 Leases a second.
const AT_REST: u32 = 10;
const CHANGES: u32 = 50;
const AWAITED: u32 = 500;

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Changes within this time are one report even in the smallest cluster.
pub const GATHER: Duration = Duration::from_millis(500);

/// The intervals between reports of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// While nothing changes.
    pub renew: Duration,
    /// While Services change.
    pub changes: Duration,
    /// While changes come that a user waits for: of a Service whose conditions say where it is
    /// live, of the owner of an address, of what cannot be installed.
    pub awaited: Duration,
}

impl Pace {
    /// In a cluster of so many nodes.
    pub fn of(nodes: usize) -> Self {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        let spread = |rate: u32| Duration::from_millis(u64::from(nodes) * 1000 / u64::from(rate));
        let renew = spread(AT_REST).clamp(SHORTEST, LONGEST);
        Self {
            renew,
            changes: spread(CHANGES).clamp(GATHER, renew),
            awaited: spread(AWAITED).clamp(GATHER, renew),
        }
    }

    /// Where the number of nodes cannot be known.
    pub fn slowest() -> Self {
        Self::of(usize::MAX)
    }

    /// For how long a report is alive, in whole seconds, as a Lease has them: two renewals may be
    /// lost.
    pub fn lasts(&self) -> Duration {
        let seconds = self.renew.as_secs_f64() * 2.5;
        Duration::from_secs(seconds.ceil() as u64)
    }

    /// An interval so short that a change is told at once, and not at the next moment of the
    /// node's own.
    pub fn is_at_once(interval: Duration) -> bool {
        interval <= GATHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_with_the_cluster_and_writes_stay_bounded() {
        let millis = |pace: Pace| [pace.renew, pace.changes, pace.awaited].map(|t| t.as_millis());
        for (nodes, expected, lasts) in [
            (0, [1000, 500, 500], 3),
            (3, [1000, 500, 500], 3),
            (25, [2500, 500, 500], 7),
            (100, [10_000, 2000, 500], 25),
            (1000, [30_000, 20_000, 2000], 75),
            (5000, [30_000, 30_000, 10_000], 75),
        ] {
            let pace = Pace::of(nodes);
            assert_eq!(millis(pace), expected, "{nodes} nodes");
            assert_eq!(pace.lasts().as_secs(), lasts, "{nodes} nodes");
        }
        for nodes in 1..10_000_usize {
            let pace = Pace::of(nodes);
            let rate = |interval: Duration| nodes as f64 / interval.as_secs_f64();
            let beyond = nodes as f64 / LONGEST.as_secs_f64();
            assert!(rate(pace.renew) <= beyond.max(AT_REST.into()) + 0.1);
            assert!(rate(pace.changes) <= beyond.max(CHANGES.into()) + 0.1);
            assert!(rate(pace.awaited) <= beyond.max(AWAITED.into()) + 0.1);
        }
    }

    #[test]
    fn a_cluster_of_unknown_size_is_taken_for_a_large_one() {
        assert_eq!(Pace::slowest(), Pace::of(100_000));
    }
}
