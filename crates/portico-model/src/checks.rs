//! Which targets may be probed, when which of them is, and what the answers mean: a few in flight
//! at a time, spread over the interval, and one bad answer is not the end. Times count from the
//! start of the driver.

mod ranges;

pub use ranges::{FLAG as RANGES_FLAG, Range, Ranges, Refused};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How a target is checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Settings {
    /// The time between two probes of a target.
    pub interval: Duration,
    /// Good answers in a row until a target is healthy again.
    pub healthy_after: u32,
    /// Bad answers in a row until it no longer is.
    pub unhealthy_after: u32,
}

/// When an answer is unexpected, the next is asked for so soon.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct State {
    settings: Settings,
    healthy: Option<bool>,
    /// Answers in a row that say otherwise.
    against: u32,
    /// `None` while a probe is in flight.
    due: Option<Duration>,
    trouble: Option<String>,
    /// Tells this state from one for the same target before it.
    round: u64,
}

/// A probe to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe<K> {
    /// The target to ask.
    pub target: K,
    round: u64,
}

/// The targets that are wanted, with what their answers mean.
pub struct Checks<K> {
    /// Probes in flight at most.
    most: usize,
    states: BTreeMap<K, State>,
    due: BTreeSet<(Duration, K)>,
    in_flight: usize,
    rounds: u64,
}

