//! The sockets by which nodes hear each other: one of each family, as far as the host has it.

use super::seal::Key;
use portico_l2::{Heartbeat, heartbeat};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::UdpSocket;

/// What nodes tell each other goes before everything else (internetwork control).
const TRAFFIC_CLASS: u32 = 0xc0;
/// Bytes of heartbeats that wait in the socket; more of them are a flood.
const RECEIVE_QUEUE: usize = 256 << 10;
/// The longest heartbeat and its tag.
const LONGEST: usize = heartbeat::LONGEST + 64;

pub(super) struct Heartbeats {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    key: Key,
    port: u16,
    buffer: Box<[u8; LONGEST]>,
}

impl Heartbeats {
    /// To be called in an async runtime.
    pub(super) fn open(key: Key, port: u16) -> io::Result<Self> {
        let v4 = udp(Ipv4Addr::UNSPECIFIED.into(), port)?;
        let v6 = udp(Ipv6Addr::UNSPECIFIED.into(), port)?;
        if v4.is_none() && v6.is_none() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            v4,
            v6,
            key,
            port,
            buffer: Box::new([0; LONGEST]),
        })
    }

    /// What cannot be sent is lost, as on the way.
    pub(super) fn send(&self, to: IpAddr, heartbeat: &Heartbeat) -> io::Result<()> {
        let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        let Some(socket) = socket else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        // Past the runtime, which takes a socket that it has not yet asked about for full: the
        // first heartbeats after a start would be lost.
        let sealed = self.key.seal(heartbeat.emit());
        let to = SocketAddr::new(to, self.port);
        SockRef::from(socket).send_to(&sealed, &to.into()).map(drop)
    }

    /// The next one, or `None` for what is not one, or not from a node. Nothing is lost if it is
    /// dropped half way.
    pub(super) async fn next(&mut self) -> Option<Heartbeat> {
        loop {
            tokio::select! {
                () = readable(self.v4.as_ref()) => {}
                () = readable(self.v6.as_ref()) => {}
            }
            if let Some(received) = self.waiting() {
                return received;
            }
        }
    }

    /// What has come already, if anything has.
    pub(super) fn waiting(&mut self) -> Option<Option<Heartbeat>> {
        let sockets = [self.v4.as_ref(), self.v6.as_ref()];
        let mut received = sockets
            .into_iter()
            .flatten()
            .filter_map(|socket| socket.try_recv(&mut self.buffer[..]).ok());
        let length = received.next()?;
        let message = self
            .buffer
            .get(..length)
            .and_then(|bytes| self.key.open(bytes));
        Some(message.and_then(|message| Heartbeat::parse(message).ok()))
    }
}

async fn readable(socket: Option<&UdpSocket>) {
    match socket {
        // An error is seen by the read that follows.
        Some(socket) => drop(socket.readable().await),
        None => std::future::pending().await,
    }
}

/// `None` if the host does not have the family.
fn udp(any: IpAddr, port: u16) -> io::Result<Option<UdpSocket>> {
    let socket = match Socket::new(
        Domain::for_address((any, port).into()),
        Type::DGRAM,
        Some(Protocol::UDP),
    ) {
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => return Ok(None),
        socket => socket?,
    };
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_QUEUE)?;
    match any {
        IpAddr::V4(_) => socket.set_tos_v4(TRAFFIC_CLASS)?,
        IpAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_tclass_v6(TRAFFIC_CLASS)?;
        }
    }
    match socket.bind(&SocketAddr::new(any, port).into()) {
        Err(error) if any.is_ipv6() && error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {
            Ok(None)
        }
        bound => bound
            .and_then(|()| UdpSocket::from_std(socket.into()))
            .map(Some),
    }
}
