//! What others on the link say to have: socket filters that let no other packet through, and what
//! is read from those that come.

use super::filter;
use portico_l2::Mac;
use portico_l2::frame::{arp, ndp};
use socket2::SockFilter;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The address that the sender of an ARP packet claims, and its hardware address. The packet comes
/// without its link header.
pub(super) fn of_arp(packet: &[u8]) -> Option<(Ipv4Addr, Mac)> {
    arp::Packet::parse(packet).map(|packet| (packet.sender, packet.sender_mac))
}

/// The address that the sender of a neighbour advertisement claims, and its hardware address.
pub(super) fn of_neighbour(packet: &[u8]) -> Option<(Ipv6Addr, Mac)> {
    let message = ndp::Message::parse(packet)?;
    match message.kind {
        ndp::Kind::Advertisement { .. } => message.mac.map(|mac| (message.target, mac)),
        ndp::Kind::Solicitation => None,
    }
}

/// Lets through what [`of_arp`] would find of these addresses.
pub(super) fn arp_filter(addresses: impl Iterator<Item = Ipv4Addr>) -> Vec<SockFilter> {
    let mut steps = vec![filter::word(arp::SENDER as u32)];
    steps.extend(
        addresses.flat_map(|address| [filter::equals(address.into(), 1), filter::accept()]),
    );
    steps.push(filter::refuse());
    steps
}

/// Lets through what [`of_neighbour`] would find of these addresses.
pub(super) fn neighbour_filter(addresses: impl Iterator<Item = Ipv6Addr>) -> Vec<SockFilter> {
    let mut steps = Vec::new();
    for (offset, value) in [
        (ndp::NEXT_HEADER, ndp::ICMP),
        (ndp::KIND, ndp::ADVERTISEMENT),
    ] {
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
        steps.push(filter::word(ndp::TARGET as u32 + offset));
        steps.push(filter::equals(u32::from_be_bytes(*word), to_the_end));
    }
    steps.push(filter::accept());
    steps
}

#[cfg(test)]
mod tests;
