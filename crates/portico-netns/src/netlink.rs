//! Netlink requests: encoding, sending, and waiting for the kernel's answer.

use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::sync::Mutex;

pub(crate) const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
const HEADER: usize = 16;

/// A request under construction: the header, then what is pushed.
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// `flags` beside REQUEST and ACK.
    pub(crate) fn new(kind: u16, flags: u16) -> Self {
        let flags = flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Self(bytes)
    }

    /// The fixed part that follows the header.
    pub(crate) fn fixed(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0
            .extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// A text, which the kernel wants to end with a zero byte.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// An attribute that holds what `fill` pushes.
    pub(crate) fn nested(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.0.len();
        self = fill(self.fixed(&[0, 0, kind.to_ne_bytes()[0], kind.to_ne_bytes()[1]]));
        let length = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// A netlink socket, which belongs to the namespace it was made in.
pub(crate) struct Netlink(Mutex<Socket>);

impl Netlink {
    pub(crate) fn new(family: i32) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::from(libc::AF_NETLINK),
            Type::RAW,
            Some(Protocol::from(family)),
        )?;
        Ok(Self(Mutex::new(socket)))
    }

    /// Sends a request and waits for its acknowledgement; what the kernel said before that, without
    /// headers.
    pub(crate) fn request(&self, message: Message) -> io::Result<Vec<u8>> {
        let mut socket = self
            .0
            .lock()
            .map_err(|_| io::Error::other("a request panicked"))?;
        socket.send(&message.finish())?;
        let (mut answer, mut buffer) = (Vec::new(), vec![0; 32 << 10]);
        loop {
            let length = socket.read(&mut buffer)?;
            let mut rest = &buffer[..length];
            while let Some((kind, body, tail)) = split(rest) {
                match (kind, body.first_chunk()) {
                    (2, Some(&code)) if i32::from_ne_bytes(code) == 0 => return Ok(answer),
                    (2, Some(&code)) => {
                        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(code)));
                    }
                    _ => answer.extend_from_slice(body),
                }
                rest = tail;
            }
        }
    }
}

/// The first message's kind and body, and what follows it.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let tail = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, bytes.get(HEADER..length)?, tail))
}

/// The first attribute of this kind.
pub(crate) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        if kind == wanted {
            return bytes.get(4..length);
        }
        bytes = bytes.get(length.max(4).next_multiple_of(4)..)?;
    }
}
