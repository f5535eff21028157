//! The addresses of the node's interfaces: all of them, and again whenever they change.

use portico_dataplane::netlink::{Message, Messages, Socket, flags};
use std::io;
use std::net::IpAddr;
use tokio::io::unix::AsyncFd;

const GET_ADDRESS: u16 = 22;
const GROUP_V4: u32 = 5;
const GROUP_V6: u32 = 9;
/// struct ifaddrmsg
const HEADER: usize = 8;
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const FLAGS: u16 = 8;
/// Nobody can use it yet: another node is still being asked whether it has it.
const TENTATIVE: u32 = 0x40;
const OPTIMISTIC: u32 = 0x04;
/// Another node has it.
const DUPLICATE: u32 = 0x08;

/// Tells the addresses as they change. Belongs to the network namespace of the thread that opened it.
pub struct Addresses {
    changes: AsyncFd<Socket>,
    lister: Socket,
    told: Option<Vec<IpAddr>>,
}

impl Addresses {
    /// From here on no change is missed. To be called in an async runtime.
    pub fn open() -> io::Result<Addresses> {
        let changes = Socket::open(libc::NETLINK_ROUTE)?;
        changes.join(GROUP_V4)?;
        changes.join(GROUP_V6)?;
        Ok(Addresses { changes: watched(changes)?, lister: Socket::open(libc::NETLINK_ROUTE)?, told: None })
    }

    /// All addresses, sorted: at once when asked for the first time, then when they are no longer what was told last.
    /// Nothing is lost if it is dropped half way. After an error, ask again.
    pub async fn next(&mut self) -> io::Result<Vec<IpAddr>> {
        loop {
            if self.told.is_some() {
                self.changed().await?;
            }
            let now = list(&mut self.lister)?;
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return Ok(now);
            }
        }
    }

    /// What changed does not matter, only that something did; so notifications that were lost do no harm.
    async fn changed(&mut self) -> io::Result<()> {
        let mut ready = self.changes.readable_mut().await?;
        let read = ready.get_inner_mut().notifications(|_| {});
        ready.clear_ready();
        match read {
            Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => Err(error),
            _ => Ok(()),
        }
    }
}

#[expect(unsafe_code, reason = "the runtime has to be promised that the descriptor stays open")]
fn watched(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: a `Socket` owns its descriptor, always returns the same one, and closes it only when dropped.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}

fn list(socket: &mut Socket) -> io::Result<Vec<IpAddr>> {
    let mut request = Messages::new();
    request.message(GET_ADDRESS, flags::DUMP, |m| m.raw(&[0; HEADER]));
    let mut addresses = socket.query(&request, usable_address)?;
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// The address that a message tells of, if the node can use it.
fn usable_address(message: Message) -> Option<IpAddr> {
    let attributes = message.attributes(HEADER);
    let short_flags = message.payload.get(2).copied().map(u32::from);
    let flags = attributes.clone().find_kind(FLAGS).and_then(|flags| flags.u32()).or(short_flags)?;
    if flags & DUPLICATE != 0 || flags & (TENTATIVE | OPTIMISTIC) == TENTATIVE {
        return None;
    }
    // At the end of a tunnel ADDRESS is the other side's.
    let address = attributes.clone().find_kind(LOCAL).or_else(|| attributes.clone().find_kind(ADDRESS))?;
    match i32::from(message.family()?) {
        libc::AF_INET => <[u8; 4]>::try_from(address.data).ok().map(IpAddr::from),
        libc::AF_INET6 => <[u8; 16]>::try_from(address.data).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
