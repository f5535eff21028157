//! What is said to the kernel, and what it says: virtual servers by generic netlink, sets by
//! nfnetlink, the link and its addresses by rtnetlink.

pub(crate) mod link;
pub(crate) mod server;
pub(crate) mod set;

use portico_model::table::{Family, Protocol};
use std::net::IpAddr;

fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The address in the first bytes of what may be longer.
fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => bytes.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
        libc::AF_INET6 => bytes
            .first_chunk::<16>()
            .map(|octets| IpAddr::from(*octets)),
        _ => None,
    }
}

fn protocol(number: u8) -> Option<Protocol> {
    [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
        .into_iter()
        .find(|protocol| protocol.number() == number)
}

#[cfg(test)]
mod tests;
