//! The host to which packets of unknown connections are sent, and for how long.

use crate::election::State;
use portico_vrrp::{Reason, Role};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The time between two looks at whether the owner of before is still there.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks in a row without an answer, and it is not.
const MISSES: u32 = 2;
/// An owner that was silent shows by then whether its host lives.
const PROOF: Duration = Duration::from_millis(100);
/// The time between two looks at whether the rules are as they should be, where nothing else is to
/// be done.
const CHECK: Duration = Duration::from_secs(5);

pub(super) struct Course {
    relay_for: Duration,
    /// Since we are the owner.
    tenure: Option<Tenure>,
}

struct Tenure {
    /// Which it is, of all changes of role.
    number: u64,
    began: Instant,
    look_at: Instant,
    asked: bool,
    misses: u32,
    /// It said nothing before we took over: its host may be dead.
    doubted: bool,
    over: bool,
}

impl Course {
    pub(super) fn new(relay_for: Duration) -> Self {
        Self {
            relay_for,
            tenure: None,
        }
    }

    /// The host that gets packets of connections that this one does not know: for a standby the
    /// owner, for an owner the one before it.
    pub(super) fn follow(&mut self, now: Instant, state: &State) -> Option<IpAddr> {
        if self.relay_for.is_zero() {
            return None;
        }
        if state.role != Role::Owner {
            self.tenure = None;
            return state.owner.filter(|_| state.role == Role::Standby);
        }
        let (to, doubted) = match state.transitions.last()?.reason {
            Reason::OwnerLeft(to) | Reason::Preempted(to) => (to, false),
            Reason::OwnerSilent { last } => (last?, true),
            _ => return None,
        };
        let number = state.counters.transitions;
        let tenure = match &mut self.tenure {
            Some(tenure) if tenure.number == number => tenure,
            other => other.insert(Tenure::begin(now, number, doubted)),
        };
        tenure.over |= now.duration_since(tenure.began) >= self.relay_for;
        (!tenure.over).then_some(to)
    }

    pub(super) fn is_owner(&self) -> bool {
        self.tenure.is_some()
    }

    /// The link is to be asked whether the owner of before is still there, and what it answered
    /// since the last time counts.
    pub(super) fn is_to_look(&self, now: Instant) -> bool {
        self.tenure
            .as_ref()
            .is_some_and(|tenure| tenure.look_at <= now)
    }

    /// The link was asked; before that it had answered, or not.
    pub(super) fn saw(&mut self, now: Instant, answered: bool) {
        let Some(tenure) = &mut self.tenure else {
            return;
        };
        if tenure.asked {
            tenure.misses = if answered { 0 } else { tenure.misses + 1 };
            tenure.over |= tenure.misses >= if tenure.doubted { 1 } else { MISSES };
            tenure.doubted = false;
        }
        tenure.asked = true;
        tenure.look_at = now + if tenure.doubted { PROOF } else { LOOK };
    }

    /// How long there is nothing to do, if nothing happens.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        match &self.tenure {
            Some(tenure) if !tenure.over => tenure.look_at.saturating_duration_since(now),
            _ => CHECK,
        }
    }
}

impl Tenure {
    fn begin(now: Instant, number: u64, doubted: bool) -> Self {
        Self {
            number,
            began: now,
            look_at: now,
            asked: false,
            misses: 0,
            doubted,
            over: false,
        }
    }
}

#[cfg(test)]
mod tests;
