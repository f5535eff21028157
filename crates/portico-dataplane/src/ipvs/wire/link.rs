//! The link that holds the addresses of Services, and the addresses of all links.

use super::{address, family_number, octets};
use crate::netlink::{Message, Messages, flags};
use portico_model::table::Family;
use std::net::IpAddr;

pub const LINK: &str = "kube-ipvs0";
const KIND: &str = "dummy";

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;

/// Of a link.
const LINK_HEADER: usize = 16;
const NAME: u16 = 3;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;

/// Of an address.
const ADDRESS_HEADER: usize = 8;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

pub fn create() -> Messages {
    let mut m = Messages::new();
    m.message(
        NEW_LINK,
        flags::CREATE | flags::EXCLUSIVE | flags::ACK,
        |m| {
            m.raw(&[0; LINK_HEADER]);
            m.put_str(NAME, LINK);
            m.nested(INFO, |m| m.put_str(INFO_KIND, KIND));
        },
    );
    m
}

pub fn find() -> Messages {
    let mut m = Messages::new();
    m.message(GET_LINK, 0, |m| {
        m.raw(&[0; LINK_HEADER]);
        m.put_str(NAME, LINK);
    });
    m
}

pub fn remove(index: u32) -> Messages {
    let mut m = Messages::new();
    m.message(DELETE_LINK, flags::ACK, |m| {
        m.raw(&[0; 4]);
        m.raw(&index.to_ne_bytes());
        m.raw(&[0; 8]);
    });
    m
}

/// The number of our link; `None` if it is another's, of another kind.
pub fn parse_link(message: &Message) -> Option<u32> {
    let index = message
        .payload
        .get(4..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))?;
    let attributes = message.attributes(LINK_HEADER);
    let kind = attributes
        .clone()
        .find_kind(INFO)?
        .nested()
        .find_kind(INFO_KIND)?;
    let ours =
        attributes.clone().find_kind(NAME)?.text() == Some(LINK) && kind.text() == Some(KIND);
    ours.then_some(index)
}

pub fn bind(m: &mut Messages, index: u32, address: IpAddr) {
    change(m, NEW_ADDRESS, flags::CREATE, index, address);
}

pub fn unbind(m: &mut Messages, index: u32, address: IpAddr) {
    change(m, DELETE_ADDRESS, 0, index, address);
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
        m.put(LOCAL, &bytes);
        m.put(ADDRESS, &bytes);
    });
}

pub fn list_addresses() -> Messages {
    let mut m = Messages::new();
    m.message(GET_ADDRESS, flags::DUMP, |m| m.raw(&[0; ADDRESS_HEADER]));
    m
}

/// Of which link, and which.
pub fn parse_address(message: &Message) -> Option<(u32, IpAddr)> {
    let index = message
        .payload
        .get(4..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))?;
    let attributes = message.attributes(ADDRESS_HEADER);
    // At the end of a tunnel ADDRESS is the other side's.
    let found = attributes
        .clone()
        .find_kind(LOCAL)
        .or_else(|| attributes.clone().find_kind(ADDRESS))?;
    Some((index, address(message.family()?, found.data)?))
}
