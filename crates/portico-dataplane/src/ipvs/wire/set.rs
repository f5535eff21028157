//! Sets of the kernel (`ipset`), as nfnetlink has them.

use super::{address, family_number, octets, protocol};
use crate::ipvs::server::At;
use crate::ipvs::sets::{Entry, Set};
use crate::netlink::uapi::*;
use crate::netlink::{Attribute, Message, Messages, flags};
use ipnet::IpNet;
use portico_model::table::Family;
use std::io;
use std::net::IpAddr;

/// How many entries a set takes at first. It is kube-proxy's number: one that comes back uses a set
/// of its name only if that is of its size.
pub(crate) const USUAL: u32 = 1 << 16;
/// And once that was not enough. What a set costs depends on how many there are.
pub(crate) const LARGE: u32 = 1 << 20;
/// Entries in one message; it has to be shorter than 64 KiB.
const TOGETHER: usize = 400;

fn command(
    m: &mut Messages,
    command: u8,
    flags: u16,
    name: &str,
    body: impl FnOnce(&mut Messages),
) {
    m.netfilter(NFNL_SUBSYS_IPSET, command, flags, 0, |m| {
        m.put_u8(IPSET_ATTR_PROTOCOL, IPSET_PROTOCOL_MIN);
        if !name.is_empty() {
            m.put_str(IPSET_ATTR_SETNAME, name);
        }
        body(m);
    });
}

/// Fails if it is there.
pub(crate) fn create(m: &mut Messages, name: &str, set: Set, family: Family, most: u32) {
    command(
        m,
        IPSET_CMD_CREATE,
        flags::CREATE | flags::EXCLUSIVE,
        name,
        |m| {
            m.put_str(IPSET_ATTR_TYPENAME, set.kind());
            m.put_u8(IPSET_ATTR_REVISION, revision(set));
            m.put_u8(IPSET_ATTR_FAMILY, family_of(set, family));
            m.nested(IPSET_ATTR_DATA, |m| match set {
                Set::HealthCheck => {
                    m.put_u16_be(IPSET_ATTR_PORT | NLA_F_NET_BYTEORDER, 0);
                    m.put_u16_be(IPSET_ATTR_PORT_TO | NLA_F_NET_BYTEORDER, u16::MAX);
                }
                _ => m.put_u32_be(IPSET_ATTR_MAXELEM | NLA_F_NET_BYTEORDER, most),
            });
        },
    );
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

pub(crate) fn destroy(m: &mut Messages, name: &str) {
    command(m, IPSET_CMD_DESTROY, 0, name, |_| {});
}

/// Exchanges the entries of two sets.
pub(crate) fn swap(m: &mut Messages, name: &str, other: &str) {
    command(m, IPSET_CMD_SWAP, 0, name, |m| {
        m.put_str(IPSET_ATTR_SETNAME2, other)
    });
}

/// What is there already, or not there, is no error.
pub(crate) fn add(m: &mut Messages, name: &str, entries: &[Entry]) {
    change(m, IPSET_CMD_ADD, name, entries);
}

pub(crate) fn delete(m: &mut Messages, name: &str, entries: &[Entry]) {
    change(m, IPSET_CMD_DEL, name, entries);
}

fn change(m: &mut Messages, what: u8, name: &str, entries: &[Entry]) {
    for together in entries.chunks(TOGETHER) {
        command(m, what, 0, name, |m| {
            m.put_u32(IPSET_ATTR_LINENO, 0);
            m.nested(IPSET_ATTR_ADT, |m| {
                for entry in together {
                    m.nested(IPSET_ATTR_DATA, |m| data(m, entry));
                }
            });
        });
    }
}

fn data(m: &mut Messages, entry: &Entry) {
    match entry {
        Entry::Address(address) => put_address(m, IPSET_ATTR_IP, *address),
        Entry::Port(_, port) => m.put_u16_be(IPSET_ATTR_PORT | NLA_F_NET_BYTEORDER, *port),
        Entry::At(at) => put_at(m, at),
        Entry::Loop(at) => {
            put_at(m, at);
            put_address(m, IPSET_ATTR_IP2, at.address);
        }
        Entry::Source(at, network) => {
            put_at(m, at);
            put_address(m, IPSET_ATTR_IP2, network.addr());
            m.put_u8(IPSET_ATTR_CIDR2, network.prefix_len());
        }
    }
}

fn put_at(m: &mut Messages, at: &At) {
    put_address(m, IPSET_ATTR_IP, at.address);
    m.put_u16_be(IPSET_ATTR_PORT | NLA_F_NET_BYTEORDER, at.port);
    m.put_u8(IPSET_ATTR_PROTO, at.protocol.number());
}

fn put_address(m: &mut Messages, kind: u16, address: IpAddr) {
    let inner = if address.is_ipv4() {
        IPSET_ATTR_IPADDR_IPV4
    } else {
        IPSET_ATTR_IPADDR_IPV6
    };
    m.nested(kind, |m| {
        m.put(inner | NLA_F_NET_BYTEORDER, &octets(address))
    });
}

/// The names of all sets.
pub(crate) fn list_names() -> Messages {
    list("", Some(IPSET_FLAG_LIST_SETNAME))
}

/// How a set was made.
pub(crate) fn list_header(name: &str) -> Messages {
    list(name, Some(IPSET_FLAG_LIST_HEADER))
}

/// A set with its entries.
pub(crate) fn list_entries(name: &str) -> Messages {
    list(name, None)
}

fn list(name: &str, only: Option<u32>) -> Messages {
    let mut m = Messages::new();
    command(&mut m, IPSET_CMD_LIST, flags::DUMP, name, |m| {
        if let Some(only) = only {
            m.put_u32_be(IPSET_ATTR_FLAGS | NLA_F_NET_BYTEORDER, only);
        }
    });
    m
}

pub(crate) fn parse_name(message: &Message) -> Option<String> {
    Some(
        message
            .attributes(4)
            .find_kind(IPSET_ATTR_SETNAME)?
            .text()?
            .to_owned(),
    )
}

/// A part of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Whether it is as [`create`] makes it; not in every part.
    pub as_made: Option<bool>,
    pub entries: Vec<Entry>,
}

