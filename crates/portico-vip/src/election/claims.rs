//! The same as ARP, for IPv6: unsolicited neighbour advertisements and a solicitation that asks who
//! has an address (RFC 4861, RFC 4862), as bytes.

use super::filter;
use super::wire::{Mac, chunk};
use socket2::SockFilter;
use std::net::Ipv6Addr;

pub const ETHERTYPE: u16 = 0x86dd;

const ICMP: u8 = 58;
/// Whatever has fewer hops left came from another link.
const HOPS: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// We are a router (RFC 9568, section 6.4), and this counts more than what is known already.
const ROUTER_OVERRIDE: u8 = 0xa0;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const TARGET_LINK_ADDRESS: u8 = 2;
const OPTION_UNIT: usize = 8;

const IP_HEADER: usize = 40;
const NEXT_HEADER: usize = 6;
const HOP_LIMIT: usize = 7;
const TARGET: usize = IP_HEADER + 8;
const OPTIONS: usize = TARGET + 16;

/// "I have it."
pub fn announcement(mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    let mut message = message(ADVERTISEMENT, ROUTER_OVERRIDE, address);
    message.extend([TARGET_LINK_ADDRESS, 1]);
    message.extend(mac);
    frame(mac, address, ALL_NODES, message)
}

/// "Who has it?", of nobody, so that it changes nobody's mind. Everybody hears the answer.
pub fn probe(mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    frame(
        mac,
        Ipv6Addr::UNSPECIFIED,
        solicited_node(address),
        message(SOLICITATION, 0, address),
    )
}

/// Who says to have which address, in a packet without its link header.
pub fn claim(packet: &[u8]) -> Option<(Ipv6Addr, Mac)> {
    let is_ours = *packet.get(NEXT_HEADER)? == ICMP
        && *packet.get(HOP_LIMIT)? == HOPS
        && *packet.get(IP_HEADER)? == ADVERTISEMENT;
    if !is_ours {
        return None;
    }
    let address = chunk::<16>(packet, TARGET)?.into();
    let mut options = packet.get(OPTIONS..)?;
    loop {
        match *options {
            [TARGET_LINK_ADDRESS, 1, ..] => return Some((address, chunk(options, 2)?)),
            [_, units, ..] if units > 0 => {
                options = options.get(OPTION_UNIT * usize::from(units)..)?
            }
            _ => return None,
        }
    }
}

/// Lets through what [`claim`] would find of these addresses.
pub fn filter(addresses: impl Iterator<Item = Ipv6Addr>) -> Vec<SockFilter> {
    let mut steps = Vec::new();
    for (offset, value) in [(NEXT_HEADER, ICMP), (IP_HEADER, ADVERTISEMENT)] {
        steps.push(filter::byte(offset as u32));
        steps.extend(filter::require(value.into()));
    }
    for address in addresses {
        steps.extend(target_filter(address));
    }
    steps.push(filter::refuse());
    steps
}

/// Accepts this target and otherwise goes on behind its end.
fn target_filter(address: Ipv6Addr) -> Vec<SockFilter> {
    let words = address.octets();
    let (words, _) = words.as_chunks::<4>();
    let mut steps = Vec::new();
    for (word, (offset, to_the_end)) in words.iter().zip([(0, 7), (4, 5), (8, 3), (12, 1)]) {
        steps.push(filter::word(TARGET as u32 + offset));
        steps.push(filter::equals(u32::from_be_bytes(*word), to_the_end));
    }
    steps.push(filter::accept());
    steps
}

/// The group of those whose address ends like this one.
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Without its checksum.
fn message(kind: u8, flags: u8, target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message
}

fn frame(mac: Mac, from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let length = message.len() as u8; // some 30 bytes
    let sum = checksum(&[
        &from.octets(),
        &to.octets(),
        &[0, length, 0, ICMP],
        &message,
    ]);
    if let Some(place) = message.get_mut(2..4) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
    let [.., a, b, c, d] = to.octets();
    let mut bytes = vec![0x33, 0x33, a, b, c, d];
    bytes.extend(mac);
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend([0x60, 0, 0, 0, 0, length, ICMP, HOPS]);
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(message);
    bytes
}

/// Of parts that all have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let pairs = parts.iter().flat_map(|part| part.as_chunks::<2>().0);
    let mut sum: u32 = pairs.map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests;
