//! Links, addresses and routes as messages to and from the kernel: encoding and decoding, nothing
//! is sent here.

use super::{Mac, chunk};
use crate::netlink::uapi::{IFA_PROTO, IFLA_MACVLAN_MODE, MACVLAN_MODE_VEPA};
use crate::netlink::{Message, Messages, flags};
use std::net::IpAddr;
use std::time::Duration;

/// The group that is told of links.
pub const GROUP_LINK: u32 = libc::RTNLGRP_LINK;
/// The group that is told of IPv4 addresses.
pub const GROUP_V4_ADDRESS: u32 = libc::RTNLGRP_IPV4_IFADDR;
/// The group that is told of IPv6 addresses.
pub const GROUP_V6_ADDRESS: u32 = libc::RTNLGRP_IPV6_IFADDR;
/// The group that is told of IPv4 routes.
pub const GROUP_V4_ROUTE: u32 = libc::RTNLGRP_IPV4_ROUTE;
/// The group that is told of IPv6 routes.
pub const GROUP_V6_ROUTE: u32 = libc::RTNLGRP_IPV6_ROUTE;

/// struct ifinfomsg and struct ifaddrmsg
const LINK_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
/// struct rtmsg
const ROUTE_HEADER: usize = 12;

/// An address tells which program added it (since Linux 5.18); Portico's have the number of VRRP,
/// the protocol that moves them.
pub const OURS: u8 = 112;
const FOREVER: u32 = u32::MAX;
const UP: u32 = libc::IFF_UP as u32;
const RUNNING: u32 = libc::IFF_RUNNING as u32;

/// A link of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address; zeros where it has none.
    pub mac: Mac,
    /// Whether it is up and has its carrier.
    pub running: bool,
}

/// An address on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of the link.
    pub link: u32,
    /// The address.
    pub address: IpAddr,
    /// The length of its prefix.
    pub prefix: u8,
    /// It can be used, and is not still being asked about.
    pub usable: bool,
    /// It goes by itself, or says that it is ours.
    pub ours: bool,
}

/// Asks for the link with this name.
pub fn get_link(name: &str) -> Messages {
    let mut request = Messages::new();
    request.message(libc::RTM_GETLINK, 0, |m| {
        m.raw(&[0; LINK_HEADER]);
        m.put_str(libc::IFLA_IFNAME, name);
    });
    request
}

/// A link with a hardware address of its own, which goes in and out through another one; down.
pub fn new_macvlan(name: &str, parent: u32, mac: Mac) -> Messages {
    acknowledged(libc::RTM_NEWLINK, flags::CREATE | flags::EXCLUSIVE, |m| {
        m.raw(&[0; LINK_HEADER]);
        m.put_str(libc::IFLA_IFNAME, name);
        m.put_u32(libc::IFLA_LINK, parent);
        m.put(libc::IFLA_ADDRESS, &mac);
        m.nested(libc::IFLA_LINKINFO, |m| {
            m.put_str(libc::IFLA_INFO_KIND, "macvlan");
            m.nested(libc::IFLA_INFO_DATA, |m| {
                // The links of one parent do not see each other. A private one would take packets
                // from its own hardware address away from its parent, and an owner must hear
                // another owner.
                m.put_u32(IFLA_MACVLAN_MODE, MACVLAN_MODE_VEPA)
            });
        });
    })
}

/// Sets a link up or down.
pub fn set_up(link: u32, up: bool) -> Messages {
    acknowledged(libc::RTM_NEWLINK, 0, |m| {
        m.raw(&link_header(link, if up { UP } else { 0 }, UP))
    })
}

/// Deletes a link.
pub fn delete_link(link: u32) -> Messages {
    acknowledged(libc::RTM_DELLINK, 0, |m| m.raw(&link_header(link, 0, 0)))
}

