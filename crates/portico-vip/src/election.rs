//! Who has the address: drives `portico-vrrp` with real packets, and puts the address on the link.

use portico_vrrp::{Reason, Role};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// How one virtual router is to be driven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub router: portico_vrrp::Config,
    /// The link that has the addresses, for example `eth0`.
    pub interface: String,
    /// Prefix length with which the addresses are added.
    pub prefix: u8,
    /// Announcements are repeated so often after a take-over, and so far apart; then at `announce_every` while it is owned.
    pub announcements: u32,
    pub announcement_gap: Duration,
    pub announce_every: Option<Duration>,
    /// Own the address with the hardware address of the virtual router, on a link of its own.
    pub virtual_mac: bool,
}

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
}

/// Changes of role that are remembered.
pub const TRANSITIONS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
    pub priority: u8,
    pub last_heard: SystemTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub at: SystemTime,
    pub role: Role,
    pub reason: Reason,
}
