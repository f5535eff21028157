//! Whose turn it is, decided without a lock or a clock.

use crate::shares::Flow;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// After this long, time that was used counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Users that used less than this many seconds of late are forgotten.
const NOTHING: f64 = 1e-4;
/// With more users than this, those that used nothing of late are forgotten.
const MANY: usize = 1_024;

pub(super) type Ticket = u64;

/// Seconds that a user had the processor, of late.
#[derive(Clone, Copy)]
struct Used {
    seconds: f64,
    at: Instant,
}

impl Used {
    fn by(self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.seconds * (-passed / HALF_LIFE.as_secs_f64()).exp2()
    }
}

struct Waiter<C> {
    ticket: Ticket,
    /// When its request began.
    since: Instant,
    flow: Flow,
    call: C,
}

/// The requests that have a turn and those that wait for one. `C` is what calls a waiter.
pub(super) struct Line<C> {
    places: usize,
    busy: usize,
    used: HashMap<Flow, Used>,
    waiting: Vec<Waiter<C>>,
    next: Ticket,
}

impl<C> Line<C> {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places,
            busy: 0,
            used: HashMap::new(),
            waiting: Vec::new(),
            next: 0,
        }
    }

    /// Ask for a turn: `None` if it is at once, otherwise a ticket. Of one user's requests the
    /// oldest goes first, so that it is done before the next is begun.
    pub(super) fn ask(&mut self, flow: &Flow, since: Instant, call: C) -> Option<Ticket> {
        if self.busy < self.places {
            self.busy += 1;
            return None;
        }
        self.next += 1;
        self.waiting.push(Waiter {
            ticket: self.next,
            since,
            flow: flow.clone(),
            call,
        });
        Some(self.next)
    }

    /// Wait no more.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<C> {
        let at = self
            .waiting
            .iter()
            .position(|waiter| waiter.ticket == ticket)?;
        Some(self.waiting.remove(at).call)
    }

    /// Ends a turn that took this long, and returns the next request.
    pub(super) fn done(&mut self, flow: &Flow, took: Duration, now: Instant) -> Option<(Flow, C)> {
        let seconds = self.used(flow, now) + took.as_secs_f64();
        self.used.insert(flow.clone(), Used { seconds, at: now });
        if self.used.len() > MANY {
            self.used.retain(|_, used| used.by(now) > NOTHING);
        }
        let least = self
            .waiting
            .iter()
            .enumerate()
            .map(|(at, waiter)| (self.burden(&waiter.flow, now), waiter.since, at))
            .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        match least {
            Some((_, _, at)) => {
                let Waiter { flow, call, .. } = self.waiting.remove(at);
                Some((flow, call))
            }
            None => {
                self.busy = self.busy.saturating_sub(1);
                None
            }
        }
    }

    fn used(&self, flow: &Flow, now: Instant) -> f64 {
        self.used.get(flow).map_or(0.0, |used| used.by(now))
    }

    fn burden(&self, flow: &Flow, now: Instant) -> f64 {
        self.used(flow, now) / flow.level.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shares::Level;

    fn flow(level: Level, name: &str) -> Flow {
        Flow {
            level,
            name: name.into(),
        }
    }

    const TURN: Duration = Duration::from_millis(10);

    /// Every user always wants another turn; how many of a thousand each got.
    fn turns(flows: &[Flow]) -> Vec<usize> {
        let (mut line, mut now) = (Line::new(1), Instant::now());
        let mut counts = vec![0; flows.len()];
        assert_eq!(line.ask(&flows[0], now, 0), None);
        for (n, flow) in flows.iter().enumerate().skip(1) {
            assert!(line.ask(flow, now, n).is_some());
        }
        let mut current = 0;
        for _ in 0..1_000 {
            counts[current] += 1;
            line.ask(&flows[current], now, current);
            now += TURN;
            let (flow, next) = line.done(&flows[current], TURN, now).unwrap();
            assert_eq!(flow, flows[next]);
            current = next;
        }
        counts
    }

    #[test]
    fn users_of_a_level_get_alike_however_many_requests_they_have() {
        let (ann, bob) = (flow(Level::People, "ann"), flow(Level::People, "bob"));
        let mut flows = vec![ann; 9];
        flows.push(bob);
        let counts = turns(&flows);
        assert!((480..=520).contains(&counts[9]), "{counts:?}");
    }

    #[test]
    fn levels_get_by_their_weight() {
        let counts = turns(&[
            flow(Level::System, "a"),
            flow(Level::People, "b"),
            flow(Level::Strangers, "c"),
        ]);
        assert!(
            counts[0] > 500 && counts[1] > 250 && counts[2] > 120,
            "{counts:?}"
        );
    }

    #[test]
    fn places_are_used_and_left() {
        let now = Instant::now();
        let (ann, bob) = (flow(Level::People, "ann"), flow(Level::People, "bob"));
        let mut line = Line::new(2);
        assert_eq!(line.ask(&ann, now, 'a'), None);
        assert_eq!(line.ask(&ann, now, 'b'), None);
        let ticket = line.ask(&bob, now, 'c').unwrap();
        assert_eq!(line.leave(ticket), Some('c'));
        assert_eq!(line.done(&ann, TURN, now), None);
        assert_eq!(line.ask(&bob, now, 'd'), None);
        assert!(line.ask(&bob, now, 'e').is_some());
        assert_eq!(line.done(&bob, TURN, now), Some((bob, 'e')));
    }

    #[test]
    fn of_one_user_the_oldest_request_goes_first() {
        let (mut line, start) = (Line::new(1), Instant::now());
        let ann = flow(Level::People, "ann");
        assert_eq!(line.ask(&ann, start, 'x'), None);
        for (second, call) in [(3, 'c'), (1, 'a'), (2, 'b')] {
            assert!(
                line.ask(&ann, start + Duration::from_secs(second), call)
                    .is_some()
            );
        }
        let mut called = || line.done(&ann, TURN, start).map(|(_, call)| call);
        assert_eq!(
            [called(), called(), called(), called()],
            [Some('a'), Some('b'), Some('c'), None]
        );
    }

    #[test]
    fn what_was_used_long_ago_is_forgotten() {
        let (mut line, now) = (Line::<()>::new(1), Instant::now());
        for n in 0..2 * MANY {
            let flow = flow(Level::People, &n.to_string());
            line.done(&flow, TURN, now + Duration::from_secs(n as u64));
        }
        assert!(line.used.len() <= MANY + 1);
    }
}
