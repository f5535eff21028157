//! What is known of an election at one moment: which node owns the address, which nodes take part,
//! what happened, and how often.

use portico_vrrp::{Conflict, Reason, Role};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

/// Changes of role that are remembered.
pub const TRANSITIONS: usize = 16;
/// Others that are remembered; on a link with more of them the one that was silent longest is
/// forgotten.
pub const PEERS: usize = 32;

/// What is known of the election now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The part of this node at present.
    pub role: Role,
    /// The priority of this node at present.
    pub priority: u8,
    /// The sender of the last advert, and what the advert said.
    pub owner: Option<IpAddr>,
    /// All routers whose adverts were heard.
    pub peers: Vec<Peer>,
    /// The last changes of role, newest last, at most [`TRANSITIONS`].
    pub transitions: Vec<Transition>,
    /// The last time that another host had the address.
    pub conflict: Option<(SystemTime, Conflict)>,
    /// The last advert of a sender outside of this election.
    pub stranger: Option<Stranger>,
    /// Why we cannot take part, for people: the link is not there, or our own address is not.
    pub trouble: Option<String>,
    /// How often things happened.
    pub counters: Counters,
}

impl State {
    /// The state before the start.
    pub fn new(priority: u8) -> Self {
        Self {
            role: Role::Stopped,
            priority,
            owner: None,
            peers: Vec::new(),
            transitions: Vec::new(),
            conflict: None,
            stranger: None,
            trouble: None,
            counters: Counters::default(),
        }
    }
}

/// Another router of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The priority in its last advert.
    pub priority: u8,
    /// When its last advert came.
    pub last_heard: SystemTime,
}

/// An advert that was sent, or forged, by a host outside of this election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// When it came.
    pub at: SystemTime,
    /// Which may be forged.
    pub from: IpAddr,
    /// Why it does not count.
    pub why: String,
}

/// A change of role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// When it happened.
    pub at: SystemTime,
    /// The new role.
    pub role: Role,
    /// Why it changed.
    pub reason: Reason,
}

/// How often things happened since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Adverts that were sent.
    pub adverts_sent: u64,
    /// Adverts of this virtual router that were accepted.
    pub adverts_received: u64,
    /// Adverts of our virtual router that did not count, by what was wrong with them.
    pub adverts_ignored: BTreeMap<&'static str, u64>,
    /// Those among them of strangers: unsigned, wrongly signed, not of a peer, from another link.
    pub strangers: BTreeMap<&'static str, u64>,
    /// Packets of ours that did not get out.
    pub send_errors: u64,
    /// Changes of role.
    pub transitions: u64,
    /// Times that this node became the owner.
    pub became_owner: u64,
    /// Times that another host had the address.
    pub conflicts: u64,
    /// Gratuitous ARP packets and unsolicited neighbour advertisements.
    pub announcements: u64,
    /// Times that the addresses were put back after another program deleted them.
    pub restored: u64,
}
