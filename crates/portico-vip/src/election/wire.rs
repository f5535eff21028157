//! The link below IP: announcements and probes out, what others say to have in. Which bytes they
//! are is for `portico-l2`.

use super::claims;
use super::ready::readable;
pub(super) use portico_dataplane::link::chunk;
pub(super) use portico_l2::Mac;
pub(super) use portico_l2::frame::probe;

use portico_dataplane::link::packet::link_address;
use portico_l2::frame::{self, Role, arp, ndp};
use socket2::{Domain, SockFilter, Socket, Type};
use std::io::{self, Read};
use std::net::IpAddr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Longer packets are none that are listened for.
const LONGEST: usize = 256;

/// Frames that say that an address is here. A virtual router says to be one (RFC 9568, section
/// 6.4).
pub(super) fn announcements(mac: Mac, address: IpAddr) -> Vec<Vec<u8>> {
    frame::announcements(mac, address, Role::Router)
}

/// One link. Belongs to the network namespace of the thread that opened it.
pub(super) struct Wire {
    sender: Socket,
    listener: AsyncFd<Socket>,
    read: Claim,
}

impl Wire {
    /// The link with this number; claims of these addresses are heard, all of one family. To be
    /// called in an async runtime.
    pub(super) fn open(link: u32, addresses: &[IpAddr]) -> io::Result<Self> {
        // Without a protocol it hears nothing.
        let sender = Socket::new(Domain::PACKET, Type::RAW, None)?;
        sender.set_nonblocking(true)?;
        sender.bind(&link_address(link, 0))?;
        let (ethertype, filter, read) = listening(addresses);
        let listener = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
        listener.set_nonblocking(true)?;
        listener.attach_filter(&filter)?;
        listener.bind(&link_address(link, ethertype))?;
        Ok(Self {
            sender,
            listener: readable(listener)?,
            read,
        })
    }

    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.sender.send(frame).map(drop)
    }

    /// The next claim of one of the addresses by another host. Dropping the future loses no claim.
    pub(super) async fn claim(&self) -> io::Result<(IpAddr, Mac)> {
        let mut buffer = [0; LONGEST];
        loop {
            let length = self
                .listener
                .async_io(Interest::READABLE, |mut socket| socket.read(&mut buffer))
                .await?;
            if let Some(claim) = buffer.get(..length).and_then(self.read) {
                return Ok(claim);
            }
        }
    }
}

type Claim = fn(&[u8]) -> Option<(IpAddr, Mac)>;

fn listening(addresses: &[IpAddr]) -> (u16, Vec<SockFilter>, Claim) {
    let v4 = addresses.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    let v6 = addresses.iter().filter_map(|address| match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(*address),
    });
    match addresses.first() {
        Some(IpAddr::V6(_)) => (ndp::ETHERTYPE, claims::neighbour_filter(v6), |packet| {
            claims::of_neighbour(packet).map(|(a, mac)| (a.into(), mac))
        }),
        _ => (arp::ETHERTYPE, claims::arp_filter(v4), |packet| {
            claims::of_arp(packet).map(|(a, mac)| (a.into(), mac))
        }),
    }
}
