//! Packets that come before their Service: to an address that a Service may have and none has yet.
//! They wait in a queue of the kernel until the daemon says whether the rules should look at them
//! once more or let them go, because a lost SYN is sent again only after a second. Where no daemon
//! reads the queue they go on at once.
//!
//! Which packet waits for which Service, and how long, is decided by the reader of this queue.

use crate::netlink::uapi::*;
use crate::netlink::{Message, Messages, Socket};
use portico_model::table::{Family, FrontendKey, Protocol};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Queue numbers, of which the first free one is taken: a daemon that starts may find one that
/// stops.
const NUMBERS: std::ops::Range<u16> = 27960..27964;
/// Packets that wait at most; others go on.
const MOST: u32 = 128;
/// Headers are enough, with all that can stand between them.
const BYTES: u32 = 64;

/// Where a rule sends packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The number of the queue.
    pub number: u16,
    /// The expression that sends packets to it.
    pub way: Way,
}

/// How a rule says it: kernels can be built without the one or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By nftables' own expression.
    Own,
    /// By the target that iptables has.
    Xtables,
}

impl Way {
    /// Both ways, the one to prefer first.
    pub const ALL: [Self; 2] = [Self::Own, Self::Xtables];
}

/// All that rules may name.
pub fn queues() -> impl Iterator<Item = Queue> {
    NUMBERS.flat_map(|number| Way::ALL.map(|way| Queue { number, way }))
}

/// A packet that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyPacket {
    /// The number by which the packet is answered.
    pub id: u32,
    /// The frontend that it is for.
    pub to: FrontendKey,
}

/// What to do with a packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Look for a Service once more.
    Again,
    /// Go on without one.
    On,
    /// Nobody is told. The sender may try again.
    Drop,
}

impl Answer {
    fn code(self) -> u32 {
        match self {
            Self::Again => NF_REPEAT,
            Self::On => NF_ACCEPT,
            Self::Drop => NF_DROP,
        }
    }
}

/// The queue of this process. Clones are the same one; belongs to the network namespace that it was
/// opened in. What still waits when the last is dropped is lost.
#[derive(Clone)]
pub struct EarlyPacketQueue {
    socket: Arc<Mutex<Socket>>,
    fd: RawFd,
    number: u16,
}

