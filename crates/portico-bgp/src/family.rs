//! Address families: IPv4 and IPv6 unicast, and something for each of them.

use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

const UNICAST: u8 = 1;

/// What RFC 4760 calls an address family and its subsequent family. It is not the `Family` of
/// portico-model: this crate knows nothing of Services, and numbers what goes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AfiSafi {
    /// IPv4 addresses of hosts.
    Ipv4Unicast,
    /// IPv6 addresses of hosts.
    Ipv6Unicast,
}

impl AfiSafi {
    /// In the order in which they are offered.
    pub const BOTH: [Self; 2] = [Self::Ipv4Unicast, Self::Ipv6Unicast];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::Ipv4Unicast
        } else {
            Self::Ipv6Unicast
        }
    }

    /// The family of a prefix.
    pub fn of_net(net: &IpNet) -> Self {
        Self::of(net.addr())
    }

    /// The address family identifier of BGP.
    pub fn afi(self) -> u16 {
        match self {
            Self::Ipv4Unicast => 1,
            Self::Ipv6Unicast => 2,
        }
    }

    /// The subsequent address family identifier of BGP: unicast.
    pub fn safi(self) -> u8 {
        UNICAST
    }

    /// `None` for what we do not speak of.
    pub fn from_wire(afi: u16, safi: u8) -> Option<Self> {
        match (afi, safi) {
            (1, UNICAST) => Some(Self::Ipv4Unicast),
            (2, UNICAST) => Some(Self::Ipv6Unicast),
            _ => None,
        }
    }

    /// The length of an address in bits.
    pub fn bits(self) -> u8 {
        match self {
            Self::Ipv4Unicast => 32,
            Self::Ipv6Unicast => 128,
        }
    }
}

impl fmt::Display for AfiSafi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4Unicast => "IPv4",
            Self::Ipv6Unicast => "IPv6",
        })
    }
}

/// A value for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerFamily<T> {
    /// The value for IPv4.
    pub v4: T,
    /// The value for IPv6.
    pub v6: T,
}

impl<T> PerFamily<T> {
    /// The value of a family.
    pub fn get(&self, family: AfiSafi) -> &T {
        match family {
            AfiSafi::Ipv4Unicast => &self.v4,
            AfiSafi::Ipv6Unicast => &self.v6,
        }
    }

    /// The value of a family, to be changed.
    pub fn get_mut(&mut self, family: AfiSafi) -> &mut T {
        match family {
            AfiSafi::Ipv4Unicast => &mut self.v4,
            AfiSafi::Ipv6Unicast => &mut self.v6,
        }
    }
}
