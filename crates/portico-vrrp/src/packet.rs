//! Advertisements on the wire: RFC 3768 (version 2) and RFC 9568 (version 3).
//!
//! Bytes to [`Advert`] and back, and whether bytes are an advert at all. Whether an advert concerns
//! us is for [`crate::router`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The IP protocol.
pub const PROTOCOL: u8 = 112;
/// Time to live or hop limit of every advert: less has come through a router.
pub const HOPS: u8 = 255;
/// The multicast group of VRRP over IPv4.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
/// The multicast group of VRRP over IPv6.
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x12);

const ADVERTISEMENT: u8 = 1;
const HEADER: usize = 8;
pub(crate) const CHECKSUM: std::ops::Range<usize> = 6..8;
const PASSWORD: usize = 8;
const NO_AUTHENTICATION: u8 = 0;
const SIMPLE_PASSWORD: u8 = 1;
const CENTISECOND: Duration = Duration::from_millis(10);
/// Twelve bits on the wire.
const MOST_CENTISECONDS: u16 = 0x0fff;

/// The versions of VRRP that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// IPv4 only, whole seconds.
    V2,
    /// Version 3, for both families, with intervals in centiseconds (RFC 9568).
    V3,
}

impl Version {
    /// The next interval that can be told: what is sent is what is kept.
    pub fn interval(self, wanted: Duration) -> Duration {
        match self {
            Self::V2 => Duration::from_secs(seconds(wanted).into()),
            Self::V3 => CENTISECOND * centiseconds(wanted).into(),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }
}

/// What an owner says, and with priority 0 that it stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advert {
    /// The version of VRRP.
    pub version: Version,
    /// The number of the virtual router, 1 to 255.
    pub vrid: u8,
    /// The priority of the sender; 0 if it stops.
    pub priority: u8,
    /// The time between two adverts.
    pub interval: Duration,
    /// The virtual addresses.
    pub addresses: Vec<IpAddr>,
    /// Version 2 alone: the simple password, which keeps out mistakes and no attacker.
    pub password: Option<[u8; 8]>,
}

/// Why bytes are not an advert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum Malformed {
    #[error("{have} bytes where its header and addresses need {need}")]
    Length { have: usize, need: usize },
    #[error("version {0} of VRRP, where only 2 and 3 are known")]
    Version(u8),
    #[error("version 2 of VRRP over IPv6, which has none")]
    Family,
    #[error("packet of type {0}, where only 1 (advertisement) is known")]
    Type(u8),
    #[error("checksum {0:#06x} is wrong")]
    Checksum(u16),
    #[error("authentication of type {0}, where only 0 (none) and 1 (simple password) are known")]
    Authentication(u8),
    #[error("an interval of zero")]
    Interval,
    #[error("no address")]
    NoAddress,
}

impl Advert {
    /// The payload of an IP packet between two addresses, on which the checksum of version 3
    /// depends. Addresses of the other family, and more of them than can be counted, are left out.
    pub fn encode(&self, from: IpAddr, to: IpAddr) -> Vec<u8> {
        let fitting = |address: &&IpAddr| address.is_ipv4() == from.is_ipv4();
        let addresses: Vec<_> = self
            .addresses
            .iter()
            .filter(fitting)
            .take(u8::MAX.into())
            .collect();
        let count = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![
            self.version.number() << 4 | ADVERTISEMENT,
            self.vrid,
            self.priority,
            count,
        ];
        match self.version {
            Version::V2 => {
                let kind = self.password.map_or(NO_AUTHENTICATION, |_| SIMPLE_PASSWORD);
                bytes.extend([kind, seconds(self.interval)]);
            }
            Version::V3 => bytes.extend(centiseconds(self.interval).to_be_bytes()),
        }
        bytes.extend([0, 0]);
        addresses.into_iter().for_each(|address| match address {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        });
        let pseudo = match self.version {
            Version::V2 => {
                bytes.extend(self.password.unwrap_or_default());
                0
            }
            Version::V3 => pseudo_header(from, to, bytes.len()),
        };
        let checksum = !fold(pseudo + sum(&bytes));
        if let Some(field) = bytes.get_mut(CHECKSUM) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
        bytes
    }

