//! How a virtual router is set up, and what cannot be.

use crate::packet::{HOPS, Version};
use std::net::IpAddr;
use std::time::Duration;

/// How a virtual router is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The version of VRRP that it speaks.
    pub version: Version,
    /// The number of the virtual router, 1 to 255.
    pub vrid: u8,
    /// The virtual addresses, all of one family.
    pub addresses: Vec<IpAddr>,
    /// The address we send from: the greater one wins between equals.
    pub own: IpAddr,
    /// 1 to 254; 255 belongs to a router that has the address as its own.
    pub priority: u8,
    /// The time between adverts.
    pub interval: Duration,
    /// Whether it takes over from an owner of lower priority that works.
    pub preempt: bool,
    /// How long a router of higher priority waits before it takes over from an owner that works.
    pub preempt_delay: Duration,
    /// Version 2 alone: the simple password.
    pub password: Option<[u8; 8]>,
    /// Others that may take part; empty with multicast, where every host on the link may.
    pub peers: Vec<IpAddr>,
    /// The least hop limit of a peer's adverts: 255 where no router is between us, one less for
    /// each that is, and 0 for any. What goes to the group must have 255 in any case.
    pub least_hops: u8,
}

/// Why a [`Config`] cannot work. A router that is driven with it all the same does not panic, and
/// finds no other router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum Unfit {
    #[error("a virtual router id is 1 to 255")]
    Vrid,
    #[error("a priority is 1 to 254, not {0}")]
    Priority(u8),
    #[error("there are {0} virtual addresses, where 1 to 255 are possible")]
    Addresses(usize),
    #[error("{address} is not of the family of {own}, from which we send")]
    Family { address: IpAddr, own: IpAddr },
    #[error("version 2 of VRRP is for IPv4 only; take version 3")]
    Version2,
    #[error(
        "an interval of {0:?} cannot be told: version 2 has whole seconds up to 255, version 3 \
         steps of 10ms up to 40.95s"
    )]
    Interval(Duration),
    #[error("version 3 of VRRP has no password; take version 2 or none")]
    Password,
    #[error("{0} is ours, so it cannot be a peer")]
    Peer(IpAddr),
}

impl Config {
    /// What peers' adverts have if no router is between and nothing else is known: keepalived leaves
    /// the hop limit of IPv6 packets to a peer to its kernel (64, mostly).
    pub fn usual_least_hops(own: IpAddr) -> u8 {
        if own.is_ipv4() { HOPS } else { 0 }
    }

    /// Whether a router can work with this configuration.
    pub fn check(&self) -> Result<(), Unfit> {
        let other_family = |address: &&IpAddr| address.is_ipv4() != self.own.is_ipv4();
        let stranger = self.addresses.iter().chain(&self.peers).find(other_family);
        match self {
            Self { vrid: 0, .. } => Err(Unfit::Vrid),
            Self {
                priority: priority @ (0 | 255),
                ..
            } => Err(Unfit::Priority(*priority)),
            _ if !(1..=255).contains(&self.addresses.len()) => {
                Err(Unfit::Addresses(self.addresses.len()))
            }
            _ if stranger.is_some() => Err(Unfit::Family {
                address: *stranger.unwrap_or(&self.own),
                own: self.own,
            }),
            Self {
                version: Version::V2,
                ..
            } if self.own.is_ipv6() => Err(Unfit::Version2),
            Self {
                version: Version::V3,
                password: Some(_),
                ..
            } => Err(Unfit::Password),
            _ if self.sent_interval() != self.interval => Err(Unfit::Interval(self.interval)),
            _ if self.peers.contains(&self.own) => Err(Unfit::Peer(self.own)),
            _ => Ok(()),
        }
    }

    /// The interval that adverts can tell of and we keep: ours in whole seconds or centiseconds.
    pub fn sent_interval(&self) -> Duration {
        self.version.interval(self.interval)
    }
}
