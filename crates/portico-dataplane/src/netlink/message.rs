//! Encoding into one growing buffer, and decoding that never trusts a length.

use super::flags;
use super::uapi::{NLA_F_NESTED, NLA_TYPE_MASK};
use std::str;

const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// Messages under construction, one after the other in one buffer, numbered as they come.
///
/// ```
/// use portico_dataplane::netlink::Messages;
/// let mut messages = Messages::new();
/// let sequence = messages.netfilter(10, 0, 0x400, 2, |m| {
///     m.put_str(1, "portico");
///     m.nested(4, |m| m.put_u32_be(1, 7));
/// });
/// assert_eq!(sequence, 1);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    last: u32,
    last_start: usize,
    oversized: bool,
}

impl Messages {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// Makes room for so many more bytes, so that a growing buffer is not copied again and again.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Adds a message; `REQUEST` is added to its flags. Returns its sequence number.
    pub fn message(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Self)) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last_start = self.bytes.len();
        let start = self.last_start;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flags | flags::REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.last.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        body(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or_else(|_| {
            self.oversized = true;
            0
        });
        self.overwrite(start, &length.to_ne_bytes());
        self.last
    }

    /// A message of a netfilter subsystem, with its header of family, version and resource (zero).
    pub fn netfilter(
        &mut self,
        subsystem: u8,
        command: u8,
        flags: u16,
        family: u8,
        body: impl FnOnce(&mut Self),
    ) -> u32 {
        let kind = u16::from(subsystem) << 8 | u16::from(command);
        self.message(kind, flags, |m| {
            m.raw(&[family, 0, 0, 0]);
            body(m);
        })
    }

    /// Ask for an answer to the message that was begun last, also when it succeeds.
    pub fn acknowledge_last(&mut self) {
        let at = self.last_start + 6;
        if let Some(old) = u16_at(&self.bytes, at) {
            self.overwrite(at, &(old | flags::ACK).to_ne_bytes());
        }
    }

    /// Bytes as they are, for headers that follow a message's own; a multiple of four of them.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An attribute that holds attributes.
    pub fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.attribute_header(kind | NLA_F_NESTED, 0);
        body(self);
        match u16::try_from(self.bytes.len() - start) {
            Ok(length) => self.overwrite(start, &length.to_ne_bytes()),
            Err(_) => self.oversized = true,
        }
    }

    /// An attribute with these bytes.
    pub fn put(&mut self, kind: u16, data: &[u8]) {
        self.attribute_header(kind, data.len());
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    /// A text with the zero byte at its end.
    pub fn put_str(&mut self, kind: u16, text: &str) {
        self.attribute_header(kind, text.len() + 1);
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// An attribute with one byte.
    pub fn put_u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    /// An attribute with a number in network byte order.
    pub fn put_u16_be(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }

    /// An attribute with a number in network byte order.
    pub fn put_u32_be(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// An attribute with a number in network byte order.
    pub fn put_u64_be(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_be_bytes());
    }

    /// In the byte order of the machine, as generic netlink has it.
    pub fn put_u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// In the byte order of the machine.
    pub fn put_u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// All messages, as they are sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The length of all messages in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The sequence number of the newest message; they count up from 1.
    pub fn last_sequence(&self) -> u32 {
        self.last
    }

    /// An attribute or message was too long for its length field: this must not be sent.
    pub fn oversized(&self) -> bool {
        self.oversized
    }

    /// Begin anew, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        *self = Self {
            bytes: std::mem::take(&mut self.bytes),
            ..Self::default()
        };
    }

    fn attribute_header(&mut self, kind: u16, data: usize) {
        let length = u16::try_from(ATTRIBUTE_HEADER + data).unwrap_or_else(|_| {
            self.oversized = true;
            0
        });
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.bytes.resize(align(self.bytes.len()), 0);
    }

    fn overwrite(&mut self, at: usize, with: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + with.len()) {
            place.copy_from_slice(with);
        }
    }
}

/// A message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The type: one of netlink's own, or one of the protocol.
    pub kind: u16,
    /// The flags of the header, as in [`super::flags`].
    pub flags: u16,
    /// The number of the request that it answers; 0 for a notification.
    pub sequence: u32,
    /// The port of the socket that sent it, or whose request caused it.
    pub port: u32,
    /// What comes after the header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The attributes after a header of so many bytes (4 for netfilter and generic netlink).
    pub fn attributes(&self, header: usize) -> Attributes<'a> {
        attributes(self.payload.get(header..).unwrap_or_default())
    }

    /// The family in a netfilter header.
    pub fn family(&self) -> Option<u8> {
        self.payload.first().copied()
    }
}

/// The messages of a buffer; a damaged one ends them.
pub fn messages(bytes: &[u8]) -> MessageIter<'_> {
    MessageIter { rest: bytes }
}

/// The messages in a buffer.
pub struct MessageIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for MessageIter<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32_at(self.rest, 0)? as usize;
        let message = Message {
            kind: u16_at(self.rest, 4)?,
            flags: u16_at(self.rest, 6)?,
            sequence: u32_at(self.rest, 8)?,
            port: u32_at(self.rest, 12)?,
            payload: self.rest.get(HEADER..length)?,
        };
        self.rest = self.rest.get(align(length)..).unwrap_or_default();
        Some(message)
    }
}

/// An attribute of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The type, without the flag of nested attributes.
    pub kind: u16,
    /// The value, without padding.
    pub data: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The attributes in the value.
    pub fn nested(&self) -> Attributes<'a> {
        attributes(self.data)
    }

    /// The value, if it is one byte.
    pub fn u8(&self) -> Option<u8> {
        self.data.first().copied()
    }

    /// The value, if it is two bytes in network byte order.
    pub fn u16_be(&self) -> Option<u16> {
        u16_at(self.data, 0).map(u16::from_be)
    }

    /// The value, if it is four bytes in network byte order.
    pub fn u32_be(&self) -> Option<u32> {
        u32_at(self.data, 0).map(u32::from_be)
    }

    /// The value, if it is eight bytes in network byte order.
    pub fn u64_be(&self) -> Option<u64> {
        self.data.first_chunk().map(|b| u64::from_be_bytes(*b))
    }

    /// In the byte order of the machine.
    pub fn u16(&self) -> Option<u16> {
        u16_at(self.data, 0)
    }

    /// In the byte order of the machine.
    pub fn u32(&self) -> Option<u32> {
        u32_at(self.data, 0)
    }

    /// Up to the zero byte.
    pub fn text(&self) -> Option<&'a str> {
        let end = self
            .data
            .iter()
            .position(|b| *b == 0)
            .unwrap_or(self.data.len());
        str::from_utf8(self.data.get(..end)?).ok()
    }
}

/// The attributes of a buffer; a damaged one ends them.
pub fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

/// The attributes in a buffer.
#[derive(Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The first attribute of this type.
    pub fn find_kind(mut self, kind: u16) -> Option<Attribute<'a>> {
        self.find(|attribute| attribute.kind == kind)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let length = usize::from(u16_at(self.rest, 0)?);
        let kind = u16_at(self.rest, 2)? & NLA_TYPE_MASK;
        let data = self.rest.get(ATTRIBUTE_HEADER..length)?;
        self.rest = self.rest.get(align(length)..).unwrap_or_default();
        Some(Attribute { kind, data })
    }
}

fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u16::from_ne_bytes(*b))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests;