    /// Reads the payload of an IP packet between two addresses.
    pub fn decode(payload: &[u8], from: IpAddr, to: IpAddr) -> Result<Self, Malformed> {
        let &[
            kind,
            vrid,
            priority,
            count,
            high,
            low,
            first,
            second,
            ref rest @ ..,
        ] = payload
        else {
            return Err(Malformed::Length {
                have: payload.len(),
                need: HEADER,
            });
        };
        let version = version(kind >> 4, from)?;
        if kind & 0xf != ADVERTISEMENT {
            return Err(Malformed::Type(kind & 0xf));
        }
        let (each, trailer) = match version {
            Version::V2 => (4, PASSWORD),
            Version::V3 => (if from.is_ipv4() { 4 } else { 16 }, 0),
        };
        let length = each * usize::from(count);
        if rest.len() != length + trailer {
            return Err(Malformed::Length {
                have: payload.len(),
                need: HEADER + length + trailer,
            });
        }
        if !is_intact(version, payload, from, to) {
            return Err(Malformed::Checksum(u16::from_be_bytes([first, second])));
        }
        let (addresses, authentication) = rest.split_at(length);
        let addresses: Vec<_> = addresses.chunks_exact(each).filter_map(address).collect();
        if addresses.is_empty() {
            return Err(Malformed::NoAddress);
        }
        let (interval, password) = match (version, high) {
            (Version::V3, _) => (
                CENTISECOND * (u16::from_be_bytes([high, low]) & MOST_CENTISECONDS).into(),
                None,
            ),
            (Version::V2, NO_AUTHENTICATION) => (Duration::from_secs(low.into()), None),
            (Version::V2, SIMPLE_PASSWORD) => (
                Duration::from_secs(low.into()),
                authentication.try_into().ok(),
            ),
            (Version::V2, other) => return Err(Malformed::Authentication(other)),
        };
        if interval.is_zero() {
            return Err(Malformed::Interval);
        }
        Ok(Self {
            version,
            vrid,
            priority,
            interval,
            addresses,
            password,
        })
    }
}

/// The bytes that the header says there are, without what may follow.
pub(crate) fn length(payload: &[u8], v4: bool) -> Option<usize> {
    let (first, count) = (payload.first()?, usize::from(*payload.get(3)?));
    match (first >> 4, v4) {
        (2, true) => Some(HEADER + 4 * count + PASSWORD),
        (3, true) => Some(HEADER + 4 * count),
        (3, false) => Some(HEADER + 16 * count),
        _ => None,
    }
}

/// Sums a packet of version 3 anew, with all its bytes.
pub(crate) fn renew_checksum(bytes: &mut [u8], from: IpAddr, to: IpAddr) {
    let pseudo = pseudo_header(from, to, bytes.len());
    if let Some(field) = bytes.get_mut(CHECKSUM) {
        field.fill(0);
    }
    let checksum = !fold(pseudo + sum(bytes));
    if let Some(field) = bytes.get_mut(CHECKSUM) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The group that adverts of a family are sent to.
pub fn group(family_of: IpAddr) -> IpAddr {
    if family_of.is_ipv4() {
        GROUP_V4.into()
    } else {
        GROUP_V6.into()
    }
}

fn version(number: u8, from: IpAddr) -> Result<Version, Malformed> {
    match number {
        2 if from.is_ipv6() => Err(Malformed::Family),
        2 => Ok(Version::V2),
        3 => Ok(Version::V3),
        other => Err(Malformed::Version(other)),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let short = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    short
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

fn seconds(interval: Duration) -> u8 {
    u8::try_from(interval.as_millis().div_ceil(1000))
        .unwrap_or(u8::MAX)
        .max(1)
}

fn centiseconds(interval: Duration) -> u16 {
    u16::try_from(interval.as_millis().div_ceil(10))
        .unwrap_or(u16::MAX)
        .clamp(1, MOST_CENTISECONDS)
}

/// Version 3 over IPv4 is summed in three ways out there: with the addresses of the packet (RFC
/// 5798, keepalived), with the group in place of a peer's address (keepalived before 1.3.6), and
/// without a pseudo header (RFC 9568).
fn is_intact(version: Version, payload: &[u8], from: IpAddr, to: IpAddr) -> bool {
    let body = sum(payload);
    let matches = |pseudo: u32| fold(pseudo + body) == u16::MAX;
    match version {
        Version::V2 => matches(0),
        Version::V3 if from.is_ipv6() => matches(pseudo_header(from, to, payload.len())),
        Version::V3 => {
            matches(pseudo_header(from, to, payload.len()))
                || matches(pseudo_header(from, GROUP_V4.into(), payload.len()))
                || matches(0)
        }
    }
}

/// The same for both families: addresses, protocol and length, whatever lies between them is zero.
fn pseudo_header(from: IpAddr, to: IpAddr, length: usize) -> u32 {
    let of = |address| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    of(from) + of(to) + u32::from(PROTOCOL) + u32::try_from(length).unwrap_or_default()
}

/// Sums of 16 bits; a packet is far too short for the carries to be lost.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    };
    bytes.chunks(2).map(word).sum()
}

fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests;
