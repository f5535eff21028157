//! Sets of the kernel (`ipset`), as nfnetlink has them.

use super::{address, family_number, octets, protocol};
use crate::ipvs::server::At;
use crate::ipvs::sets::{Entry, Set};
use crate::netlink::{Attribute, Message, Messages, flags};
use ipnet::IpNet;
use portico_model::table::Family;
use std::io;
use std::net::IpAddr;

const SUBSYSTEM: u8 = 6;
const PROTOCOL_VERSION: u8 = 6;
/// In the kernel's own byte order is nothing here.
const NETWORK_ORDER: u16 = 0x4000;

/// Commands.
const CREATE: u8 = 2;
const DESTROY: u8 = 3;
const SWAP: u8 = 6;
const LIST: u8 = 7;
const ADD: u8 = 9;
const DELETE: u8 = 10;

/// Of a command.
const VERSION: u16 = 1;
const NAME: u16 = 2;
/// The type, or with `SWAP` the name of the other set.
const TYPE: u16 = 3;
const REVISION: u16 = 4;
const FAMILY: u16 = 5;
const FLAGS: u16 = 6;
const DATA: u16 = 7;
/// Several [`DATA`].
const ENTRIES: u16 = 8;
const LINE: u16 = 9;
/// Of [`FLAGS`]: names only, or without entries.
const ONLY_NAMES: u32 = 1 << 1;
const ONLY_HEADERS: u32 = 1 << 2;

/// Of data.
const IP: u16 = 1;
const CIDR: u16 = 3;
const PORT: u16 = 4;
const PORT_TO: u16 = 5;
const PROTOCOL: u16 = 7;
const MOST: u16 = 19;
const IP2: u16 = 20;
const CIDR2: u16 = 21;

/// How many entries a set takes at first. It is kube-proxy's number: one that comes back uses a set
/// of its name only if that is of its size.
pub const USUAL: u32 = 1 << 16;
/// And once that was not enough. What a set costs depends on how many there are.
pub const LARGE: u32 = 1 << 20;
/// Entries in one message; it has to be shorter than 64 KiB.
const TOGETHER: usize = 400;

fn command(
    m: &mut Messages,
    command: u8,
    flags: u16,
    name: &str,
    body: impl FnOnce(&mut Messages),
) {
    m.netfilter(SUBSYSTEM, command, flags, 0, |m| {
        m.put_u8(VERSION, PROTOCOL_VERSION);
        if !name.is_empty() {
            m.put_str(NAME, name);
        }
        body(m);
    });
}

/// Fails if it is there.
pub fn create(m: &mut Messages, name: &str, set: Set, family: Family, most: u32) {
    command(m, CREATE, flags::CREATE | flags::EXCLUSIVE, name, |m| {
        m.put_str(TYPE, set.kind());
        m.put_u8(REVISION, revision(set));
        m.put_u8(FAMILY, family_of(set, family));
        m.nested(DATA, |m| match set {
            Set::HealthCheck => {
                m.put_u16_be(PORT | NETWORK_ORDER, 0);
                m.put_u16_be(PORT_TO | NETWORK_ORDER, u16::MAX);
            }
            _ => m.put_u32_be(MOST | NETWORK_ORDER, most),
        });
    });
}

/// A set of ports is of no family.
fn family_of(set: Set, family: Family) -> u8 {
    if set == Set::HealthCheck {
        0
    } else {
        family_number(family)
    }
}

/// Which version of a type: one that kernels since 3.18 have, and that the program `ipset` has
/// known for as long. The first ones it does not know.
fn revision(set: Set) -> u8 {
    match set.kind() {
        "bitmap:port" => 3,
        "hash:ip" => 4,
        "hash:ip,port,net" => 7,
        _ => 5,
    }
}

pub fn destroy(m: &mut Messages, name: &str) {
    command(m, DESTROY, 0, name, |_| {});
}

/// Each has the other's entries then.
pub fn swap(m: &mut Messages, name: &str, other: &str) {
    command(m, SWAP, 0, name, |m| m.put_str(TYPE, other));
}

/// What is there already, or not there, is no error.
pub fn add(m: &mut Messages, name: &str, entries: &[Entry]) {
    change(m, ADD, name, entries);
}

pub fn delete(m: &mut Messages, name: &str, entries: &[Entry]) {
    change(m, DELETE, name, entries);
}

fn change(m: &mut Messages, what: u8, name: &str, entries: &[Entry]) {
    for together in entries.chunks(TOGETHER) {
        command(m, what, 0, name, |m| {
            m.put_u32(LINE, 0);
            m.nested(ENTRIES, |m| {
                for entry in together {
                    m.nested(DATA, |m| data(m, entry));
                }
            });
        });
    }
}

fn data(m: &mut Messages, entry: &Entry) {
    match entry {
        Entry::Address(address) => put_address(m, IP, *address),
        Entry::Port(_, port) => m.put_u16_be(PORT | NETWORK_ORDER, *port),
        Entry::At(at) => put_at(m, at),
        Entry::Loop(at) => {
            put_at(m, at);
            put_address(m, IP2, at.address);
        }
        Entry::Source(at, network) => {
            put_at(m, at);
            put_address(m, IP2, network.addr());
            m.put_u8(CIDR2, network.prefix_len());
        }
    }
}

