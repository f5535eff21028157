//! One node's part in one virtual router.
//!
//! ```text
//!            Start, LinkUp                 silence, the owner left, or its priority is lower
//!  Stopped ────────────────▶ Standby ──────────────────────────────────────────────────────▶ Owner
//!     ▲                         │  ◀──────────────────────────────────────────────────────    │
//!     └──── LinkDown, Release ──┘          outranked by another owner, or paused              │
//!     └──────────────────────────── LinkDown, Release (once another has taken over) ──────────┘
//! ```
//! RFC 9568 section 6.4 and, where keepalived is stricter or faster, as it does.

mod accept;
mod config;
mod owner;
mod standby;
pub mod timing;

pub use accept::{Refused, screen};
pub use config::{Config, Unfit};

use crate::packet::{self, Advert};
use owner::Owner;
use standby::{Due, Standby};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Since some moment that does not change while the process lives, on a clock that goes on while
/// the machine sleeps.
pub type Time = Duration;

/// A conflict is told, and the address defended, at most this often (RFC 5227 would even allow one
/// in ten seconds).
const DEFEND: Duration = Duration::from_secs(1);

/// The part of this node in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The link is down, or we were told to stop.
    Stopped,
    /// Another router owns the address, or none does yet.
    Standby,
    /// This node answers for the address.
    Owner,
}

/// What happened. Inputs come in the order in which they happened; [`Input::Tick`] at (or after)
/// each deadline, once the packets that came before are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Takes part from now on.
    Start,
    /// A deadline has come.
    Tick,
    /// A VRRP packet that came in: the payload after the IP header. `hops` is its TTL or hop limit,
    /// `to` where it was sent.
    Packet {
        /// The sender's address.
        from: IpAddr,
        /// The destination: the group, or this node.
        to: IpAddr,
        /// The TTL or hop limit that is left.
        hops: u8,
        /// The bytes after the IP header.
        payload: &'a [u8],
    },
    /// The link lost its carrier or is gone.
    LinkDown,
    /// The link has its carrier again.
    LinkUp,
    /// Health of what the address is for changed.
    Priority(u8),
    /// Another host on the link claims a virtual address (an ARP or neighbour packet from another
    /// hardware address). A new owner claims it just before its advert comes, so a claim is judged
    /// only when that advert has had the time to arrive.
    Claimed {
        /// The address that is claimed.
        address: IpAddr,
        /// The hardware address of the host that claims it.
        by: [u8; 6],
    },
    /// Give the address to another and take no more part: `Output::Released` says when it is done.
    Release,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send an advert to the group.
    Send(Vec<u8>),
    /// Send an advert to one peer: in place of `Send`, and once for each, where there are peers.
    SendTo(IpAddr, Vec<u8>),
    /// Put the addresses on the link, and have the kernel take them off by itself after `lifetime`
    /// unless this comes again.
    Take {
        /// How long the kernel keeps the addresses.
        lifetime: Duration,
    },
    /// Tell the link where the addresses are: gratuitous ARP, unsolicited neighbour advertisements.
    Announce,
    /// Take the addresses off the link, if they are there.
    Drop,
    /// Ask the link whether any host has the address (an ARP probe, a neighbour solicitation).
    Probe,
    /// The role changed.
    Became(Role, Reason),
    /// Another host has the address as well.
    Conflict(Conflict),
    /// An advert of this virtual router.
    Heard {
        /// The sender's address.
        from: IpAddr,
        /// What it says.
        advert: Advert,
    },
    /// A packet that was not for us or not right.
    Ignored {
        /// The sender's address.
        from: IpAddr,
        /// What is wrong with it.
        why: Refused,
    },
    /// After `Release`: it is over.
    Released,
}

/// Why a role changed, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The router has started.
    Started,
    /// No advert for the time after which an owner counts as gone.
    OwnerSilent {
        /// The owner that was heard last; `None` if none was.
        last: Option<IpAddr>,
    },
    /// The owner said that it stops.
    OwnerLeft(IpAddr),
    /// The owner's priority is lower than ours.
    Preempted(IpAddr),
    /// Another router owns it, with a higher priority, or the same and a greater address.
    Outranked {
        /// The router that owns it.
        by: IpAddr,
        /// The priority of that router.
        priority: u8,
    },
    /// We did not run for longer than the others wait.
    Paused {
        /// How long this node did not run.
        missed: Duration,
    },
    /// The link lost its carrier or is gone.
    LinkDown,
    /// The link has its carrier again.
    LinkUp,
    /// The router was told to stop.
    Asked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => write!(f, "started"),
            Self::OwnerSilent { last: Some(last) } => write!(f, "no advert from {last} any more"),
            Self::OwnerSilent { last: None } => write!(f, "no advert from anybody"),
            Self::OwnerLeft(owner) => write!(f, "{owner} gave it up"),
            Self::Preempted(owner) => write!(f, "{owner} has a lower priority"),
            Self::Outranked { by, priority } => write!(f, "{by} has it with priority {priority}"),
            Self::Paused { missed } => write!(f, "did not run for {missed:.1?}"),
            Self::LinkDown => write!(f, "the link is down"),
            Self::LinkUp => write!(f, "the link is up"),
            Self::Asked => write!(f, "asked to stop"),
        }
    }
}

