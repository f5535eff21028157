//! A connection to a router, with what waits to be sent; and how this node is reached from its
//! other end.

use portico_bgp::{AfiSafi, NextHops};
use portico_dataplane::netlink::{self, Messages, flags};
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More is not written while so much waits for the router.
const MOST_WAITING: usize = 64 << 10;
const READ: usize = 16 << 10;
/// The time limit for what is sent before a close.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) struct Connection {
    stream: TcpStream,
    waiting: Vec<u8>,
    read: Box<[u8; READ]>,
}

/// What became of waiting for the router.
pub(super) enum Event {
    /// Something was sent.
    Wrote,
    /// So many bytes can be [`Connection::read`].
    Read(usize),
    /// It is over.
    Closed(String),
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            waiting: Vec::new(),
            read: Box::new([0; READ]),
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MOST_WAITING
    }

    pub(super) fn bytes(&self, count: usize) -> &[u8] {
        self.read.get(..count).unwrap_or_default()
    }

    /// The next event. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Event {
        let (mut reader, mut writer) = self.stream.split();
        let closed = |error: io::Error| Event::Closed(error.to_string());
        tokio::select! {
            read = reader.read(self.read.as_mut_slice()) => match read {
                Ok(0) => Event::Closed("closed by the router".to_owned()),
                Ok(count) => Event::Read(count),
                Err(error) => closed(error),
            },
            wrote = writer.write(&self.waiting), if !self.waiting.is_empty() => match wrote {
                Ok(count) => {
                    self.waiting.drain(..count.min(self.waiting.len()));
                    if self.waiting.is_empty() && self.waiting.capacity() > MOST_WAITING {
                        self.waiting = Vec::new();
                    }
                    Event::Wrote
                }
                Err(error) => closed(error),
            },
        }
    }

    /// Sends what waits, and closes. Closing a socket with unread bytes resets the connection and
    /// loses what was sent last, so the rest is read first.
    pub(super) async fn close(mut self) {
        let farewell = async {
            self.stream.write_all(&self.waiting).await?;
            self.stream.shutdown().await?;
            while self.stream.read(self.read.as_mut_slice()).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // A router that does not listen any more is told by the end of the connection.
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    /// The own end of the connection, and an address of the other family on the same link.
    pub(super) fn next_hops(&self) -> NextHops {
        let mut hops = NextHops::default();
        let Ok(own) = self
            .stream
            .local_addr()
            .map(|address| address.ip().to_canonical())
        else {
            return hops;
        };
        let family = AfiSafi::of(own);
        let other = if family == AfiSafi::Ipv4Unicast {
            AfiSafi::Ipv6Unicast
        } else {
            AfiSafi::Ipv4Unicast
        };
        hops.session = Some(family);
        *hops.own.get_mut(family) = Some(own);
        *hops.own.get_mut(other) = neighbour_of(own, other).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list addresses, routes of {other} are not announced");
            None
        });
        hops
    }
}

/// struct ifaddrmsg: family, prefix length, flags, scope, index.
const HEADER: usize = 8;
const LENGTH_AT: usize = 1;
const FLAGS_AT: usize = 2;
const INDEX_AT: usize = 4;
/// Flags of an address that is about to go, or not in use yet.
const UNFIT: u8 = (libc::IFA_F_DEPRECATED | libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED) as u8;

struct LinkAddress {
    index: u32,
    address: IpAddr,
    /// It is in a network of its own, as those are that come and go: others need not know the way.
    alone: bool,
    unfit: bool,
}

/// An address that others can use, on the link that has this one.
fn neighbour_of(own: IpAddr, family: AfiSafi) -> io::Result<Option<IpAddr>> {
    let mut socket = netlink::Socket::open(libc::NETLINK_ROUTE)?;
    let mut request = Messages::new();
    request.message(libc::RTM_GETADDR, flags::DUMP, |message| {
        message.raw(&[0; HEADER])
    });
    let all = socket.query(&request, |message| {
        let index = message
            .payload
            .get(INDEX_AT..)?
            .first_chunk()
            .map(|bytes| u32::from_ne_bytes(*bytes))?;
        let (length, flags) = (
            *message.payload.get(LENGTH_AT)?,
            *message.payload.get(FLAGS_AT)?,
        );
        let attributes = message.attributes(HEADER);
        let address = attributes
            .clone()
            .find_kind(libc::IFA_LOCAL)
            .or_else(|| attributes.clone().find_kind(libc::IFA_ADDRESS))?;
        let v4 = <[u8; 4]>::try_from(address.data).ok().map(IpAddr::from);
        let address = v4.or_else(|| <[u8; 16]>::try_from(address.data).ok().map(IpAddr::from))?;
        let alone = length == if address.is_ipv4() { 32 } else { 128 };
        Some(LinkAddress {
            index,
            address,
            alone,
            unfit: flags & UNFIT != 0,
        })
    })?;
    let link = all
        .iter()
        .find(|one| one.address == own)
        .map(|one| one.index);
    let fit = |one: &&LinkAddress| {
        Some(one.index) == link
            && AfiSafi::of(one.address) == family
            && !one.unfit
            && is_for_others(one.address)
    };
    Ok(all
        .iter()
        .filter(fit)
        .min_by_key(|one| one.alone)
        .map(|one| one.address))
}

fn is_for_others(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    }
}