/// Lists the addresses of the family of this one.
pub fn get_addresses(family_of: IpAddr) -> Messages {
    let mut request = Messages::new();
    let [family, ..] = address_header(family_of, 0, 0);
    request.message(libc::RTM_GETADDR, flags::DUMP, |m| {
        m.raw(&[family, 0, 0, 0, 0, 0, 0, 0])
    });
    request
}

/// Adds an address that answers and that the kernel does not choose as the source of a connection
/// by itself: IPv6 does not choose one that is past its preferred time, IPv4 takes the first, and
/// this one comes after our own, which was there before. (In a narrower scope it would not be
/// chosen either, but be listed first, and programs that look for the address of their host take
/// that.) The kernel removes it after `lifetime` (in whole seconds). If it is there already, only
/// its lifetime changes.
///
/// IPv6 adds no route to its network: the next message would have that expire as well, though it is
/// not ours alone.
pub fn hold_address(
    request: &mut Messages,
    link: u32,
    (address, prefix): (IpAddr, u8),
    lifetime: Duration,
) {
    let flags = if address.is_ipv4() {
        0
    } else {
        libc::IFA_F_NODAD | libc::IFA_F_NOPREFIXROUTE
    };
    let valid = u32::try_from(lifetime.as_millis().div_ceil(1000))
        .unwrap_or(FOREVER - 1)
        .clamp(1, FOREVER - 1);
    request.message(
        libc::RTM_NEWADDR,
        flags::ACK | flags::CREATE | libc::NLM_F_REPLACE as u16,
        |m| {
            m.raw(&address_header(address, prefix, link));
            put_address(m, address);
            m.put(
                libc::IFA_CACHEINFO,
                &[0, valid, 0, 0].map(u32::to_ne_bytes).concat(),
            );
            m.put_u32(libc::IFA_FLAGS, flags);
            m.put_u8(IFA_PROTO, OURS);
        },
    );
}

/// Deletes an address.
pub fn drop_address(request: &mut Messages, link: u32, (address, prefix): (IpAddr, u8)) {
    request.message(libc::RTM_DELADDR, flags::ACK, |m| {
        m.raw(&address_header(address, prefix, link));
        put_address(m, address);
    });
}

