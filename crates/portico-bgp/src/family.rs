//! Address families: IPv4 and IPv6 unicast, and something for each of them.

use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

const UNICAST: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    pub fn of_net(net: &IpNet) -> Self {
        Self::of(net.addr())
    }

    pub fn afi(self) -> u16 {
        match self {
            Self::V4 => 1,
            Self::V6 => 2,
        }
    }

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

    /// Of an address.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerFamily<T> {
    pub v4: T,
    pub v6: T,
}

impl<T> PerFamily<T> {
    pub fn get(&self, family: Family) -> &T {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    pub fn get_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}
