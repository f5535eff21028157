//! Address families: IPv4 and IPv6 unicast, and something for each of them.

use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

const UNICAST: u8 = 1;

/// The two families of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families, IPv4 first.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// The family of a prefix.
    pub fn of_net(net: &IpNet) -> Self {
        Self::of(net.addr())
    }

    /// The address family identifier of BGP.
    pub fn afi(self) -> u16 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }

    /// The subsequent address family identifier of BGP: unicast.
    pub fn safi(self) -> u8 {
        UNICAST
    }

    /// `None` for what we do not speak of.
    pub fn from_wire(afi: u16, safi: u8) -> Option<Self> {
        match (afi, safi) {
            (1, UNICAST) => Some(Self::V4),
            (2, UNICAST) => Some(Self::V6),
            _ => None,
        }
    }

    /// The length of an address in bits.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
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
    /// The value for a family.
    pub fn get(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// The value for a family, to be changed.
    pub fn get_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}