fn put_at(m: &mut Messages, at: &At) {
    put_address(m, IP, at.address);
    m.put_u16_be(PORT | NETWORK_ORDER, at.port);
    m.put_u8(PROTOCOL, at.protocol.number());
}

fn put_address(m: &mut Messages, kind: u16, address: IpAddr) {
    let inner = if address.is_ipv4() { 1 } else { 2 };
    m.nested(kind, |m| m.put(inner | NETWORK_ORDER, &octets(address)));
}

/// The names of all sets.
pub fn list_names() -> Messages {
    list("", Some(ONLY_NAMES))
}

/// How a set was made.
pub fn list_header(name: &str) -> Messages {
    list(name, Some(ONLY_HEADERS))
}

/// A set with its entries.
pub fn list_entries(name: &str) -> Messages {
    list(name, None)
}

fn list(name: &str, only: Option<u32>) -> Messages {
    let mut m = Messages::new();
    command(&mut m, LIST, flags::DUMP, name, |m| {
        if let Some(only) = only {
            m.put_u32_be(FLAGS | NETWORK_ORDER, only);
        }
    });
    m
}

pub fn parse_name(message: &Message) -> Option<String> {
    Some(message.attributes(4).find_kind(NAME)?.text()?.to_owned())
}

/// A part of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Whether it is as [`create`] makes it; not in every part.
    pub as_made: Option<bool>,
    pub entries: Vec<Entry>,
}

pub fn parse_part(message: &Message, set: Set, family: Family) -> Option<Part> {
    let find = |kind| message.attributes(4).find_kind(kind);
    let entries = find(ENTRIES).into_iter().flat_map(|all| all.nested());
    let entries = entries.filter_map(|one| parse_entry(&one, set, family));
    let has_room = |data: Attribute| {
        let number = |kind| {
            data.nested()
                .find_kind(kind)
                .and_then(|number| number.u16_be())
        };
        match set {
            Set::HealthCheck => (number(PORT), number(PORT_TO)) == (Some(0), Some(u16::MAX)),
            _ => data
                .nested()
                .find_kind(MOST)
                .and_then(|most| most.u32_be())
                .is_some_and(|most| most >= USUAL),
        }
    };
    let as_made = find(TYPE).map(|kind| {
        kind.text() == Some(set.kind())
            && find(FAMILY).and_then(|number| number.u8()) == Some(family_of(set, family))
            && find(DATA).is_some_and(has_room)
    });
    Some(Part {
        as_made,
        entries: entries.collect(),
    })
}

fn parse_entry(data: &Attribute, set: Set, family: Family) -> Option<Entry> {
    let find = |kind| data.nested().find_kind(kind);
    let ip = |kind| parse_address(&find(kind)?);
    if matches!(set, Set::Bound | Set::ClusterAddresses | Set::Leaving) {
        return ip(IP).map(Entry::Address);
    }
    if set == Set::HealthCheck {
        return Some(Entry::Port(family, find(PORT)?.u16_be()?));
    }
    let at = At {
        address: ip(IP)?,
        port: find(PORT)?.u16_be()?,
        protocol: protocol(find(PROTOCOL)?.u8()?)?,
    };
    match set {
        Set::Sources => {
            let address = ip(IP2)?;
            let whole = if address.is_ipv4() { 32 } else { 128 };
            let length = find(CIDR2)
                .or_else(|| find(CIDR))
                .and_then(|length| length.u8())
                .unwrap_or(whole);
            IpNet::new(address, length)
                .ok()
                .map(|network| Entry::Source(at, network))
        }
        // Somebody else's way of using it is not understood, and so repaired.
        Set::LoopBack if ip(IP2)? != at.address => None,
        Set::LoopBack => Some(Entry::Loop(at)),
        _ => Some(Entry::At(at)),
    }
}

fn parse_address(nested: &Attribute) -> Option<IpAddr> {
    let inner = nested.nested().next()?;
    let family = if inner.kind == 1 {
        Family::V4
    } else {
        Family::V6
    };
    address(family_number(family), inner.data)
}

const FULL: i32 = 4352;

pub fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(FULL)
}

/// The subsystem has errors of its own.
pub fn explain(error: io::Error) -> io::Error {
    let words = match error.raw_os_error() {
        Some(4097) => "the kernel speaks another version of the protocol of sets",
        Some(4098) => {
            "the kernel does not have this type of set (module ip_set_hash_… or ip_set_bitmap_port)"
        }
        Some(4099) => "there are as many sets as the kernel allows",
        Some(4100) => "the set is in use",
        Some(4101) => "there is a set with that name",
        Some(4102) => "the sets are of different types",
        Some(4103) => "it is there already, or not there",
        Some(FULL) => "the set is full",
        _ => return error,
    };
    io::Error::other(words)
}
