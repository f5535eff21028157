//! The addresses of the node's interfaces: all of them, and again whenever they change. Those of
//! Services, which are on a link of their own in ipvs mode, are not the node's.

use crate::dataplanes::LINK;
use portico_dataplane::netlink::{Message, Messages, Socket, flags};
use std::io;
use std::net::IpAddr;
use tokio::io::unix::AsyncFd;

/// struct ifinfomsg
const LINK_HEADER: usize = 16;
/// struct ifaddrmsg
const HEADER: usize = 8;
/// Where both have the number of the link.
const INDEX_AT: usize = 4;
/// The address cannot be used yet: duplicate address detection is still under way.
const TENTATIVE: u32 = libc::IFA_F_TENTATIVE;
const OPTIMISTIC: u32 = libc::IFA_F_OPTIMISTIC;
/// Another node has it.
const DUPLICATE: u32 = libc::IFA_F_DADFAILED;

/// Tells the addresses as they change. Belongs to the network namespace of the thread that opened
/// it.
pub(crate) struct Addresses {
    changes: AsyncFd<Socket>,
    lister: Socket,
    /// The number of the link that is not the node's, if it is there.
    services: Option<u32>,
    told: Option<Vec<IpAddr>>,
}

impl Addresses {
    /// From here on no change is missed. To be called in an async runtime.
    pub(crate) fn open() -> io::Result<Self> {
        let changes = Socket::open(libc::NETLINK_ROUTE)?;
        changes.join(libc::RTNLGRP_IPV4_IFADDR)?;
        changes.join(libc::RTNLGRP_IPV6_IFADDR)?;
        let lister = Socket::open(libc::NETLINK_ROUTE)?;
        Ok(Self {
            changes: watched(changes)?,
            lister,
            services: None,
            told: None,
        })
    }

    /// All addresses, sorted: at once when asked for the first time, then when they are no longer
    /// what was told last. Nothing is lost if it is dropped half way. After an error, ask again.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<IpAddr>> {
        loop {
            if self.told.is_some() {
                self.changed().await?;
            }
            self.services = number_of(&mut self.lister, LINK);
            let now = list(&mut self.lister, self.services)?;
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return Ok(now);
            }
        }
    }

    /// What changed does not matter, only that something did; so notifications that were lost do no
    /// harm. To list all addresses for each that a Service gets would be much work.
    async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.changes.readable_mut().await?;
            let (services, mut of_node) = (self.services, false);
            let read = ready.get_inner_mut().notifications(|message| {
                of_node |= services.is_none() || index(&message) != services;
            });
            ready.clear_ready();
            match read {
                Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => return Err(error),
                Ok(()) if !of_node => {}
                _ => return Ok(()),
            }
        }
    }
}

/// All addresses as they are at the moment, sorted.
pub(crate) fn list_now() -> io::Result<Vec<IpAddr>> {
    let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
    let services = number_of(&mut socket, LINK);
    list(&mut socket, services)
}

#[expect(
    unsafe_code,
    reason = "the runtime has to be promised that the descriptor stays open"
)]
fn watched(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: a `Socket` owns its descriptor, always returns the same one, and closes it only when
    // dropped.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

fn index(message: &Message) -> Option<u32> {
    message
        .payload
        .get(INDEX_AT..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))
}

/// `None` if there is no such link.
fn number_of(socket: &mut Socket, link: &str) -> Option<u32> {
    let mut request = Messages::new();
    request.message(libc::RTM_GETLINK, 0, |m| {
        m.raw(&[0; LINK_HEADER]);
        m.put_str(libc::IFLA_IFNAME, link);
    });
    socket
        .query(&request, |message| index(&message))
        .ok()?
        .first()
        .copied()
}

fn list(socket: &mut Socket, except: Option<u32>) -> io::Result<Vec<IpAddr>> {
    let mut request = Messages::new();
    request.message(libc::RTM_GETADDR, flags::DUMP, |m| m.raw(&[0; HEADER]));
    let of_node = |message: &Message| except.is_none() || index(message) != except;
    let mut addresses = socket.query(&request, |message| {
        Some(message).filter(of_node).and_then(usable_address)
    })?;
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The address that a message tells of, if the node can use it.
fn usable_address(message: Message) -> Option<IpAddr> {
    let attributes = message.attributes(HEADER);
    let short_flags = message.payload.get(2).copied().map(u32::from);
    let flags = attributes
        .clone()
        .find_kind(libc::IFA_FLAGS)
        .and_then(|flags| flags.u32())
        .or(short_flags)?;
    if flags & DUPLICATE != 0 || flags & (TENTATIVE | OPTIMISTIC) == TENTATIVE {
        return None;
    }
    // At the end of a tunnel libc::IFA_ADDRESS is the other side's.
    let address = attributes
        .clone()
        .find_kind(libc::IFA_LOCAL)
        .or_else(|| attributes.clone().find_kind(libc::IFA_ADDRESS))?;
    match i32::from(message.family()?) {
        libc::AF_INET => <[u8; 4]>::try_from(address.data).ok().map(IpAddr::from),
        libc::AF_INET6 => <[u8; 16]>::try_from(address.data).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
