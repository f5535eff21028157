//! What has to be known of a peer.

use crate::family::{AfiSafi, PerFamily};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How a session with one peer is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The AS of this node.
    pub local_as: u32,
    /// The AS that the peer has to have.
    pub peer_as: u32,
    /// Tells this speaker from all others.
    pub router_id: Ipv4Addr,
    /// In seconds: without a word for so long a session is over. 0: for ever.
    pub hold_time: u16,
    /// In seconds: between two words that only say that we live. A third of the hold time if it is
    /// not given.
    pub keepalive_time: Option<u16>,
    /// Attempts never wait for longer.
    pub longest_retry: Duration,
    /// In seconds: for so long the peer may keep our routes while this daemon restarts. `None`: not
    /// at all.
    pub restart_time: Option<u16>,
}

impl Config {
    /// Both are of the same AS.
    pub fn is_internal(&self) -> bool {
        self.local_as == self.peer_as
    }
}

/// How this node is reached from a peer, by family: on the link that the session goes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextHops {
    /// The address of this node in each family; `None` where it has none on that link.
    pub own: PerFamily<Option<IpAddr>>,
    /// The session itself goes over this family.
    pub session: Option<AfiSafi>,
}

impl NextHops {
    /// For routes of a family. Where the peer takes IPv6 for IPv4 and the session is one of IPv6,
    /// that is what is known to work.
    pub fn choose(&self, family: AfiSafi, ipv4_by_ipv6: bool) -> Option<IpAddr> {
        let over_v6 = self.session == Some(AfiSafi::Ipv6Unicast) && ipv4_by_ipv6;
        match family {
            AfiSafi::Ipv4Unicast if over_v6 => self.own.v6,
            AfiSafi::Ipv4Unicast => self.own.v4.or(self.own.v6.filter(|_| ipv4_by_ipv6)),
            AfiSafi::Ipv6Unicast => self.own.v6,
        }
    }
}
