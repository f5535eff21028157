//! The link below IP: announcements and probes out, what others say to have in. Which bytes they
//! are is for [`arp`] and [`neighbour`].

use super::ready::readable;
use super::{arp, neighbour};
pub use portico_dataplane::link::{Mac, chunk};

use portico_dataplane::link::packet::link_address;
use socket2::{Domain, SockFilter, Socket, Type};
use std::io::{self, Read};
use std::net::IpAddr;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub const BROADCAST: Mac = [0xff; 6];

/// Frames that say that an address is here.
pub fn announcements(mac: Mac, address: IpAddr) -> Vec<Vec<u8>> {
    match address {
        IpAddr::V4(address) => arp::announcements(mac, address).into(),
        IpAddr::V6(address) => vec![neighbour::announcement(mac, address)],
    }
}

/// A frame that asks whether somebody has an address.
pub fn probe(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp::probe(mac, address),
        IpAddr::V6(address) => neighbour::probe(mac, address),
    }
}

/// One link. Belongs to the network namespace of the thread that opened it.
pub struct Wire {
    sender: Socket,
    listener: AsyncFd<Socket>,
    read: Claim,
}

impl Wire {
    /// The link with this number; claims of these addresses are heard, all of one family. To be
    /// called in an async runtime.
    pub fn open(link: u32, addresses: &[IpAddr]) -> io::Result<Wire> {
        // Without a protocol it hears nothing.
        let sender = Socket::new(Domain::PACKET, Type::RAW, None)?;
        sender.set_nonblocking(true)?;
        sender.bind(&link_address(link, 0))?;
        let (ethertype, filter, read) = listening(addresses);
        let listener = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
        listener.set_nonblocking(true)?;
        listener.attach_filter(&filter)?;
        listener.bind(&link_address(link, ethertype))?;
        Ok(Wire {
            sender,
            listener: readable(listener)?,
            read,
        })
    }

    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.sender.send(frame).map(drop)
    }

    /// Who says to have which of the addresses. Nothing is lost if it is dropped half way.
    pub async fn claim(&self) -> io::Result<(IpAddr, Mac)> {
        let mut buffer = [0; 128];
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
        Some(IpAddr::V6(_)) => (neighbour::ETHERTYPE, neighbour::filter(v6), |packet| {
            neighbour::claim(packet).map(|(a, mac)| (a.into(), mac))
        }),
        _ => (arp::ETHERTYPE, arp::filter(v4), |packet| {
            arp::claim(packet).map(|(a, mac)| (a.into(), mac))
        }),
    }
}
