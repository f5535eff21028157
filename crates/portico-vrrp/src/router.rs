//! One node's part in one virtual router.

use crate::packet::Version;
use std::net::IpAddr;
use std::time::Duration;

/// Since some moment that does not change while the process lives, on a clock that goes on while the machine sleeps.
pub type Time = Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub version: Version,
    pub vrid: u8,
    /// The virtual addresses, all of one family.
    pub addresses: Vec<IpAddr>,
    /// The address we send from: the greater one wins between equals.
    pub own: IpAddr,
    /// 1 to 254; 255 is for who really has the address.
    pub priority: u8,
    /// Between adverts.
    pub interval: Duration,
    pub preempt: bool,
    /// For how long someone of higher priority waits before it takes over from an owner that works.
    pub preempt_delay: Duration,
    pub password: Option<[u8; 8]>,
    /// Others that may take part; empty with multicast, where everybody on the link may.
    pub peers: Vec<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The link is down, or we were told to stop.
    Stopped,
    Standby,
    Owner,
}

/// What happened. Inputs come in the order in which they happened; [`Input::Tick`] at (or after) each deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    Start,
    Tick,
    /// A VRRP packet that came in: the payload after the IP header. `hops` is its TTL or hop limit, `to` where it was sent.
    Packet {
        from: IpAddr,
        to: IpAddr,
        hops: u8,
        payload: &'a [u8],
    },
    /// The link lost its carrier or is gone.
    LinkDown,
    LinkUp,
    /// Health of what the address is for changed.
    Priority(u8),
    /// Somebody else on the link claims a virtual address (an ARP or neighbour packet from another hardware address).
    Claimed {
        address: IpAddr,
        by: [u8; 6],
    },
    /// Give the address to another and take no more part: `Output::Released` says when it is done.
    Release,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send an advert to the peers, or to the group where there are none.
    Send(Vec<u8>),
    /// Put the addresses on the link, and have the kernel take them off by itself after `lifetime` unless this comes again.
    Take { lifetime: Duration },
    /// Tell the link where the addresses are: gratuitous ARP, unsolicited neighbour advertisements.
    Announce,
    /// Take the addresses off the link.
    Drop,
    /// Ask the link whether somebody has the address (an ARP probe, a neighbour solicitation).
    Probe,
    /// The role changed.
    Became(Role, Reason),
    /// Somebody else has the address as well.
    Conflict(Conflict),
    /// After `Release`: it is over.
    Released,
}

/// Why a role changed, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    Started,
    /// No advert for the time after which an owner counts as gone.
    OwnerSilent {
        last: Option<IpAddr>,
    },
    /// The owner said that it stops.
    OwnerLeft(IpAddr),
    /// The owner's priority is lower than ours.
    Preempted(IpAddr),
    /// Someone else owns it, with a higher priority, or the same and a greater address.
    Outranked {
        by: IpAddr,
        priority: u8,
    },
    /// We did not run for longer than the others wait.
    Paused {
        missed: Duration,
    },
    LinkDown,
    Asked,
}

/// Somebody who is not part of the election has the address, or an owner of before still does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub address: IpAddr,
    pub by: [u8; 6],
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct Router {
    config: Config,
    role: Role,
    deadline: Option<Time>,
}

impl Router {
    pub fn new(config: Config) -> Self {
        Self { config, role: Role::Stopped, deadline: None }
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// When the next [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// What becomes of an input. Time never goes back; where it jumps ahead, we were paused.
    pub fn handle(&mut self, _now: Time, _input: Input<'_>) -> Vec<Output> {
        Vec::new()
    }
}
