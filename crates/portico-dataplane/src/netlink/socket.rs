//! The netlink socket. The kernel does what it is asked, and queues its answers, before `send`
//! returns; so nothing here waits, and reading stops when there is nothing more to read.

use super::flags;
use super::message::{Message, Messages, attributes, messages, u32_at};
use super::uapi::{NLMSG_DONE, NLMSG_ERROR, NLMSGERR_ATTR_MSG};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Parts of a dump have at most 32 KiB.
const RECEIVE_BUFFER: usize = 128 << 10;
/// Room for the errors of a large batch.
const RECEIVE_QUEUE: usize = 8 << 20;
/// How often a dump is begun anew because what it lists changed meanwhile.
const DUMP_ATTEMPTS: usize = 20;

/// A request that the kernel did not do.
#[derive(Debug)]
pub struct Refusal {
    /// The number of the request.
    pub sequence: u32,
    /// The error of the kernel.
    pub error: io::Error,
    /// What the kernel says about it.
    pub text: Option<String>,
}

/// Answers to what was sent.
#[derive(Debug, Default)]
pub struct Replies {
    /// Requests that were done, of those that asked to be told.
    pub acknowledged: usize,
    /// Requests that were not done.
    pub refused: Vec<Refusal>,
}

impl Replies {
    /// Whether it says that a request was done.
    fn add(&mut self, message: &Message) -> bool {
        let refused = refusal(message);
        let is_done = refused.is_none();
        self.acknowledged += usize::from(is_done);
        self.refused.extend(refused);
        is_done
    }

    /// The first refusal as an error.
    pub fn into_result(self) -> io::Result<usize> {
        match self.refused.into_iter().next() {
            None => Ok(self.acknowledged),
            Some(Refusal {
                error, text: None, ..
            }) => Err(error),
            Some(Refusal {
                error,
                text: Some(text),
                ..
            }) => Err(io::Error::new(error.kind(), format!("{error}: {text}"))),
        }
    }
}

/// A netlink socket.
pub struct Socket {
    fd: OwnedFd,
    port: u32,
    send_room: usize,
    buffer: Vec<u8>,
    /// Answers of a failed exchange may still be queued.
    stale: bool,
}

impl Socket {
    /// `protocol` is e.g. `libc::NETLINK_NETFILTER`. Belongs to the network namespace of the
    /// calling thread.
    pub fn open(protocol: i32) -> io::Result<Self> {
        let fd = open(protocol)?;
        for option in [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK] {
            // Old kernels lack them; errors are then less clear.
            let _ = set_option(&fd, libc::SOL_NETLINK, option, 1);
        }
        raise(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_QUEUE);
        let port = bind(&fd)?;
        Ok(Self {
            fd,
            port,
            send_room: 64 << 10,
            buffer: vec![0; RECEIVE_BUFFER],
            stale: false,
        })
    }

    /// Opens a socket to netfilter, in the network namespace of the calling thread.
    pub fn netfilter() -> io::Result<Self> {
        Self::open(libc::NETLINK_NETFILTER)
    }

    /// Notifications of the group arrive from now on.
    pub fn join(&self, group: u32) -> io::Result<()> {
        set_option(
            &self.fd,
            libc::SOL_NETLINK,
            libc::NETLINK_ADD_MEMBERSHIP,
            group as i32,
        )
    }

    /// Notifications of the group no longer arrive.
    pub fn leave(&self, group: u32) -> io::Result<()> {
        set_option(
            &self.fd,
            libc::SOL_NETLINK,
            libc::NETLINK_DROP_MEMBERSHIP,
            group as i32,
        )
    }