/// The way to an address: see [`is_local`].
pub fn get_route(link: u32, address: IpAddr) -> Messages {
    let mut request = Messages::new();
    let [family, prefix, ..] = address_header(address, super::longest_prefix(address), 0);
    request.message(libc::RTM_GETROUTE, 0, |m| {
        m.raw(&[family, prefix, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        put_octets(m, libc::RTA_DST, address);
        m.put_u32(libc::RTA_OIF, link);
    });
    request
}

/// Lists all links.
pub fn get_links() -> Messages {
    let mut request = Messages::new();
    request.message(libc::RTM_GETLINK, flags::DUMP, |m| m.raw(&[0; LINK_HEADER]));
    request
}

/// Lists the addresses of both families.
pub fn get_all_addresses() -> Messages {
    let mut request = Messages::new();
    request.message(libc::RTM_GETADDR, flags::DUMP, |m| {
        m.raw(&[0; ADDRESS_HEADER])
    });
    request
}

/// All routes of a family.
pub fn get_routes(v4: bool) -> Messages {
    let mut request = Messages::new();
    let family = if v4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
    request.message(libc::RTM_GETROUTE, flags::DUMP, |m| {
        m.raw(&[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    });
    request
}

/// The link of a default route of the main table.
pub fn default_route(message: &Message) -> Option<u32> {
    let &[_, 0, _, _, table, _, _, libc::RTN_UNICAST, ..] = message.payload else {
        return None;
    };
    let is_main = message.kind == libc::RTM_NEWROUTE && table == libc::RT_TABLE_MAIN;
    message
        .attributes(ROUTE_HEADER)
        .find_kind(libc::RTA_OIF)
        .filter(|_| is_main)?
        .u32()
}

/// What goes to an address is for this host, as a message says that answers [`get_route`].
pub fn is_local(message: &Message) -> Option<bool> {
    let kind = *message.payload.get(7)?;
    (message.kind == libc::RTM_NEWROUTE).then_some(kind == libc::RTN_LOCAL)
}

/// The link that a message tells of, and whether it is there. What a bridge tells about its ports
/// is not about links.
pub fn link(message: &Message) -> Option<(Link, bool)> {
    let present = match message.kind {
        libc::RTM_NEWLINK => true,
        libc::RTM_DELLINK => false,
        _ => return None,
    };
    if message.family()? != libc::AF_UNSPEC as u8 {
        return None;
    }
    let attributes = message.attributes(LINK_HEADER);
    let flags = u32::from_ne_bytes(chunk(message.payload, 8)?);
    let mac = attributes
        .clone()
        .find_kind(libc::IFLA_ADDRESS)
        .and_then(|mac| Mac::try_from(mac.data).ok());
    let link = Link {
        index: u32::from_ne_bytes(chunk(message.payload, 4)?),
        name: attributes.find_kind(libc::IFLA_IFNAME)?.text()?.to_owned(),
        mac: mac.unwrap_or_default(),
        running: flags & UP != 0 && flags & RUNNING != 0,
    };
    Some((link, present))
}

/// The address that a message tells of, and whether it is there.
pub fn address(message: &Message) -> Option<(Held, bool)> {
    let present = match message.kind {
        libc::RTM_NEWADDR => true,
        libc::RTM_DELADDR => false,
        _ => return None,
    };
    let &[_, prefix, short_flags, ..] = message.payload else {
        return None;
    };
    let attributes = message.attributes(ADDRESS_HEADER);
    let find = |kind| attributes.clone().find_kind(kind);
    // At the end of a tunnel IFA_ADDRESS is the other side's.
    let bytes = find(libc::IFA_LOCAL)
        .or_else(|| find(libc::IFA_ADDRESS))?
        .data;
    let address = match i32::from(message.family()?) {
        libc::AF_INET => <[u8; 4]>::try_from(bytes).ok()?.into(),
        libc::AF_INET6 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    let flags = find(libc::IFA_FLAGS)
        .and_then(|flags| flags.u32())
        .unwrap_or(short_flags.into());
    let valid = find(libc::IFA_CACHEINFO)
        .and_then(|info| chunk(info.data, 4))
        .map(u32::from_ne_bytes);
    let held = Held {
        link: u32::from_ne_bytes(chunk(message.payload, 4)?),
        address,
        prefix,
        usable: flags & (libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) == 0,
        ours: valid.is_some_and(|valid| valid != FOREVER)
            || find(IFA_PROTO).and_then(|protocol| protocol.u8()) == Some(OURS),
    };
    Some((held, present))
}

fn acknowledged(kind: u16, flags: u16, body: impl FnOnce(&mut Messages)) -> Messages {
    let mut request = Messages::new();
    request.message(kind, flags | flags::ACK, body);
    request
}

fn link_header(link: u32, flags: u32, which: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    let (words, _) = header.as_chunks_mut::<4>();
    for (place, value) in words.iter_mut().skip(1).zip([link, flags, which]) {
        *place = value.to_ne_bytes();
    }
    header
}

/// The header for an address of global scope.
fn address_header(address: IpAddr, prefix: u8, link: u32) -> [u8; ADDRESS_HEADER] {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    } as u8;
    let [a, b, c, d] = link.to_ne_bytes();
    [family, prefix, 0, libc::RT_SCOPE_UNIVERSE, a, b, c, d]
}

fn put_address(m: &mut Messages, address: IpAddr) {
    for kind in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
        put_octets(m, kind, address);
    }
}

fn put_octets(m: &mut Messages, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => m.put(kind, &address.octets()),
        IpAddr::V6(address) => m.put(kind, &address.octets()),
    }
}

#[cfg(test)]
mod tests;
