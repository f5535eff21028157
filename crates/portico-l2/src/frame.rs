//! The frames by which an address is announced and asked for: ARP for IPv4, neighbour discovery for
//! IPv6.
//!
//! Each has a meaning (`Packet`, `Message`) with `parse` and `emit`; what is parsed has no link
//! header, what is emitted has one.

pub mod arp;
pub mod ndp;

use std::net::IpAddr;

/// A hardware address of Ethernet.
pub type Mac = [u8; 6];
/// The hardware address of all hosts on the link.
pub const BROADCAST: Mac = [0xff; 6];

/// What the owner of an address says to be (the flag R of neighbour advertisements).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The address belongs to a host.
    Host,
    /// The address belongs to a host that forwards packets (the R flag of neighbour discovery).
    Router,
}

/// Frames that say that an address is here.
pub fn announcements(mac: Mac, address: IpAddr, role: Role) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => arp::announcements(mac, address).into(),
        IpAddr::V6(address) => vec![ndp::announcement(mac, address, role)],
    }
}

/// A frame that asks whether any host on the link has an address.
pub fn probe(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp::probe(mac, address),
        IpAddr::V6(address) => ndp::probe(mac, address),
    }
}

/// An Ethernet frame.
fn ethernet(to: Mac, from: Mac, ethertype: u16, capacity: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(14 + capacity);
    bytes.extend(to);
    bytes.extend(from);
    bytes.extend(ethertype.to_be_bytes());
    bytes
}

/// The address of one host: neither a group's nor all zeros.
fn is_unicast(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// The bytes at an offset, if there are so many.
pub fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests;