impl<K: Ord + Clone> Checks<K> {
    /// No targets yet; `most` bounds the probes in flight.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            states: BTreeMap::new(),
            due: BTreeSet::new(),
            in_flight: 0,
            rounds: 0,
        }
    }

    /// Probe from now on; a target that is probed already is taken for a new one. Of one whose
    /// health was known before, only a row of answers is news; of others, the first.
    pub fn want(&mut self, target: K, settings: Settings, known: Option<bool>, now: Duration) {
        self.unwant(&target);
        self.rounds += 1;
        let state = State {
            settings,
            healthy: known,
            against: 0,
            due: Some(now),
            trouble: None,
            round: self.rounds,
        };
        self.due.insert((now, target.clone()));
        self.states.insert(target, state);
    }

    /// Stops checking the target, and forgets what is known of it.
    pub fn unwant(&mut self, target: &K) {
        if let Some(due) = self.states.remove(target).and_then(|state| state.due) {
            self.due.remove(&(due, target.clone()));
        }
    }

    /// Whether the target is checked.
    pub fn is_wanted(&self, target: &K) -> bool {
        self.states.contains_key(target)
    }

    /// The next probe to make now, if there is room for one.
    pub fn start(&mut self, now: Duration) -> Option<Probe<K>> {
        if self.in_flight >= self.most || self.due.first()?.0 > now {
            return None;
        }
        let (_, target) = self.due.pop_first()?;
        let state = self.states.get_mut(&target)?;
        state.due = None;
        self.in_flight += 1;
        Some(Probe {
            target,
            round: state.round,
        })
    }

    /// When to come back for the next one. While all room is taken, an answer is what to wait for.
    pub fn next_deadline(&self) -> Option<Duration> {
        let has_room = self.in_flight < self.most;
        self.due.first().map(|(due, _)| *due).filter(|_| has_room)
    }

    /// The answer to a probe; `spread` is a number from 0 to 1, by chance. Tells the health where
    /// it is news.
    pub fn finish(
        &mut self,
        probe: Probe<K>,
        answer: Result<(), String>,
        now: Duration,
        spread: f64,
    ) -> Option<bool> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let state = self
            .states
            .get_mut(&probe.target)
            .filter(|state| state.round == probe.round)?;
        let good = answer.is_ok();
        state.trouble = answer.err();
        let needed = if good {
            state.settings.healthy_after
        } else {
            state.settings.unhealthy_after
        };
        state.against = if state.healthy == Some(good) {
            0
        } else {
            state.against.saturating_add(1)
        };
        let is_news = state.healthy.is_none() || state.against >= needed.max(1);
        let is_news = is_news && state.healthy != Some(good);
        if is_news {
            state.healthy = Some(good);
            state.against = 0;
        }
        let jittered = state
            .settings
            .interval
            .mul_f64(0.8 + 0.4 * spread.clamp(0.0, 1.0));
        let due = now
            + if state.against > 0 {
                AGAIN.min(jittered)
            } else {
                jittered
            };
        state.due = Some(due);
        self.due.insert((due, probe.target));
        is_news.then_some(good)
    }

    /// Whether the target is healthy; `None` as long as that is not known.
    pub fn healthy(&self, target: &K) -> Option<bool> {
        self.states.get(target)?.healthy
    }

    /// What was wrong with the last answer.
    pub fn trouble(&self, target: &K) -> Option<&str> {
        self.states.get(target)?.trouble.as_deref()
    }

    /// How many targets are checked.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Whether no target is checked.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        interval: Duration::from_secs(10),
        healthy_after: 2,
        unhealthy_after: 3,
    };
    const START: Duration = Duration::ZERO;

    fn checks(most: usize, targets: u16) -> Checks<u16> {
        let mut checks = Checks::new(most);
        (0..targets).for_each(|target| checks.want(target, SETTINGS, None, START));
        checks
    }

    /// Answers in a row, and what is told after each.
    fn told(known: Option<bool>, answers: &[bool]) -> Vec<Option<bool>> {
        let (mut checks, mut now) = (Checks::new(1), START);
        checks.want(1, SETTINGS, known, now);
        let mut told = Vec::new();
        for good in answers {
            now += Duration::from_secs(20);
            let probe = checks.start(now).unwrap();
            let answer = if *good {
                Ok(())
            } else {
                Err("refused".to_owned())
            };
            told.push(checks.finish(probe, answer, now, 0.5));
        }
        told
    }

    #[test]
    fn the_first_answer_counts_and_later_ones_in_a_row() {
        const N: Option<bool> = None;
        let (y, n) = (Some(true), Some(false));
        assert_eq!(
            told(
                None,
                &[true, false, false, true, false, false, false, true, true]
            ),
            [y, N, N, N, N, N, n, N, y]
        );
        assert_eq!(
            told(None, &[false, true, false, true, true, true]),
            [n, N, N, N, y, N]
        );
    }

    #[test]
    fn of_what_was_known_one_answer_changes_nothing() {
        assert_eq!(
            told(Some(true), &[false, true, false, false, false]),
            [None, None, None, None, Some(false)]
        );
        assert_eq!(told(Some(true), &[true]), [None]);
    }

    #[test]
    fn never_more_in_flight_than_allowed() {
        let mut checks = checks(3, 100);
        let probes: Vec<Probe<u16>> = std::iter::from_fn(|| checks.start(START)).collect();
        assert_eq!(probes.len(), 3);
        assert_eq!(checks.next_deadline(), None);
        checks.finish(probes[0].clone(), Ok(()), START, 0.0);
        assert_eq!(checks.next_deadline(), Some(START));
        assert!(checks.start(START).is_some() && checks.start(START).is_none());
    }

    #[test]
    fn probes_of_a_round_spread() {
        let mut checks = checks(2, 2);
        for spread in [0.0, 1.0] {
            let probe = checks.start(START).unwrap();
            checks.finish(probe, Ok(()), START, spread);
        }
        assert_eq!(checks.next_deadline(), Some(Duration::from_secs(8)));
        assert_eq!(checks.due.last().unwrap().0, Duration::from_secs(12));
    }

    #[test]
    fn an_unexpected_answer_is_doubted_at_once() {
        let mut checks = checks(1, 1);
        let probe = checks.start(START).unwrap();
        checks.finish(probe, Ok(()), START, 0.5);
        let later = Duration::from_secs(10);
        let probe = checks.start(later).unwrap();
        assert_eq!(checks.finish(probe, Err("no".to_owned()), later, 0.5), None);
        assert_eq!(checks.next_deadline(), Some(later + AGAIN));
        assert_eq!(
            (checks.trouble(&0), checks.healthy(&0)),
            (Some("no"), Some(true))
        );
    }

    #[test]
    fn an_answer_for_what_is_no_longer_wanted_says_nothing() {
        let mut checks = checks(1, 1);
        let probe = checks.start(START).unwrap();
        checks.want(0, SETTINGS, None, START);
        assert_eq!(checks.finish(probe, Ok(()), START, 0.5), None);
        let probe = checks.start(START).unwrap();
        assert_eq!(checks.finish(probe, Ok(()), START, 0.5), Some(true));
        assert!(checks.is_wanted(&0) && checks.len() == 1);
        checks.unwant(&0);
        assert!(checks.is_empty() && checks.next_deadline().is_none());
    }
}
