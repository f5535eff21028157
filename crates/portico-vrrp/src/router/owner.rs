//! What an owner does: it says so in time, keeps the kernel from removing the address, and leaves
//! without a gap.

use super::{Config, Output, Reason, Time, send, timing};
use std::net::IpAddr;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Owner {
    began: Time,
    /// The owner that left in favour of this router.
    predecessor: Option<IpAddr>,
    /// When the last advert was sent.
    sent: Time,
    /// When the last one out of turn was sent.
    asserted: Option<Time>,
    /// When the kernel was last told for how long it is to keep the address.
    refreshed: Time,
    /// We say that we leave, and go at this time at the latest.
    leaves_by: Option<Time>,
}

impl Owner {
    /// First the address, then its announcement on the link, and then the advert on which the owner
    /// of before drops it: no host still sends to a router that has stopped to answer.
    pub(super) fn begin(
        now: Time,
        reason: &Reason,
        config: &Config,
        out: &mut Vec<Output>,
    ) -> Self {
        out.push(Output::Take {
            lifetime: timing::lifetime(config.version, config.sent_interval()),
        });
        out.push(Output::Announce);
        send(config, config.priority, out);
        let predecessor = if let Reason::OwnerLeft(owner) = reason {
            Some(*owner)
        } else {
            None
        };
        Self {
            began: now,
            predecessor,
            sent: now,
            asserted: None,
            refreshed: now,
            leaves_by: None,
        }
    }

    pub(super) fn deadline(&self, config: &Config) -> Time {
        let interval = config.sent_interval();
        match self.leaves_by {
            None => self.sent + interval,
            Some(by) => by.min(self.sent + timing::leave_again(config.version, interval)),
        }
    }

    pub(super) fn silent_for(&self, now: Time) -> Duration {
        now.saturating_sub(self.sent)
    }

    /// An advert that our predecessor sent before it left, and that came after its leave.
    pub(super) fn overtook(&self, now: Time, from: IpAddr, config: &Config) -> bool {
        self.predecessor == Some(from) && now.saturating_sub(self.began) < config.sent_interval()
    }

    pub(super) fn leaves(&self) -> bool {
        self.leaves_by.is_some()
    }

    /// What it says: 0 if it leaves, so that every router that stays outranks it, and of two that
    /// leave one stays for now.
    pub(super) fn priority(&self, config: &Config) -> u8 {
        if self.leaves() { 0 } else { config.priority }
    }

    /// Whether it announced that it leaves, and no other router took over in time.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.leaves_by.is_some_and(|by| now >= by)
    }

    pub(super) fn leave(&mut self, now: Time, config: &Config, out: &mut Vec<Output>) {
        if self.leaves_by.is_none() {
            self.leaves_by = Some(now + timing::leave(config.version, config.sent_interval()));
            self.advertise(now, config, out);
        }
    }

    /// The address is refreshed if it could not wait for the next advert.
    pub(super) fn advertise(&mut self, now: Time, config: &Config, out: &mut Vec<Output>) {
        let interval = config.sent_interval();
        let lifetime = timing::lifetime(config.version, interval);
        if now.saturating_sub(self.refreshed) + interval > lifetime / 4 {
            out.push(Output::Take { lifetime });
            self.refreshed = now;
        }
        send(config, self.priority(config), out);
        self.sent = now;
    }

    /// An advert out of turn, at most four in an interval: no other host can make this one flood
    /// the link.
    pub(super) fn assert(&mut self, now: Time, config: &Config, out: &mut Vec<Output>) {
        let gap = config.sent_interval() / 4;
        if self
            .asserted
            .is_none_or(|last| now.saturating_sub(last) >= gap)
        {
            self.asserted = Some(now);
            self.advertise(now, config, out);
        }
    }
}
