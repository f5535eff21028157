//! Questions by UDP: as many sockets for an address as there are processors, each read and answered
//! by one task, without a queue between.

use super::{Context, RECEIVE_BUFFER, packet, sign};
use crate::answer::{self, Incoming, Transport};
use crate::limit::Verdict;
use crate::metrics::Outcome;
use crate::transfer;
use crate::tsig::{Opened, Session};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The most bytes of a question. A longer one is cut off, and then cannot be parsed.
const MOST_BYTES: usize = 4096;
/// Packets in a row before others get a turn.
const TURN: usize = 64;

pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    packet::tell_local_addresses(&socket, address.is_ipv6())?;
    // More is better, less is no failure.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

pub(super) async fn serve(socket: UdpSocket, context: Arc<Context>) {
    let mut worker = Worker {
        context,
        chance: 0x9e37_79b9 ^ socket.as_raw_fd() as usize,
    };
    let mut buffer = vec![0; MOST_BYTES];
    loop {
        if let Err(error) = socket.readable().await {
            tracing::warn!(%error, "cannot wait for questions");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for _ in 0..TURN {
            match socket.try_io(Interest::READABLE, || {
                packet::receive(socket.as_raw_fd(), &mut buffer)
            }) {
                Ok((length, from, local)) => {
                    let answer = buffer
                        .get(..length)
                        .and_then(|bytes| worker.answer(bytes, from));
                    // A full buffer of the kernel loses an answer, as the network may; the client
                    // asks again.
                    let _ =
                        answer.map(|bytes| packet::send(socket.as_raw_fd(), &bytes, from, local));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Of an answer that did not arrive; the next packet is a new one.
                Err(error) => tracing::trace!(%error, "a packet was not received"),
            }
        }
        tokio::task::yield_now().await;
    }
}

struct Worker {
    context: Arc<Context>,
    chance: usize,
}

impl Worker {
    fn answer(&mut self, bytes: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
        // Port 0 cannot be answered, and answers to servers of other protocols start a war of
        // answers.
        if from.port() == 0 {
            return None;
        }
        if !answer::is_question(bytes) {
            return None;
        }
        match self
            .context
            .limit
            .ask(from.ip(), self.context.start.elapsed())
        {
            Verdict::Answer => {}
            verdict => return self.limited(bytes, verdict),
        }
        let chance = self.turn();
        match self.context.open(bytes) {
            Opened::Unsigned => self.reply(bytes, from, chance, None),
            Opened::Signed(bytes, session) => self.reply(&bytes, from, chance, Some(session)),
            Opened::Bad(_, answer) => Some(answer),
        }
    }

    fn reply(
        &self,
        bytes: &[u8],
        from: SocketAddr,
        chance: usize,
        session: Option<Session<'_>>,
    ) -> Option<Vec<u8>> {
        let context = &self.context;
        let left = session.as_ref().map_or(0, Session::size);
        let answer = match answer::read(bytes) {
            Incoming::Noise => None,
            Incoming::Mistake(reply) => context.correct(*reply, Transport::Udp),
            Incoming::Question(request) => context.answer(&request, Transport::Udp, chance, left),
            Incoming::Transfer(request) => {
                let allowed = context.transferring.allows(from.ip(), session.is_some());
                let reply = transfer::by_udp(&context.zone(), &request, allowed);
                let room = answer::room(&request, Transport::Udp).saturating_sub(left);
                context.send_off(&request, reply, room, Transport::Udp)
            }
        };
        answer.map(|answer| sign(session, answer))
    }

    fn limited(&self, bytes: &[u8], verdict: Verdict) -> Option<Vec<u8>> {
        let outcome = if verdict == Verdict::Truncate {
            "truncated"
        } else {
            "dropped"
        };
        self.context
            .metrics
            .limited
            .get_or_create(&Outcome { outcome })
            .inc();
        if verdict == Verdict::Drop {
            return None;
        }
        match answer::read(bytes) {
            Incoming::Question(request) | Incoming::Transfer(request) => {
                answer::reply(&request).truncate().to_vec().ok()
            }
            _ => None,
        }
    }

    /// A number that looks like chance (a step of xorshift).
    fn turn(&mut self) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance
    }
}
