//! Frames on all links of the node: questions and claims in; answers, announcements and probes out.

use portico_dataplane::link::filter;
use portico_dataplane::link::packet::{self, Origin, link_address};
use portico_l2::frame::{arp, ndp};
use portico_l2::{Mac, frame};
use socket2::{Domain, SockFilter, Socket, Type};
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Longer ones are none of ours.
const LONGEST: usize = 256;
const ANY_LINK: u32 = 0;

/// What came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub link: u32,
    pub what: Frame,
    /// The sender's.
    pub mac: Mac,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Arp(arp::Packet),
    Ndp(ndp::Message),
}

impl Heard {
    /// It asks for this address.
    pub(super) fn question(&self) -> Option<IpAddr> {
        match self.what {
            Frame::Arp(packet) => packet.is_question().then_some(packet.target.into()),
            Frame::Ndp(message) => {
                (message.kind == ndp::Kind::Solicitation).then_some(message.target.into())
            }
        }
    }

    /// The sender says to have this address, or is about to.
    pub(super) fn claim(&self) -> Option<(IpAddr, Mac)> {
        match self.what {
            Frame::Arp(packet) => Some((packet.claim().into(), packet.sender_mac)),
            Frame::Ndp(message) => message
                .claim()
                .map(|(address, mac)| (address.into(), mac.unwrap_or(self.mac))),
        }
    }

    pub(super) fn answer(&self, mac: Mac) -> Vec<u8> {
        match self.what {
            Frame::Arp(packet) => packet.answer(mac),
            Frame::Ndp(message) => message.answer(mac, self.mac),
        }
    }
}

/// Belongs to the network namespace of the thread that opened it.
pub(super) struct Wire {
    sender: Socket,
    arp: AsyncFd<Socket>,
    ndp: AsyncFd<Socket>,
}

impl Wire {
    /// To be called in an async runtime.
    pub(super) fn open() -> io::Result<Self> {
        // Without a protocol it hears nothing.
        let sender = Socket::new(Domain::PACKET, Type::RAW, None)?;
        sender.set_nonblocking(true)?;
        let arp = listener(arp::ETHERTYPE, None)?;
        let ndp = listener(ndp::ETHERTYPE, Some(neighbour_discovery()))?;
        Ok(Self {
            sender,
            arp: readable(arp)?,
            ndp: readable(ndp)?,
        })
    }

    pub(super) fn announce(&self, link: u32, mac: Mac, address: IpAddr) -> io::Result<()> {
        frame::announcements(mac, address, frame::Role::Host)
            .iter()
            .try_for_each(|frame| self.send(link, frame))
    }

    pub(super) fn probe(&self, link: u32, mac: Mac, address: IpAddr) -> io::Result<()> {
        self.send(link, &frame::probe(mac, address))
    }

    pub(super) fn send(&self, link: u32, frame: &[u8]) -> io::Result<()> {
        self.sender.send_to(frame, &link_address(link, 0)).map(drop)
    }

    /// The next frame, or `None` for what is none. Nothing is lost if it is dropped half way.
    pub(super) async fn next(&self) -> Option<Heard> {
        let (arp, ndp) = (
            self.arp.async_io(Interest::READABLE, receive),
            self.ndp.async_io(Interest::READABLE, receive),
        );
        tokio::select! {
            received = arp => {
                let (origin, bytes, length) = received.ok()?;
                let packet = arp::Packet::parse(bytes.get(..length)?)?;
                heard(origin?, Frame::Arp(packet))
            }
            received = ndp => {
                let (origin, bytes, length) = received.ok()?;
                let message = ndp::Message::parse(bytes.get(..length)?)?;
                heard(origin?, Frame::Ndp(message))
            }
        }
    }
}

fn heard(origin: Origin, what: Frame) -> Option<Heard> {
    origin.for_us.then_some(Heard {
        link: origin.link,
        what,
        mac: origin.mac,
    })
}

fn listener(ethertype: u16, filter: Option<Vec<SockFilter>>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    if let Some(filter) = filter {
        socket.attach_filter(&filter)?;
    }
    socket.bind(&link_address(ANY_LINK, ethertype))?;
    Ok(socket)
}

/// Lets through neighbour solicitations and advertisements, of all IPv6 packets.
fn neighbour_discovery() -> Vec<SockFilter> {
    let mut steps = vec![filter::byte(ndp::NEXT_HEADER as u32)];
    steps.extend(filter::require(ndp::ICMP.into()));
    steps.push(filter::byte(ndp::KIND as u32));
    steps.extend([
        filter::equals(ndp::SOLICITATION.into(), 1),
        filter::accept(),
    ]);
    steps.extend(filter::require(ndp::ADVERTISEMENT.into()));
    steps.push(filter::accept());
    steps
}

type Received = (Option<Origin>, [u8; LONGEST], usize);

#[expect(unsafe_code, reason = "what the kernel wrote is initialised")]
fn receive(socket: &Socket) -> io::Result<Received> {
    let mut buffer = [const { MaybeUninit::new(0) }; LONGEST];
    let (length, from) = socket.recv_from(&mut buffer)?;
    // SAFETY: every byte was initialised above, and the kernel wrote some of them.
    let bytes = buffer.map(|byte| unsafe { byte.assume_init() });
    Ok((packet::origin(&from), bytes, length))
}

/// Those that own one descriptor, always give out the same, and close it only when dropped.
pub(super) trait Owning: AsRawFd {}

impl Owning for Socket {}
impl Owning for portico_dataplane::netlink::Socket {}

/// To be called in an async runtime.
#[expect(
    unsafe_code,
    reason = "the runtime has to be promised that the descriptor stays open"
)]
pub(super) fn readable<T: Owning>(socket: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: that is what `Owning` means.
    unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }.map_err(io::Error::from)
}
