//! The link that holds the addresses of Services, and the addresses of all links.

use super::{address, family_number, octets};
use crate::netlink::{Message, Messages, flags};
use portico_model::table::Family;
use std::net::IpAddr;

/// The name of the link, as kube-proxy has it.
pub const LINK: &str = "kube-ipvs0";
const KIND: &str = "dummy";

/// The length of struct ifinfomsg.
const LINK_HEADER: usize = 16;

/// The length of struct ifaddrmsg.
const ADDRESS_HEADER: usize = 8;

pub(crate) fn create() -> Messages {
    let mut m = Messages::new();
    m.message(
        libc::RTM_NEWLINK,
        flags::CREATE | flags::EXCLUSIVE | flags::ACK,
        |m| {
            m.raw(&[0; LINK_HEADER]);
            m.put_str(libc::IFLA_IFNAME, LINK);
            m.nested(libc::IFLA_LINKINFO, |m| {
                m.put_str(libc::IFLA_INFO_KIND, KIND)
            });
        },
    );
    m
}

pub(crate) fn find() -> Messages {
    let mut m = Messages::new();
    m.message(libc::RTM_GETLINK, 0, |m| {
        m.raw(&[0; LINK_HEADER]);
        m.put_str(libc::IFLA_IFNAME, LINK);
    });
    m
}

pub(crate) fn remove(index: u32) -> Messages {
    let mut m = Messages::new();
    m.message(libc::RTM_DELLINK, flags::ACK, |m| {
        m.raw(&[0; 4]);
        m.raw(&index.to_ne_bytes());
        m.raw(&[0; 8]);
    });
    m
}

/// The number of our link; `None` if it is another's, of another kind.
pub(crate) fn parse_link(message: &Message) -> Option<u32> {
    let index = message
        .payload
        .get(4..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))?;
    let attributes = message.attributes(LINK_HEADER);
    let kind = attributes
        .clone()
        .find_kind(libc::IFLA_LINKINFO)?
        .nested()
        .find_kind(libc::IFLA_INFO_KIND)?;
    let ours = attributes.clone().find_kind(libc::IFLA_IFNAME)?.text() == Some(LINK)
        && kind.text() == Some(KIND);
    ours.then_some(index)
}

pub(crate) fn bind(m: &mut Messages, index: u32, address: IpAddr) {
    change(m, libc::RTM_NEWADDR, flags::CREATE, index, address);
}

pub(crate) fn unbind(m: &mut Messages, index: u32, address: IpAddr) {
    change(m, libc::RTM_DELADDR, 0, index, address);
}

fn change(m: &mut Messages, kind: u16, flags: u16, index: u32, address: IpAddr) {
    let bytes = octets(address);
    m.message(kind, flags, |m| {
        m.raw(&[
            family_number(Family::of(address)),
            bytes.len() as u8 * 8,
            0,
            0,
        ]);
        m.raw(&index.to_ne_bytes());
        m.put(libc::IFA_LOCAL, &bytes);
        m.put(libc::IFA_ADDRESS, &bytes);
    });
}

pub(crate) fn list_addresses() -> Messages {
    let mut m = Messages::new();
    m.message(libc::RTM_GETADDR, flags::DUMP, |m| {
        m.raw(&[0; ADDRESS_HEADER])
    });
    m
}

/// The number of the link, and the address.
pub(crate) fn parse_address(message: &Message) -> Option<(u32, IpAddr)> {
    let index = message
        .payload
        .get(4..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))?;
    let attributes = message.attributes(ADDRESS_HEADER);
    // At the end of a tunnel libc::IFA_ADDRESS is the other side's.
    let found = attributes
        .clone()
        .find_kind(libc::IFA_LOCAL)
        .or_else(|| attributes.clone().find_kind(libc::IFA_ADDRESS))?;
    Some((index, address(message.family()?, found.data)?))
}
