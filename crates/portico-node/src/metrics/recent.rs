//! How long the last changes took, for the node's report: a few numbers that tell what histograms
//! of the metrics tell in detail.

use portico_model::report::Programming;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// So many count.
const KEPT: usize = 100;

#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    changes: u64,
    micros: VecDeque<u64>,
}

impl Recent {
    pub(crate) fn saw(&self, took: Duration) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.changes += 1;
        seen.micros
            .push_back(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        if seen.micros.len() > KEPT {
            seen.micros.pop_front();
        }
    }

    /// A summary; `None` before the first change.
    pub(crate) fn summary(&self) -> Option<Programming> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted: Vec<u64> = seen.micros.iter().copied().collect();
        sorted.sort_unstable();
        Some(Programming {
            changes: seen.changes,
            last_micros: *seen.micros.back()?,
            median_micros: *sorted.get(sorted.len() / 2)?,
            worst_micros: *sorted.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_summed_up() {
        let recent = Recent::default();
        assert_eq!(recent.summary(), None);
        recent.saw(Duration::from_secs(1));
        (1..=KEPT as u64).for_each(|micros| recent.saw(Duration::from_micros(micros)));
        let told = Programming {
            changes: 101,
            last_micros: 100,
            median_micros: 51,
            worst_micros: 100,
        };
        assert_eq!(recent.summary(), Some(told), "the slow one was long ago");
    }
}
