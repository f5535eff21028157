//! Ranges of addresses, and the blocks that they are divided into.

use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The first to the last address of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

impl AddressRange {
    /// `None` where the ends are not of one family, or in the wrong order.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// The lowest address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// Whether it is a range of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// Whether the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }

    /// Whether the two ranges have an address in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_ipv4() == other.is_ipv4() && self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for AddressRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "neither a network (192.0.2.0/24) nor a range (192.0.2.10-192.0.2.20)";
        let Some((first, last)) = text.split_once('-') else {
            let network: IpNet = text.parse().map_err(|_| FORM)?;
            return Ok(Self {
                first: network.network(),
                last: network.broadcast(),
            });
        };
        let (first, last) = (
            first.trim().parse().map_err(|_| FORM)?,
            last.trim().parse().map_err(|_| FORM)?,
        );
        Self::new(first, last).ok_or("the ends are not of one family, or the wrong way round")
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// The network of 256 addresses, an AddressBlock, that an address is in.
pub fn block_of(address: IpAddr) -> IpNet {
    match address {
        IpAddr::V4(v4) => {
            let network = Ipv4Addr::from_bits(v4.to_bits() & !0xff);
            ipnet::Ipv4Net::new_assert(network, 24).into()
        }
        IpAddr::V6(v6) => {
            let network = Ipv6Addr::from_bits(v6.to_bits() & !0xff);
            ipnet::Ipv6Net::new_assert(network, 120).into()
        }
    }
}

/// The name of the AddressBlock for a network: `192.0.2.0-24`, `2001-db8-0-0-0-0-0-100-120`.
pub fn block_name(network: IpNet) -> String {
    match network {
        IpNet::V4(v4) => format!("{}-{}", v4.addr(), v4.prefix_len()),
        IpNet::V6(v6) => {
            let groups: Vec<String> = v6
                .addr()
                .segments()
                .iter()
                .map(|group| format!("{group:x}"))
                .collect();
            format!("{}-{}", groups.join("-"), v6.prefix_len())
        }
    }
}
