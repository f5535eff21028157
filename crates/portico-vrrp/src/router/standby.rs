//! What a standby waits for: the owner's silence, its leave, or the right to take over from one of
//! lower priority.

use super::{Config, Reason, Time, timing};
use crate::packet::Advert;
use std::net::IpAddr;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Standby {
    /// The owner as far as we know, with its priority: 0 if it said that it leaves.
    owner: Option<(IpAddr, u8)>,
    /// The time between the adverts of the owner: its own word counts, ours until there is one.
    interval: Duration,
    /// Then the owner counts as gone.
    silent_at: Time,
    /// Then we take over from an owner that works.
    preempt_at: Option<Time>,
    probed: bool,
    /// When we last ran.
    ran: Time,
}

pub(super) enum Due {
    Nothing,
    Probe,
    TakeOver(Reason),
}

impl Standby {
    pub(super) fn begin(now: Time, config: &Config) -> Self {
        let interval = config.sent_interval();
        let silent_at = now + timing::silence(config.version, interval, config.priority);
        Self {
            owner: None,
            interval,
            silent_at,
            preempt_at: None,
            probed: false,
            ran: now,
        }
    }

    /// The link was probed for the address, and the owner is still silent.
    pub(super) fn probed(&self) -> bool {
        self.probed
    }

    /// Between adverts we run only to know that we did.
    pub(super) fn deadline(&self) -> Time {
        self.probe_at()
            .unwrap_or(self.take_over_at())
            .min(self.ran + timing::attention(self.interval))
    }

    /// For how long we did not run does not count: the owner's adverts of that time may be lost, or
    /// not read yet.
    pub(super) fn notice_pause(&mut self, now: Time) {
        let missed = now.saturating_sub(std::mem::replace(&mut self.ran, now));
        if missed > timing::inattention(self.interval) {
            self.silent_at += missed;
            self.preempt_at = self.preempt_at.map(|at| at.saturating_add(missed));
        }
    }

    fn take_over_at(&self) -> Time {
        self.preempt_at
            .map_or(self.silent_at, |at| at.min(self.silent_at))
    }

    /// One interval before the end of the silence, so that there is time for an answer. An owner
    /// that leaves or is preempted has the address, and is not probed.
    fn probe_at(&self) -> Option<Time> {
        let silent = !self.probed && !self.owner_left() && self.take_over_at() == self.silent_at;
        silent.then(|| self.silent_at.saturating_sub(self.interval))
    }

    fn owner_left(&self) -> bool {
        matches!(self.owner, Some((_, 0)))
    }

    pub(super) fn due(&mut self, now: Time) -> Due {
        if now >= self.take_over_at() {
            Due::TakeOver(self.reason())
        } else if self.probe_at().is_some_and(|at| now >= at) {
            self.probed = true;
            Due::Probe
        } else {
            Due::Nothing
        }
    }

    fn reason(&self) -> Reason {
        match self.owner {
            Some((owner, 0)) => Reason::OwnerLeft(owner),
            Some((owner, _)) if self.take_over_at() != self.silent_at => Reason::Preempted(owner),
            owner => Reason::OwnerSilent {
                last: owner.map(|(owner, _)| owner),
            },
        }
    }

    pub(super) fn hear(&mut self, now: Time, from: IpAddr, advert: &Advert, config: &Config) {
        if advert.priority == 0 {
            return self.hear_leave(now, from, advert.interval, config);
        }
        if self.owner == Some((from, 0)) {
            return; // sent before it said that it leaves, and overtaken by that
        }
        let skew = timing::skew(config.version, advert.interval, config.priority);
        self.preempt_at = match config.preempt && advert.priority < config.priority {
            true => self.preempt_at.or(Some(
                self.silent_at
                    .max((now + skew).saturating_add(config.preempt_delay)),
            )),
            false => None,
        };
        let silent_at = now + timing::silence(config.version, advert.interval, config.priority);
        // Of two owners the lesser one is about to yield, and its word must not shorten the wait
        // for the other.
        let lesser = self
            .owner
            .is_some_and(|(owner, priority)| (priority, owner) > (advert.priority, from));
        self.silent_at = if lesser {
            silent_at.max(self.silent_at)
        } else {
            silent_at
        };
        self.owner = Some((from, advert.priority));
        self.interval = advert.interval;
        self.probed = false;
    }

    /// Only the owner's own leave counts: one of another router, or an old one, says nothing about
    /// the owner of now. It may be told again, and that must not put off the end.
    fn hear_leave(&mut self, now: Time, from: IpAddr, interval: Duration, config: &Config) {
        if self.owner.is_some_and(|(owner, _)| owner != from) {
            return;
        }
        self.owner = Some((from, 0));
        self.interval = interval;
        self.preempt_at = None;
        self.silent_at = self
            .silent_at
            .min(now + timing::skew(config.version, interval, config.priority));
    }

    /// The wait for silence is as long as it would have been with this priority from the start.
    pub(super) fn priority_changed(&mut self, before: u8, config: &Config) {
        let skew = |priority| timing::skew(config.version, self.interval, priority);
        self.silent_at = (self.silent_at + skew(config.priority)).saturating_sub(skew(before));
        if self
            .owner
            .is_some_and(|(_, priority)| priority >= config.priority)
        {
            self.preempt_at = None;
        }
    }
}
