//! The addresses and node ports that Services may own, and which free one a Service gets when it
//! does not ask for one.
//!
//! The low end of a range is a band for numbers that clients choose; the server hands out the rest
//! first and the band only when nothing else is left, so that a chosen number is seldom taken.

use super::types::{IPV4, IPV6};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use thiserror::Error;

/// What the server may hand out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// One or two, of different families; the first is the family a Service has unless it asks for
    /// another.
    cluster: Vec<Cidr>,
    /// The node ports that are handed out.
    pub node_ports: PortRanges,
}

/// Why a range cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RangeError {
    #[error("{0:?} is not an address range such as 10.96.0.0/16 or fd00:10:96::/112")]
    NotCidr(String),
    #[error("{0:?} has bits set beyond the prefix length")]
    HostBits(String),
    #[error("{0:?} is too wide: an IPv6 range for Services has a prefix of at least 64 bits")]
    TooWide(String),
    #[error("{0:?} has no usable address")]
    TooNarrow(String),
    #[error("give one address range, or two of different families, not {0:?}")]
    Families(String),
    #[error("{0:?} is not a port range such as 30000-32767, 30000+2767 or 10000-20000,30000-32767")]
    NotPorts(String),
}

impl Ranges {
    /// Ranges that fit together.
    pub fn new(cluster: Vec<Cidr>, node_ports: PortRanges) -> Result<Self, RangeError> {
        match cluster.as_slice() {
            [_] => {}
            [first, second] if first.family() != second.family() => {}
            other => {
                let texts: Vec<String> = other.iter().map(ToString::to_string).collect();
                return Err(RangeError::Families(texts.join(",")));
            }
        }
        Ok(Self {
            cluster,
            node_ports,
        })
    }

    /// Reads the texts of the flags: `10.96.0.0/16,fd00:10:96::/112` and `30000-32767`.
    pub fn parse(cluster: &str, node_ports: &str) -> Result<Self, RangeError> {
        let cluster = cluster
            .split(',')
            .map(|part| part.trim().parse())
            .collect::<Result<_, _>>()?;
        Self::new(cluster, node_ports.parse()?)
    }

    /// The address ranges as they are written, the first family first.
    pub fn cluster_texts(&self) -> Vec<String> {
        self.cluster.iter().map(ToString::to_string).collect()
    }

    /// The first address of each range, which the `kubernetes` Service has.
    pub fn first_addresses(&self) -> Vec<IpAddr> {
        self.cluster.iter().map(|range| range.address(0)).collect()
    }

    /// The family of the first cluster range.
    pub fn primary_family(&self) -> &'static str {
        self.cluster.first().map_or(IPV4, Cidr::family)
    }

    /// Whether there is a cluster range of each family.
    pub fn is_dual_stack(&self) -> bool {
        self.cluster.len() == 2
    }

    /// The cluster range of a family.
    pub fn of_family(&self, family: &str) -> Option<&Cidr> {
        self.cluster.iter().find(|range| range.family() == family)
    }
}

/// The family that an address belongs to.
pub(crate) fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { IPV4 } else { IPV6 }
}

pub(crate) fn other_family(family: &str) -> &'static str {
    if family == IPV4 { IPV6 } else { IPV4 }
}

/// A range of addresses. Usable are all but the first and, for IPv4, the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    pub fn family(&self) -> &'static str {
        family_of(self.network)
    }

    fn host_bits(&self) -> u32 {
        u32::from(if self.network.is_ipv4() { 32 } else { 128u8 } - self.prefix)
    }

    /// How many addresses can be used.
    pub fn size(&self) -> u128 {
        let all = 1u128.checked_shl(self.host_bits()).unwrap_or(u128::MAX);
        all.saturating_sub(if self.network.is_ipv4() { 2 } else { 1 })
    }

    /// The size of the band for numbers that clients choose.
    pub fn band(&self) -> u128 {
        let all = 1u128.checked_shl(self.host_bits()).unwrap_or(u128::MAX);
        if all <= 16 {
            0
        } else {
            (all / 16).clamp(16, 256)
        }
    }

    /// The usable address of that index, counted from 0.
    pub fn address(&self, index: u128) -> IpAddr {
        let number = number(self.network).saturating_add(index).saturating_add(1);
        match self.network {
            IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            IpAddr::V6(_) => Ipv6Addr::from(number).into(),
        }
    }

    /// Whether the address is one that can be used.
    pub fn has(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.network.is_ipv4()
            && number(address)
                .checked_sub(number(self.network))
                .is_some_and(|at| at >= 1 && at <= self.size())
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => v6.into(),
    }
}