impl EarlyPacketQueue {
    /// Takes the first queue that is free, in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for number in NUMBERS {
            match Self::listen(number) {
                Err(error) => last = error,
                listening => return listening,
            }
        }
        Err(last)
    }

    fn listen(number: u16) -> io::Result<Self> {
        let mut socket = Socket::netfilter()?;
        let (mut configure, mut early) = (Messages::new(), Vec::new());
        message(&mut configure, NFQNL_MSG_CONFIG, number, |m| {
            let [a, b, c, d] = BYTES.to_be_bytes();
            m.put(NFQA_CFG_CMD, &[NFQNL_CFG_CMD_BIND, 0, 0, 0]);
            m.put(NFQA_CFG_PARAMS, &[a, b, c, d, NFQNL_COPY_PACKET]);
            m.put_u32_be(NFQA_CFG_QUEUE_MAXLEN, MOST);
            // A full queue lets packets go on.
            m.put_u32_be(NFQA_CFG_MASK, NFQA_CFG_F_FAIL_OPEN);
            m.put_u32_be(NFQA_CFG_FLAGS, NFQA_CFG_F_FAIL_OPEN);
        });
        configure.acknowledge_last();
        // Rules of an earlier process may send packets already.
        let replies =
            socket.exchange_among(&configure, |message| early.extend(packet(&message)))?;
        replies.into_result()?;
        let fd = socket.as_raw_fd();
        let early_packets = Self {
            socket: Arc::new(Mutex::new(socket)),
            fd,
            number,
        };
        early_packets.answer(early.iter().map(|(id, _)| (*id, Answer::On)))?;
        Ok(early_packets)
    }

    /// The number of the queue, for the rules.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The early packets that came since the last call. To be called when the descriptor is
    /// readable.
    pub fn early_packets(&self) -> io::Result<Vec<EarlyPacket>> {
        let mut packets = Vec::new();
        // Packets that the socket had no room for were let on by the kernel; others may be queued
        // behind them, and the kernel does not announce those again.
        while let Err(error) = self
            .lock()
            .notifications(|message| packets.extend(packet(&message)))
        {
            if error.raw_os_error() != Some(libc::ENOBUFS) {
                // Each of them has a place until it is answered.
                self.answer(packets.iter().map(|(id, _)| (*id, Answer::On)))?;
                return Err(error);
            }
        }
        let strangers = packets.iter().filter(|(_, to)| to.is_none());
        self.answer(strangers.map(|(id, _)| (*id, Answer::On)))?;
        Ok(packets
            .into_iter()
            .filter_map(|(id, to)| Some(EarlyPacket { id, to: to? }))
            .collect())
    }

    /// Answers packets by their numbers.
    pub fn answer(&self, answers: impl IntoIterator<Item = (u32, Answer)>) -> io::Result<()> {
        let mut messages = Messages::new();
        for (id, answer) in answers {
            let verdict = [answer.code().to_be_bytes(), id.to_be_bytes()];
            message(&mut messages, NFQNL_MSG_VERDICT, self.number, |m| {
                m.put(NFQA_VERDICT_HDR, verdict.as_flattened())
            });
        }
        if messages.is_empty() {
            Ok(())
        } else {
            self.lock().tell(&messages)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for EarlyPacketQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

/// The header of these messages names the queue.
fn message(messages: &mut Messages, command: u8, number: u16, body: impl FnOnce(&mut Messages)) {
    let [high, low] = number.to_be_bytes();
    messages.message(u16::from_be_bytes([NFNL_SUBSYS_QUEUE, command]), 0, |m| {
        m.raw(&[0, 0, high, low]);
        body(m);
    });
}

/// Its number, and where it goes if that can be told.
fn packet(message: &Message) -> Option<(u32, Option<FrontendKey>)> {
    if message.kind != u16::from_be_bytes([NFNL_SUBSYS_QUEUE, NFQNL_MSG_PACKET]) {
        return None;
    }
    let attribute = |kind| message.attributes(4).find_kind(kind);
    let id = attribute(NFQA_PACKET_HDR)?.data.first_chunk()?;
    Some((
        u32::from_be_bytes(*id),
        attribute(NFQA_PAYLOAD).and_then(|payload| destination(payload.data)),
    ))
}

/// The destination of an IP packet with ports.
fn destination(packet: &[u8]) -> Option<FrontendKey> {
    let first = packet.first()?;
    let (address, protocol, header): (IpAddr, _, usize) = match first >> 4 {
        4 => {
            let is_first_fragment = packet.get(6)? & 0x1f == 0 && *packet.get(7)? == 0;
            let header = is_first_fragment.then_some(usize::from(first & 0xf) * 4)?;
            (
                packet
                    .get(16..)?
                    .first_chunk::<4>()
                    .map(|octets| (*octets).into())?,
                packet.get(9)?,
                header,
            )
        }
        6 => (
            packet
                .get(24..)?
                .first_chunk::<16>()
                .map(|octets| (*octets).into())?,
            packet.get(6)?,
            40,
        ),
        _ => return None,
    };
    let protocol = Protocol::ALL
        .into_iter()
        .find(|known| known.number() == *protocol)?;
    let port = u16::from_be_bytes(*packet.get(header + 2..)?.first_chunk()?);
    Some(FrontendKey {
        family: Family::of(address),
        address: Some(address),
        port,
        protocol,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(address: &str, port: u16, protocol: Protocol) -> Option<FrontendKey> {
        let address: IpAddr = address.parse().unwrap();
        Some(FrontendKey {
            family: Family::of(address),
            address: Some(address),
            port,
            protocol,
        })
    }

    #[test]
    fn where_a_packet_goes() {
        let mut v4 = vec![
            0x46, 0, 0, 60, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 10, 96, 0, 7,
        ];
        v4.extend([1, 1, 1, 0, 0x80, 0, 0x01, 0xbb]);
        assert_eq!(destination(&v4), to("10.96.0.7", 443, Protocol::Tcp));
        v4[7] = 1;
        assert_eq!(destination(&v4), None, "a later part has no ports");
        let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        v6.extend([0xfd; 16]);
        v6.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        v6.extend([0x80, 0, 0, 53]);
        assert_eq!(destination(&v6), to("fd00::9", 53, Protocol::Udp));
        v6[6] = 58;
        assert_eq!(destination(&v6), None, "ICMP has no ports");
    }

    #[test]
    fn what_breaks_off_goes_nowhere() {
        let whole = [
            0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 10, 96, 0, 7, 0, 1, 0, 2,
        ];
        assert!(destination(&whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(destination(&whole[..length]), None, "{length}");
        }
    }
}
