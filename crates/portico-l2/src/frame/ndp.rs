//! Neighbour solicitations and advertisements (RFC 4861), and duplicate address detection with them
//! (RFC 4862).

use super::{Mac, Role, chunk, ethernet, is_unicast};
use std::net::Ipv6Addr;

/// The EtherType of IPv6.
pub const ETHERTYPE: u16 = 0x86dd;
/// Where these are in a packet, and what they have to be, for socket filters.
pub const NEXT_HEADER: usize = 6;
/// The number of ICMPv6 as the next header.
pub const ICMP: u8 = 58;
/// Where the type of the ICMPv6 message is in a packet.
pub const KIND: usize = IP_HEADER;
/// The ICMPv6 type of a neighbour solicitation.
pub const SOLICITATION: u8 = 135;
/// The ICMPv6 type of a neighbour advertisement.
pub const ADVERTISEMENT: u8 = 136;
/// Where the target address is in a packet.
pub const TARGET: usize = IP_HEADER + 8;

/// Whatever has fewer hops left came from another link.
const HOPS: u8 = 255;
const HOP_LIMIT: usize = 7;
const PAYLOAD_LENGTH: usize = 4;
const FROM: usize = 8;
const TO: usize = 24;
const IP_HEADER: usize = 40;
/// The length of a message up to its options.
const FIXED: usize = 24;
const CODE: usize = 1;
const FLAGS: usize = 4;
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
const OPTION_UNIT: usize = 8;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// "Where is the target?", with the hardware address of the sender.
    Solicitation,
    /// "The target is here", with the hardware address.
    Advertisement {
        /// The R flag: the sender forwards packets.
        router: bool,
        /// The S flag: it answers a solicitation.
        solicited: bool,
        /// The O flag: it replaces what is in the neighbour cache.
        overrides: bool,
    },
}

/// A message of neighbour discovery with its IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it asks or answers.
    pub kind: Kind,
    /// The source; the unspecified address in a probe.
    pub from: Ipv6Addr,
    /// The destination: a host or a group.
    pub to: Ipv6Addr,
    /// The address that it is about.
    pub target: Ipv6Addr,
    /// The hardware address in its option; `None` without one.
    pub mac: Option<Mac>,
}