impl FromStr for Cidr {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let wrong = || RangeError::NotCidr(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let network: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        if prefix > if network.is_ipv4() { 32 } else { 128 } {
            return Err(wrong());
        }
        if network.is_ipv6() && prefix < 64 {
            return Err(RangeError::TooWide(text.to_owned()));
        }
        let cidr = Self { network, prefix };
        if number(network).trailing_zeros() < cidr.host_bits() {
            return Err(RangeError::HostBits(text.to_owned()));
        }
        if cidr.size() == 0 {
            Err(RangeError::TooNarrow(text.to_owned()))
        } else {
            Ok(cidr)
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// Ranges of ports, each inclusive, sorted and apart from each other. No range at all means that no
/// port is handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortRanges(Vec<(u16, u16)>);

impl PortRanges {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, port: u16) -> bool {
        self.0
            .iter()
            .any(|&(first, last)| (first..=last).contains(&port))
    }

    pub fn size(&self) -> u128 {
        self.0
            .iter()
            .map(|&(first, last)| u128::from(last - first) + 1)
            .sum()
    }

    pub fn band(&self) -> u128 {
        let size = self.size();
        if size <= 16 {
            0
        } else {
            (size / 32).clamp(16, 128)
        }
    }

    /// The port of that index, counted from 0 through all ranges.
    pub fn port(&self, index: u128) -> Option<u16> {
        let mut index = usize::try_from(index).ok()?;
        for &(first, last) in &self.0 {
            let size = usize::from(last - first) + 1;
            if index < size {
                return Some(first + u16::try_from(index).ok()?);
            }
            index -= size;
        }
        None
    }
}

impl FromStr for PortRanges {
    type Err = RangeError;

    /// `30000-32767`, `30000+2767` (the same), `30000`, or several with commas; `0-0` is none.
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let wrong = || RangeError::NotPorts(text.to_owned());
        if text.trim() == "0-0" {
            return Ok(Self::default());
        }
        let mut ranges: Vec<(u16, u16)> = text
            .split(',')
            .map(|part| port_range(part.trim()).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        ranges.sort_unstable();
        let apart = ranges
            .windows(2)
            .all(|pair| matches!(pair, [(_, last), (first, _)] if last < first));
        if apart {
            Ok(Self(ranges))
        } else {
            Err(wrong())
        }
    }
}

fn port_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (first.parse().ok()?, last.parse().ok()?)
    } else if let Some((first, more)) = text.split_once('+') {
        let first: u16 = first.parse().ok()?;
        (first, first.checked_add(more.parse().ok()?)?)
    } else {
        let port = text.parse().ok()?;
        (port, port)
    };
    (first >= 1 && first <= last).then_some((first, last))
}

impl fmt::Display for PortRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self
            .0
            .iter()
            .map(|(first, last)| format!("{first}-{last}"))
            .collect();
        f.write_str(if texts.is_empty() { "0-0" } else { "" })?;
        f.write_str(&texts.join(","))
    }
}

/// The index of something free among `size` things: above the band if possible, else in it. Looks
/// from a random place onwards, so that it ends quickly while much is free and still finds the last
/// free one.
pub(crate) fn pick(
    size: u128,
    band: u128,
    random: u64,
    mut is_free: impl FnMut(u128) -> bool,
) -> Option<u128> {
    let band = band.min(size);
    [(band, size - band), (0, band)]
        .into_iter()
        .filter(|&(_, length)| length > 0)
        .find_map(|(base, length)| {
            let start = u128::from(random) % length;
            (start..length)
                .chain(0..start)
                .map(|offset| base + offset)
                .find(|&index| is_free(index))
        })
}

#[cfg(test)]
mod tests;
