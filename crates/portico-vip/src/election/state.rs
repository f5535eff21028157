//! What is known of an election at one moment: who owns the address, who takes part, what happened,
//! how often.

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
    pub role: Role,
    pub priority: u8,
    /// Who sent the last advert, and what it said.
    pub owner: Option<IpAddr>,
    /// Everybody whose adverts were heard.
    pub peers: Vec<Peer>,
    /// The last changes of role, newest last, at most [`TRANSITIONS`].
    pub transitions: Vec<Transition>,
    /// The last time that somebody else had the address.
    pub conflict: Option<(SystemTime, Conflict)>,
    /// The last advert of somebody who has no business here.
    pub stranger: Option<Stranger>,
    /// Why we cannot take part, for people: the link is not there, or our own address is not.
    pub trouble: Option<String>,
    pub counters: Counters,
}

impl State {
    pub fn new(priority: u8) -> State {
        State {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    pub priority: u8,
    pub last_heard: SystemTime,
}

/// An advert that was sent, or forged, by somebody who is not one of us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    pub at: SystemTime,
    /// Which may be forged.
    pub from: IpAddr,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub at: SystemTime,
    pub role: Role,
    pub reason: Reason,
}

/// How often things happened since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub adverts_sent: u64,
    pub adverts_received: u64,
    /// Adverts of our virtual router that did not count, by what was wrong with them.
    pub adverts_ignored: BTreeMap<&'static str, u64>,
    /// Those among them of strangers: unsigned, wrongly signed, not of a peer, from another link.
    pub strangers: BTreeMap<&'static str, u64>,
    /// Packets of ours that did not get out.
    pub send_errors: u64,
    /// Changes of role.
    pub transitions: u64,
    pub became_owner: u64,
    pub conflicts: u64,
    /// Gratuitous ARP packets and unsolicited neighbour advertisements.
    pub announcements: u64,
    /// Times that the addresses were put back after somebody took them off.
    pub restored: u64,
}