impl Message {
    /// An IPv6 packet, checked as RFC 4861 demands in 7.1.1 and 7.1.2.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let length = usize::from(u16::from_be_bytes(chunk(packet, PAYLOAD_LENGTH)?));
        let message = packet.get(IP_HEADER..)?.get(..length)?;
        let addressed = packet[0] >> 4 == 6
            && packet.get(NEXT_HEADER) == Some(&ICMP)
            && packet.get(HOP_LIMIT) == Some(&HOPS);
        let (from, to) = (
            Ipv6Addr::from(chunk::<16>(packet, FROM)?),
            Ipv6Addr::from(chunk::<16>(packet, TO)?),
        );
        let flags = *message.get(FLAGS)?;
        let (kind, option) = match (*message.first()?, *message.get(CODE)?) {
            (SOLICITATION, 0) => (Kind::Solicitation, SOURCE_MAC),
            (ADVERTISEMENT, 0) => {
                let (router, solicited, overrides) = (
                    flags & ROUTER != 0,
                    flags & SOLICITED != 0,
                    flags & OVERRIDE != 0,
                );
                (
                    Kind::Advertisement {
                        router,
                        solicited,
                        overrides,
                    },
                    TARGET_MAC,
                )
            }
            _ => return None,
        };
        let target = Ipv6Addr::from(chunk::<16>(message, 8)?);
        if !addressed || checksum(from, to, message) != 0 || target.is_multicast() {
            return None;
        }
        let mac = mac_option(message.get(FIXED..)?, option)?;
        let parsed = Self {
            kind,
            from,
            to,
            target,
            mac,
        };
        parsed.is_sound().then_some(parsed)
    }

    fn is_sound(&self) -> bool {
        match self.kind {
            Kind::Solicitation if self.from.is_unspecified() => {
                self.to == solicited_node(self.target) && self.mac.is_none()
            }
            Kind::Solicitation => !self.from.is_multicast(),
            Kind::Advertisement { solicited, .. } => !(solicited && self.to.is_multicast()),
        }
    }

    /// Encodes a frame from one hardware address to another.
    pub fn emit(&self, from: Mac, to: Mac) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let (kind, flags, option) = match self.kind {
            Kind::Solicitation => (SOLICITATION, 0, SOURCE_MAC),
            Kind::Advertisement {
                router,
                solicited,
                overrides,
            } => {
                let flags =
                    flag(router, ROUTER) | flag(solicited, SOLICITED) | flag(overrides, OVERRIDE);
                (ADVERTISEMENT, flags, TARGET_MAC)
            }
        };
        let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
        message.extend(self.target.octets());
        if let Some(mac) = self.mac {
            message.extend([option, 1]);
            message.extend(mac);
        }
        let sum = checksum(self.from, self.to, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut bytes = ethernet(to, from, ETHERTYPE, IP_HEADER + message.len());
        bytes.extend([0x60, 0, 0, 0, 0, message.len() as u8, ICMP, HOPS]); // at most 32 bytes
        bytes.extend(self.from.octets());
        bytes.extend(self.to.octets());
        bytes.extend(message);
        bytes
    }

    /// The address that the sender says to have, or is about to take.
    pub fn claim(&self) -> Option<(Ipv6Addr, Option<Mac>)> {
        match self.kind {
            Kind::Advertisement { .. } => Some((self.target, self.mac)),
            Kind::Solicitation if self.from.is_unspecified() => Some((self.target, None)),
            Kind::Solicitation => None,
        }
    }

    /// The advertisement that the target is at `mac`: to the sender of this solicitation, or to all
    /// nodes if the sender has no address yet. `sender` is the hardware address that the frame came
    /// from.
    pub fn answer(&self, mac: Mac, sender: Mac) -> Vec<u8> {
        let of_nobody = self.from.is_unspecified();
        let to = if of_nobody { ALL_NODES } else { self.from };
        let kind = Kind::Advertisement {
            router: false,
            solicited: !of_nobody,
            overrides: true,
        };
        let message = Self {
            kind,
            from: self.target,
            to,
            target: self.target,
            mac: Some(mac),
        };
        message.emit(
            mac,
            if of_nobody {
                group_mac(to)
            } else {
                self.mac.unwrap_or(sender)
            },
        )
    }
}

/// An unsolicited advertisement that the address is at `mac`, to all nodes.
pub fn announcement(mac: Mac, address: Ipv6Addr, role: Role) -> Vec<u8> {
    let kind = Kind::Advertisement {
        router: role == Role::Router,
        solicited: false,
        overrides: true,
    };
    Message {
        kind,
        from: address,
        to: ALL_NODES,
        target: address,
        mac: Some(mac),
    }
    .emit(mac, group_mac(ALL_NODES))
}

/// A probe for the address. Its source is the unspecified address, so that no host changes its
/// neighbour cache and the answer goes to all nodes.
pub fn probe(mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    let to = solicited_node(address);
    let message = Message {
        kind: Kind::Solicitation,
        from: Ipv6Addr::UNSPECIFIED,
        to,
        target: address,
        mac: None,
    };
    message.emit(mac, group_mac(to))
}

/// The group of those whose address ends like this one.
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// The hardware address among the options, if there is one; `None` if they are not options at all.
fn mac_option(mut options: &[u8], wanted: u8) -> Option<Option<Mac>> {
    let mut found = None;
    while let &[kind, units, ..] = options {
        let option;
        (option, options) = options
            .split_at_checked(OPTION_UNIT * usize::from(units))
            .filter(|_| units > 0)?;
        if kind == wanted && units == 1 && found.is_none() {
            found = chunk(option, 2).filter(|mac| is_unicast(*mac));
        }
    }
    options.is_empty().then_some(found)
}

/// The checksum over a message with its own checksum in it; zero if that is right.
fn checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = (message.len() as u32).to_be_bytes();
    let parts: [&[u8]; 5] = [
        &from.octets(),
        &to.octets(),
        &length,
        &[0, 0, 0, ICMP],
        message,
    ];
    let word = |pair: &[u8]| match *pair {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    };
    let mut sum: u64 = parts.iter().flat_map(|part| part.chunks(2)).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
