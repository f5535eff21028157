//! The few ARP packets that an owner of an address sends and listens for (RFC 826, RFC 5227), as
//! bytes.

use super::filter;
use super::wire::{BROADCAST, Mac, chunk};
use socket2::SockFilter;
use std::net::Ipv4Addr;

pub const ETHERTYPE: u16 = 0x0806;

/// Ethernet, IPv4, and the lengths of their addresses.
const HEADER: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const LENGTH: usize = 28;
const SENDER_HARDWARE: usize = 8;
const SENDER: usize = 14;

/// "I have it": as a request, which every stack takes note of, and as a reply, for those that look
/// at nothing else.
pub fn announcements(mac: Mac, address: Ipv4Addr) -> [Vec<u8>; 2] {
    [REQUEST, REPLY].map(|operation| frame(operation, (mac, address), (BROADCAST, address)))
}

/// "Who has it?", of nobody, so that it changes nobody's mind.
pub fn probe(mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    frame(REQUEST, (mac, Ipv4Addr::UNSPECIFIED), ([0; 6], address))
}

/// Who says to have which address, in a packet without its link header.
pub fn claim(packet: &[u8]) -> Option<(Ipv4Addr, Mac)> {
    let packet = packet
        .get(..LENGTH)
        .filter(|packet| packet.starts_with(&HEADER))?;
    Some((
        chunk::<4>(packet, SENDER)?.into(),
        chunk(packet, SENDER_HARDWARE)?,
    ))
}

/// Lets through what [`claim`] would find of these addresses.
pub fn filter(addresses: impl Iterator<Item = Ipv4Addr>) -> Vec<SockFilter> {
    let mut steps = vec![filter::word(SENDER as u32)];
    steps.extend(
        addresses.flat_map(|address| [filter::equals(address.into(), 1), filter::accept()]),
    );
    steps.push(filter::refuse());
    steps
}

fn frame(operation: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(42);
    bytes.extend(BROADCAST);
    bytes.extend(sender.0);
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(HEADER);
    bytes.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        bytes.extend(mac);
        bytes.extend(address.octets());
    }
    bytes
}

#[cfg(test)]
mod tests;
