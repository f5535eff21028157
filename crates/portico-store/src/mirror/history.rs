//! How much of the past is kept: the limits, and the pure decision of what is due to be forgotten.

use std::time::{Duration, Instant};

use crate::{Event, Revision};

/// The past is kept until it is older or bigger than this, whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryLimits {
    /// Events older than this are forgotten.
    pub age: Duration,
    /// The oldest events are forgotten when all together are larger than this.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            age: Duration::from_secs(300),
            bytes: 64 << 20,
        }
    }
}

/// What the decision knows of one past event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub revision: Revision,
    pub at: Instant,
    pub bytes: usize,
}

/// The revision to compact at, if any. `past` is oldest first and `total` is the sum of its bytes.
/// The newest revision is never due: its watchers have not had a chance to see it.
pub(super) fn due(
    past: impl Iterator<Item = Past>,
    total: usize,
    now: Instant,
    limits: HistoryLimits,
    newest: Revision,
) -> Option<Revision> {
    let mut left = total;
    let mut due = None;
    for event in past.take_while(|event| event.revision < newest) {
        let old = now.saturating_duration_since(event.at) > limits.age;
        if !old && left <= limits.bytes {
            break;
        }
        left = left.saturating_sub(event.bytes);
        due = Some(event.revision);
    }
    due
}

/// What an event keeps in memory: the superseded value, the event itself, and its encoded form,
/// which is about as big as the value it shows.
pub(super) fn weight(event: &Event) -> usize {
    const FIXED: usize = 256;
    let size = |entry: &Option<crate::Entry>| entry.as_ref().map_or(0, |entry| entry.value.len());
    FIXED + event.key.len() + size(&event.before) + size(&event.now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HistoryLimits = HistoryLimits {
        age: Duration::from_secs(10),
        bytes: 100,
    };

    fn decide(
        start: Instant,
        past: &[(Revision, u64, usize)],
        now: u64,
        newest: Revision,
    ) -> Option<Revision> {
        let at = |seconds| start + Duration::from_secs(seconds);
        let total = past.iter().map(|event| event.2).sum();
        let past = past.iter().map(|&(revision, seconds, bytes)| Past {
            revision,
            at: at(seconds),
            bytes,
        });
        due(past, total, at(now), LIMITS, newest)
    }

    #[test]
    fn keeps_what_is_young_and_small() {
        assert_eq!(
            decide(Instant::now(), &[(1, 0, 50), (2, 5, 50)], 10, 2),
            None
        );
    }

    #[test]
    fn forgets_what_is_old() {
        assert_eq!(
            decide(Instant::now(), &[(1, 0, 10), (2, 5, 10), (3, 9, 10)], 16, 4),
            Some(2)
        );
    }

    #[test]
    fn forgets_what_is_too_big() {
        assert_eq!(
            decide(Instant::now(), &[(1, 0, 60), (2, 0, 60), (3, 0, 60)], 0, 3),
            Some(2)
        );
    }

    #[test]
    fn never_forgets_the_newest() {
        assert_eq!(decide(Instant::now(), &[(1, 0, 500)], 100, 1), None);
    }
}