pub(crate) fn parse_part(message: &Message, set: Set, family: Family) -> Option<Part> {
    let find = |kind| message.attributes(4).find_kind(kind);
    let entries = find(IPSET_ATTR_ADT)
        .into_iter()
        .flat_map(|all| all.nested());
    let entries = entries.filter_map(|one| parse_entry(&one, set, family));
    let has_room = |data: Attribute| {
        let number = |kind| {
            data.nested()
                .find_kind(kind)
                .and_then(|number| number.u16_be())
        };
        match set {
            Set::HealthCheck => {
                (number(IPSET_ATTR_PORT), number(IPSET_ATTR_PORT_TO)) == (Some(0), Some(u16::MAX))
            }
            _ => data
                .nested()
                .find_kind(IPSET_ATTR_MAXELEM)
                .and_then(|most| most.u32_be())
                .is_some_and(|most| most >= USUAL),
        }
    };
    let as_made = find(IPSET_ATTR_TYPENAME).map(|kind| {
        kind.text() == Some(set.kind())
            && find(IPSET_ATTR_FAMILY).and_then(|number| number.u8())
                == Some(family_of(set, family))
            && find(IPSET_ATTR_DATA).is_some_and(has_room)
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
        return ip(IPSET_ATTR_IP).map(Entry::Address);
    }
    if set == Set::HealthCheck {
        return Some(Entry::Port(family, find(IPSET_ATTR_PORT)?.u16_be()?));
    }
    let at = At {
        address: ip(IPSET_ATTR_IP)?,
        port: find(IPSET_ATTR_PORT)?.u16_be()?,
        protocol: protocol(find(IPSET_ATTR_PROTO)?.u8()?)?,
    };
    match set {
        Set::Sources => {
            let address = ip(IPSET_ATTR_IP2)?;
            let whole = if address.is_ipv4() { 32 } else { 128 };
            let length = find(IPSET_ATTR_CIDR2)
                .or_else(|| find(IPSET_ATTR_CIDR))
                .and_then(|length| length.u8())
                .unwrap_or(whole);
            IpNet::new(address, length)
                .ok()
                .map(|network| Entry::Source(at, network))
        }
        // An entry of another form is not understood, and so replaced.
        Set::LoopBack if ip(IPSET_ATTR_IP2)? != at.address => None,
        Set::LoopBack => Some(Entry::Loop(at)),
        _ => Some(Entry::At(at)),
    }
}

fn parse_address(nested: &Attribute) -> Option<IpAddr> {
    let inner = nested.nested().next()?;
    let family = if inner.kind == IPSET_ATTR_IPADDR_IPV4 {
        Family::V4
    } else {
        Family::V6
    };
    address(family_number(family), inner.data)
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(IPSET_ERR_HASH_FULL)
}

/// The subsystem has errors of its own.
pub(crate) fn explain(error: io::Error) -> io::Error {
    let words = match error.raw_os_error() {
        Some(IPSET_ERR_PROTOCOL) => "the kernel speaks another version of the protocol of sets",
        Some(IPSET_ERR_FIND_TYPE) => {
            "the kernel does not have this type of set (module ip_set_hash_… or ip_set_bitmap_port)"
        }
        Some(IPSET_ERR_MAX_SETS) => "there are as many sets as the kernel allows",
        Some(IPSET_ERR_BUSY) => "the set is in use",
        Some(IPSET_ERR_EXIST_SETNAME2) => "there is a set with that name",
        Some(IPSET_ERR_TYPE_MISMATCH) => "the sets are of different types",
        Some(IPSET_ERR_EXIST) => "it is there already, or not there",
        Some(IPSET_ERR_HASH_FULL) => "the set is full",
        _ => return error,
    };
    io::Error::other(words)
}
