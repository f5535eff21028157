//! Who has the address: drives `portico-vrrp` with real packets, and puts the address on the link.

mod state;

pub use state::{Counters, PEERS, Peer, State, TRANSITIONS, Transition};

use std::time::Duration;

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
