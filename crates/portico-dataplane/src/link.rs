//! What a thread needs that speaks on links below IP and must be on time: what the kernel tells of
//! links, addresses and routes (`rtnetlink`: messages), packet sockets and their filters (`packet`,
//! `filter`), its clock and its priority (`thread`).

pub mod filter;
pub mod packet;
pub mod rtnetlink;

use std::net::IpAddr;

/// A hardware address of Ethernet.
pub type Mac = [u8; 6];

/// The bytes at an offset, if there are so many.
pub fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The prefix length of a network with a single address.
pub fn longest_prefix(family_of: IpAddr) -> u8 {
    if family_of.is_ipv4() { 32 } else { 128 }
}