    /// Notifications of what this port asked for do not arrive: all messages of one have the same
    /// origin.
    pub fn ignore_sender(&self, port: u32) -> io::Result<()> {
        const PORT_OF_MESSAGE: u32 = 12;
        // A filter reads numbers in network byte order; the kernel wrote it in its own.
        let port = u32::from_be_bytes(port.to_ne_bytes());
        let step = |code: u32, jt, jf, k| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let mut program = [
            step(
                libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
                0,
                0,
                PORT_OF_MESSAGE,
            ),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, port),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        ];
        attach_filter(&self.fd, &mut program)
    }

    /// The address of this socket, by which notifications name the origin of a change.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Send requests and gather the answers.
    pub fn exchange(&mut self, requests: &Messages) -> io::Result<Replies> {
        self.exchange_among(requests, |_| ())
    }

    /// The same, where other messages may come between the answers.
    pub fn exchange_among(
        &mut self,
        requests: &Messages,
        mut other: impl FnMut(Message),
    ) -> io::Result<Replies> {
        self.send(requests)?;
        let mut replies = Replies::default();
        self.receive_all(|message| {
            match message.kind {
                NLMSG_ERROR => _ = replies.add(&message),
                _ => other(message),
            }
            false
        })?;
        Ok(replies)
    }

    /// A netfilter batch that asks for an answer to its last operation, and to no other. Refusals
    /// of earlier ones come before it, so that the answer to the last is the end.
    pub fn exchange_batch(&mut self, batch: &Messages) -> io::Result<Replies> {
        self.send(batch)?;
        let mut replies = Replies::default();
        self.receive_all(|message| message.kind == NLMSG_ERROR && replies.add(&message))?;
        Ok(replies)
    }

    /// Send what has no answer.
    pub fn tell(&mut self, requests: &Messages) -> io::Result<()> {
        self.send(requests)
    }

    /// Send one request, with or without `flags::DUMP`, and keep what `parse` makes of the answers.
    /// A dump is begun anew when what it lists changes meanwhile.
    pub fn query<T>(
        &mut self,
        request: &Messages,
        mut parse: impl FnMut(Message) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..DUMP_ATTEMPTS {
            match self.query_once(request, &mut parse) {
                Err(error) if is_transient(&error) => continue,
                result => return result,
            }
        }
        Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "what is listed keeps changing",
        ))
    }

    fn query_once<T>(
        &mut self,
        request: &Messages,
        parse: &mut impl FnMut(Message) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let is_dump = messages(request.bytes())
            .next()
            .is_some_and(|m| m.flags & flags::DUMP == flags::DUMP);
        self.send(request)?;
        let (mut found, mut done, mut error) = (Vec::new(), !is_dump, None);
        let received = self.receive_all(|message| {
            if message.flags & flags::DUMP_INTERRUPTED != 0 {
                error = Some(io::Error::from_raw_os_error(libc::EINTR));
            }
            match message.kind {
                NLMSG_ERROR => error = refusal(&message).map(|r| r.error).or(error.take()),
                NLMSG_DONE => {
                    done = true;
                    if let Some(code @ ..0) = u32_at(message.payload, 0).map(|code| code as i32) {
                        error = Some(io::Error::from_raw_os_error(-code));
                    }
                }
                _ => found.extend(parse(message)),
            }
            is_dump && message.kind == NLMSG_DONE
        });
        received?;
        match error {
            Some(error) => {
                self.stale = !done;
                Err(error)
            }
            None if !done => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the list has no end",
            )),
            None => Ok(found),
        }
    }

    /// Read what has arrived, for a socket that is used for notifications only. `ENOBUFS` means
    /// that some were lost.
    pub fn notifications(&mut self, mut each: impl FnMut(Message)) -> io::Result<()> {
        self.receive_all(|message| {
            each(message);
            false
        })?;
        self.stale = false;
        Ok(())
    }

    fn send(&mut self, requests: &Messages) -> io::Result<()> {
        if requests.oversized() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an attribute is longer than 64 KiB",
            ));
        }
        if std::mem::take(&mut self.stale) {
            // Begun but unread; an error here is about those answers.
            let _ = self.receive_all(|_| false);
            self.stale = false;
        }
        let room = requests.len() + 4096;
        if room > self.send_room {
            raise(&self.fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, room);
            self.send_room = room;
        }
        send(&self.fd, requests.bytes())
    }

    /// Receives messages until none is left or `last` says that this was all.
    fn receive_all(&mut self, mut last: impl FnMut(Message) -> bool) -> io::Result<()> {
        loop {
            match receive(&self.fd, &mut self.buffer) {
                Ok(length) => {
                    let bytes = self.buffer.get(..length).unwrap_or_default();
                    if messages(bytes).any(&mut last) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.stale = true;
                    return Err(error);
                }
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// What an error message says; `None` if it says that all is well.
fn refusal(message: &Message) -> Option<Refusal> {
    let code = u32_at(message.payload, 0)? as i32;
    if code == 0 {
        return None;
    }
    // The header of the refused request follows; its own number, since errors of a batch come with
    // that of the batch.
    let sequence = u32_at(message.payload, 12).unwrap_or(message.sequence);
    let text = attributes(message.payload.get(20..).unwrap_or_default())
        .find_kind(NLMSGERR_ATTR_MSG)
        .and_then(|a| a.text());
    Some(Refusal {
        sequence,
        error: io::Error::from_raw_os_error(-code),
        text: text.map(str::to_owned),
    })
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::ENOBUFS | libc::EAGAIN | libc::EBUSY)
    )
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[expect(unsafe_code, reason = "the standard library has no netlink sockets")]
fn open(protocol: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers; the descriptor is new and has no other owner.
    unsafe {
        let fd = check(libc::socket(libc::AF_NETLINK, kind, protocol) as isize)?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Have the kernel choose an address, and return it.
#[expect(unsafe_code, reason = "netlink addresses are plain C structs")]
fn bind(fd: &OwnedFd) -> io::Result<u32> {
    // SAFETY: all zero is a valid sockaddr_nl; the length given is its own, and the kernel writes
    // no more than that.
    unsafe {
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as u16;
        let mut length = size_of::<libc::sockaddr_nl>() as u32;
        check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) as isize)?;
        check(libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &mut length) as isize)?;
        Ok(address.nl_pid)
    }
}

#[expect(
    unsafe_code,
    reason = "the standard library does not know these options"
)]
fn set_option(fd: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is an int that lives through the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    check(result as isize).map(drop)
}

#[expect(unsafe_code, reason = "the standard library has no socket filters")]
fn attach_filter(fd: &OwnedFd, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    let (option, length) = (libc::SO_ATTACH_FILTER, size_of::<libc::sock_fprog>() as u32);
    // SAFETY: pointer and length are of a filter that lives, with its program, until the call is
    // over.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const filter).cast(),
            length,
        )
    };
    check(result as isize).map(drop)
}

/// Raise a buffer beyond the system's limit, or up to it where that is not allowed.
fn raise(fd: &OwnedFd, forced: i32, plain: i32, bytes: usize) {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    if set_option(fd, libc::SOL_SOCKET, forced, bytes).is_err() {
        let _ = set_option(fd, libc::SOL_SOCKET, plain, bytes);
    }
}

#[expect(
    unsafe_code,
    reason = "send of the standard library is for other sockets"
)]
fn send(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    loop {
        // SAFETY: pointer and length are of one slice.
        let result = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        match check(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => return result.map(drop),
        }
    }
}

#[expect(
    unsafe_code,
    reason = "recv of the standard library is for other sockets"
)]
fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of one slice, which the kernel writes no further than. With
    // MSG_TRUNC the true length is returned, so that a message too long for the buffer is noticed.
    let result = unsafe {
        libc::recv(
            fd.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_TRUNC,
        )
    };
    match check(result)? {
        length if length > buffer.len() => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message was cut off",
        )),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests;