/// A host outside of the election has the address, or a former owner still does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The virtual address.
    pub address: IpAddr,
    /// The hardware address of the other host.
    pub by: [u8; 6],
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Router {
    config: Config,
    state: State,
    /// Started, and not asked to stop since.
    started: bool,
    link: bool,
    /// When the address was last defended, or a conflict told.
    defended: Option<Time>,
}

#[derive(Clone, Debug)]
enum State {
    Stopped,
    Standby(Standby),
    Owner(Owner),
}

impl Router {
    /// Stopped until [`Input::Start`]. The link is taken to be up until [`Input::LinkDown`].
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Stopped,
            started: false,
            link: true,
            defended: None,
        }
    }

    /// The part of this node at present.
    pub fn role(&self) -> Role {
        match self.state {
            State::Stopped => Role::Stopped,
            State::Standby(_) => Role::Standby,
            State::Owner(_) => Role::Owner,
        }
    }

    /// The configuration, with the priority of now.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When the next [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Stopped => None,
            State::Standby(standby) => Some(standby.deadline()),
            State::Owner(owner) => Some(owner.deadline(&self.config)),
        }
    }

    /// What becomes of an input. Time never goes back; where it jumps ahead, we were paused.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.notice_pause(now, &mut out);
        match input {
            Input::Start => self.start(now, &mut out),
            Input::Tick => self.tick(now, &mut out),
            Input::Packet {
                from,
                to,
                hops,
                payload,
            } => self.packet(now, (from, to), hops, payload, &mut out),
            Input::LinkDown => self.link_down(&mut out),
            Input::LinkUp => self.link_up(now, &mut out),
            Input::Priority(priority) => self.priority(now, priority, &mut out),
            Input::Claimed { address, by } => self.claimed(now, Conflict { address, by }, &mut out),
            Input::Release => self.release(now, &mut out),
        }
        out
    }

    /// An owner that did not run for longer than the others wait may have been replaced: it is one
    /// no more, and says nothing.
    fn notice_pause(&mut self, now: Time, out: &mut Vec<Output>) {
        if let State::Standby(standby) = &mut self.state {
            standby.notice_pause(now);
        }
        let State::Owner(owner) = &self.state else {
            return;
        };
        let missed = owner.silent_for(now);
        if missed <= timing::patience(self.config.sent_interval()) {
            return;
        }
        match owner.leaves() {
            true => self.stop(Reason::Asked, out),
            false => {
                out.push(Output::Drop);
                self.stand_by(now, Reason::Paused { missed }, out);
            }
        }
    }

    /// Whatever an earlier process left is removed.
    fn start(&mut self, now: Time, out: &mut Vec<Output>) {
        if !matches!(self.state, State::Stopped) || std::mem::replace(&mut self.started, true) {
            return;
        }
        out.push(Output::Drop);
        if self.link {
            self.stand_by(now, Reason::Started, out);
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Output>) {
        match &mut self.state {
            State::Stopped => {}
            State::Standby(standby) => match standby.due(now) {
                Due::Nothing => {}
                Due::Probe => out.push(Output::Probe),
                Due::TakeOver(reason) => self.take_over(now, reason, out),
            },
            State::Owner(owner) if owner.is_over(now) => self.stop(Reason::Asked, out),
            State::Owner(owner) => {
                if now >= owner.deadline(&self.config) {
                    owner.advertise(now, &self.config, out);
                }
            }
        }
    }

    fn packet(
        &mut self,
        now: Time,
        (from, to): (IpAddr, IpAddr),
        hops: u8,
        payload: &[u8],
        out: &mut Vec<Output>,
    ) {
        if matches!(self.state, State::Stopped) {
            return;
        }
        let advert = match accept::accept(&self.config, from, to, hops, payload) {
            Ok(advert) => advert,
            Err(why) => return out.push(Output::Ignored { from, why }),
        };
        out.push(Output::Heard {
            from,
            advert: advert.clone(),
        });
        match &mut self.state {
            State::Stopped => {}
            State::Standby(standby) => standby.hear(now, from, &advert, &self.config),
            State::Owner(_) => self.hear_rival(now, from, &advert, out),
        }
    }

    /// One of the two yields: one that leaves yields to any other, otherwise the one with the lower
    /// priority or the lesser address yields.
    fn hear_rival(&mut self, now: Time, from: IpAddr, advert: &Advert, out: &mut Vec<Output>) {
        let State::Owner(owner) = &mut self.state else {
            return;
        };
        let stale = advert.priority > 0 && owner.overtook(now, from, &self.config);
        let outranked = (advert.priority, from) > (owner.priority(&self.config), self.config.own);
        match (outranked, owner.leaves()) {
            _ if stale => {}
            (true, true) => self.stop(Reason::Asked, out),
            (true, false) => {
                out.push(Output::Drop);
                self.stand_by(
                    now,
                    Reason::Outranked {
                        by: from,
                        priority: advert.priority,
                    },
                    out,
                );
                self.follow(now, from, advert);
            }
            (false, true) => {}
            (false, false) => {
                owner.assert(now, &self.config, out);
                if advert.priority > 0 && self.may_defend(now) {
                    out.push(Output::Announce); // the other one has announced itself
                }
            }
        }
    }

    fn follow(&mut self, now: Time, from: IpAddr, advert: &Advert) {
        if let State::Standby(standby) = &mut self.state {
            standby.hear(now, from, advert, &self.config);
        }
    }

    fn link_down(&mut self, out: &mut Vec<Output>) {
        self.link = false;
        match &self.state {
            State::Owner(owner) if owner.leaves() => self.stop(Reason::Asked, out),
            _ => self.stop(Reason::LinkDown, out),
        }
    }

    fn link_up(&mut self, now: Time, out: &mut Vec<Output>) {
        self.link = true;
        if self.started && matches!(self.state, State::Stopped) {
            self.stand_by(now, Reason::LinkUp, out);
        }
    }

    /// The others learn of it at once, so that a better one can begin to wait for its turn.
    fn priority(&mut self, now: Time, priority: u8, out: &mut Vec<Output>) {
        let priority = priority.clamp(1, 254);
        let before = std::mem::replace(&mut self.config.priority, priority);
        match &mut self.state {
            State::Standby(standby) => standby.priority_changed(before, &self.config),
            State::Owner(owner) if priority != before && !owner.leaves() => {
                owner.assert(now, &self.config, out)
            }
            _ => {}
        }
    }

    /// A claim from outside of the election does not decide it, since every host on the link can
    /// make one. A standby takes over nevertheless, an owner defends its address, and the conflict
    /// is reported.
    fn claimed(&mut self, now: Time, conflict: Conflict, out: &mut Vec<Output>) {
        if !self.config.addresses.contains(&conflict.address) {
            return;
        }
        let defends = match &self.state {
            State::Stopped => return,
            State::Standby(standby) if !standby.probed() => return, // the owner announces itself
            State::Owner(owner) if owner.leaves() => return,        // it has come to who follows us
            State::Standby(_) => false,
            State::Owner(_) => true,
        };
        if self.may_defend(now) {
            out.push(Output::Conflict(conflict));
            out.extend(defends.then_some(Output::Announce));
        }
    }

    fn may_defend(&mut self, now: Time) -> bool {
        let may = self
            .defended
            .is_none_or(|last| now.saturating_sub(last) >= DEFEND);
        if may {
            self.defended = Some(now);
        }
        may
    }

    /// An owner says that it leaves, and goes when another has come: until then it still has the
    /// address, and does its work.
    fn release(&mut self, now: Time, out: &mut Vec<Output>) {
        self.started = false;
        match &mut self.state {
            State::Stopped => out.push(Output::Released),
            State::Standby(_) => self.stop(Reason::Asked, out),
            State::Owner(owner) => owner.leave(now, &self.config, out),
        }
    }

    fn take_over(&mut self, now: Time, reason: Reason, out: &mut Vec<Output>) {
        let owner = Owner::begin(now, &reason, &self.config, out);
        out.push(Output::Became(Role::Owner, reason));
        self.state = State::Owner(owner);
    }

    fn stand_by(&mut self, now: Time, reason: Reason, out: &mut Vec<Output>) {
        self.state = State::Standby(Standby::begin(now, &self.config));
        out.push(Output::Became(Role::Standby, reason));
    }

    fn stop(&mut self, reason: Reason, out: &mut Vec<Output>) {
        let before = std::mem::replace(&mut self.state, State::Stopped);
        if matches!(before, State::Owner(_)) {
            out.push(Output::Drop);
        }
        let asked = reason == Reason::Asked;
        if !matches!(before, State::Stopped) {
            out.push(Output::Became(Role::Stopped, reason));
        }
        out.extend(asked.then_some(Output::Released));
    }
}

/// Sends an advert to the group, or to each peer.
fn send(config: &Config, priority: u8, out: &mut Vec<Output>) {
    let advert = Advert {
        version: config.version,
        vrid: config.vrid,
        priority,
        interval: config.interval,
        addresses: config.addresses.clone(),
        password: config.password,
    };
    if config.peers.is_empty() {
        out.push(Output::Send(
            advert.encode(config.own, packet::group(config.own)),
        ));
    }
    out.extend(
        config
            .peers
            .iter()
            .map(|&peer| Output::SendTo(peer, advert.encode(config.own, peer))),
    );
}

#[cfg(test)]
mod tests;
