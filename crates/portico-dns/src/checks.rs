//! When which address is probed, and what the answers mean: a few in flight at a time, spread over the interval, and one bad answer is
//! not the end. Knows no socket and no clock.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct Settings {
    pub interval: Duration,
    /// Good answers in a row until an address is healthy again.
    pub healthy_after: u32,
    /// Bad answers in a row until it no longer is.
    pub unhealthy_after: u32,
    /// Probes in flight.
    pub most: usize,
}

/// When an answer is unexpected, the next is asked for so soon.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
struct State {
    healthy: Option<bool>,
    /// Answers in a row that say otherwise.
    against: u32,
    /// `None` while a probe is in flight.
    due: Option<Instant>,
    trouble: Option<String>,
    /// Tells this state from one for the same address before it.
    round: u64,
}

/// A probe to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub address: SocketAddr,
    round: u64,
}

pub struct Checks {
    settings: Settings,
    states: HashMap<SocketAddr, State>,
    due: BTreeSet<(Instant, SocketAddr)>,
    in_flight: usize,
    rounds: u64,
}

impl Checks {
    pub fn new(settings: Settings) -> Checks {
        Checks { settings, states: HashMap::new(), due: BTreeSet::new(), in_flight: 0, rounds: 0 }
    }

    /// Probe from now on; an address that is probed already is taken for a new one.
    pub fn want(&mut self, address: SocketAddr, now: Instant) {
        self.unwant(address);
        self.rounds += 1;
        let state = State { healthy: None, against: 0, due: Some(now), trouble: None, round: self.rounds };
        self.states.insert(address, state);
        self.due.insert((now, address));
    }

    pub fn unwant(&mut self, address: SocketAddr) {
        if let Some(due) = self.states.remove(&address).and_then(|state| state.due) {
            self.due.remove(&(due, address));
        }
    }

    /// The next probe to make now, if there is room for one.
    pub fn start(&mut self, now: Instant) -> Option<Probe> {
        let first = *self.due.first()?;
        if self.in_flight >= self.settings.most || first.0 > now {
            return None;
        }
        self.due.remove(&first);
        let state = self.states.get_mut(&first.1)?;
        state.due = None;
        self.in_flight += 1;
        Some(Probe { address: first.1, round: state.round })
    }

    /// When to come back for the next one. While all room is taken, an answer is what to wait for.
    pub fn next_deadline(&self) -> Option<Instant> {
        let has_room = self.in_flight < self.settings.most;
        self.due.first().map(|(due, _)| *due).filter(|_| has_room)
    }

    /// The answer to a probe; `spread` is a number from 0 to 1, by chance. Tells the health where it is news.
    pub fn finish(&mut self, probe: Probe, answer: Result<(), String>, now: Instant, spread: f64) -> Option<bool> {
        self.in_flight = self.in_flight.saturating_sub(1);
        let state = self.states.get_mut(&probe.address).filter(|state| state.round == probe.round)?;
        let good = answer.is_ok();
        state.trouble = answer.err();
        let needed = if good { self.settings.healthy_after } else { self.settings.unhealthy_after };
        state.against = if state.healthy == Some(good) { 0 } else { state.against.saturating_add(1) };
        let is_news = state.healthy.is_none() || state.against >= needed.max(1);
        let is_news = is_news && state.healthy != Some(good);
        if is_news {
            state.healthy = Some(good);
            state.against = 0;
        }
        let jittered = self.settings.interval.mul_f64(0.8 + 0.4 * spread.clamp(0.0, 1.0));
        let due = now + if state.against > 0 { AGAIN.min(jittered) } else { jittered };
        state.due = Some(due);
        self.due.insert((due, probe.address));
        is_news.then_some(good)
    }

    /// What was wrong with the last answer.
    pub fn trouble(&self, address: &SocketAddr) -> Option<&str> {
        self.states.get(address)?.trouble.as_deref()
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(most: usize) -> (Checks, Instant) {
        let settings = Settings { interval: Duration::from_secs(10), healthy_after: 2, unhealthy_after: 3, most };
        (Checks::new(settings), Instant::now())
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    /// Answers in a row, and what is told after each.
    fn told(answers: &[bool]) -> Vec<Option<bool>> {
        let (mut checks, mut now) = checks(1);
        checks.want(address(1), now);
        let mut told = Vec::new();
        for good in answers {
            now += Duration::from_secs(20);
            let probe = checks.start(now).unwrap();
            let answer = if *good { Ok(()) } else { Err("refused".to_owned()) };
            told.push(checks.finish(probe, answer, now, 0.5));
        }
        told
    }

    #[test]
    fn the_first_answer_counts_and_later_ones_in_a_row() {
        const N: Option<bool> = None;
        let (y, n) = (Some(true), Some(false));
        assert_eq!(told(&[true, false, false, true, false, false, false, true, true]), [y, N, N, N, N, N, n, N, y]);
        assert_eq!(told(&[false, true, false, true, true, true]), [n, N, N, N, y, N]);
    }

    #[test]
    fn never_more_in_flight_than_allowed() {
        let (mut checks, now) = checks(3);
        (0..100).for_each(|port| checks.want(address(port), now));
        let probes: Vec<Probe> = std::iter::from_fn(|| checks.start(now)).collect();
        assert_eq!(probes.len(), 3);
        assert_eq!(checks.next_deadline(), None);
        checks.finish(probes[0], Ok(()), now, 0.0);
        assert_eq!(checks.next_deadline(), Some(now));
        assert!(checks.start(now).is_some() && checks.start(now).is_none());
    }

    #[test]
    fn probes_of_a_round_spread() {
        let (mut checks, now) = checks(2);
        for (port, spread) in [(1, 0.0), (2, 1.0)] {
            checks.want(address(port), now);
            let probe = checks.start(now).unwrap();
            checks.finish(probe, Ok(()), now, spread);
        }
        assert_eq!(checks.next_deadline(), Some(now + Duration::from_secs(8)));
        assert_eq!(checks.due.last().unwrap().0, now + Duration::from_secs(12));
    }

    #[test]
    fn an_unexpected_answer_is_doubted_at_once() {
        let (mut checks, now) = checks(1);
        checks.want(address(1), now);
        let probe = checks.start(now).unwrap();
        checks.finish(probe, Ok(()), now, 0.5);
        let later = now + Duration::from_secs(10);
        let probe = checks.start(later).unwrap();
        assert_eq!(checks.finish(probe, Err("no".to_owned()), later, 0.5), None);
        assert_eq!(checks.next_deadline(), Some(later + AGAIN));
        assert_eq!(checks.trouble(&address(1)), Some("no"));
    }

    #[test]
    fn an_answer_for_what_is_no_longer_wanted_says_nothing() {
        let (mut checks, now) = checks(1);
        checks.want(address(1), now);
        let probe = checks.start(now).unwrap();
        checks.unwant(address(1));
        checks.want(address(1), now);
        assert_eq!(checks.finish(probe, Ok(()), now, 0.5), None);
        let probe = checks.start(now).unwrap();
        assert_eq!(checks.finish(probe, Ok(()), now, 0.5), Some(true));
        checks.unwant(address(1));
        assert!(checks.is_empty() && checks.next_deadline().is_none());
    }
}
