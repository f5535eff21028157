//! Messages on the wire: RFC 4271 section 4, and what was added since.
//!
//! [`length`] finds where a message ends in what has come in, [`Message::decode`] reads it. An
//! error is what has to be sent to the peer for it. Nothing here depends on a session but how long
//! AS numbers are in it.

mod notification;
mod open;
mod update;

pub use notification::{Notification, cease, code};
pub use open::{Capability, GracefulRestart, Open};
pub use update::{Path, Reached, Update, announce, end_of_rib, withdraw};

use crate::family::AfiSafi;
use crate::wire::Reader;

/// Every message begins with these.
const MARKER: [u8; 16] = [0xff; 16];
/// The length of the header of each message.
pub const HEADER: usize = 19;
/// We do not ask for longer ones (RFC 8654).
pub const LARGEST: usize = 4096;

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
const ROUTE_REFRESH: u8 = 5;

/// A message of BGP-4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message, with the speaker's identity and capabilities.
    Open(Open),
    /// Routes that come and go.
    Update(Update),
    /// An error, after which the session ends.
    Notification(Notification),
    /// A sign of life.
    Keepalive,
    /// The peer wants to hear everything of a family again. `None`: of one that we know nothing of.
    RouteRefresh(Option<AfiSafi>),
}

/// How long the message is that the bytes begin with, once all of it is there.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Notification> {
    let mut reader = Reader(bytes);
    let beginning = bytes.iter().take(MARKER.len());
    if beginning.zip(MARKER).any(|(byte, marker)| *byte != marker) {
        return Err(Notification::new(code::HEADER, 1));
    }
    let (Some(_), Some(length), Some(kind)) = (reader.array::<16>(), reader.u16(), reader.u8())
    else {
        return Ok(None);
    };
    let least = match kind {
        OPEN => 29,
        UPDATE => 23,
        NOTIFICATION => 21,
        ROUTE_REFRESH => 23,
        KEEPALIVE => HEADER,
        _ => return Err(Notification::with(code::HEADER, 3, vec![kind])),
    };
    let most = if kind == KEEPALIVE { HEADER } else { LARGEST };
    let whole = usize::from(length);
    if whole < least || whole > most {
        return Err(Notification::with(
            code::HEADER,
            2,
            length.to_be_bytes().to_vec(),
        ));
    }
    Ok(Some(whole).filter(|whole| bytes.len() >= *whole))
}

impl Message {
    /// Reads the one message that the bytes are. `four_octets`: how AS numbers are written in this
    /// session (RFC 6793).
    pub fn decode(bytes: &[u8], four_octets: bool) -> Result<Self, Notification> {
        let cut_off = || Notification::with(code::HEADER, 2, vec![]);
        let whole = length(bytes)?
            .filter(|whole| *whole == bytes.len())
            .ok_or_else(cut_off)?;
        let mut reader = Reader(bytes);
        reader.take(HEADER - 1);
        let kind = reader
            .u8()
            .filter(|_| whole >= HEADER)
            .ok_or_else(cut_off)?;
        match kind {
            OPEN => Open::decode(reader).map(Message::Open),
            UPDATE => Update::decode(reader, four_octets).map(Message::Update),
            NOTIFICATION => Ok(Self::Notification(Notification::decode(reader))),
            ROUTE_REFRESH => Ok(Self::RouteRefresh(refresh(reader))),
            _ => Ok(Self::Keepalive),
        }
    }
}

/// Only plain requests: what RFC 7313 adds to them has to be agreed upon, which we do not.
fn refresh(mut reader: Reader<'_>) -> Option<AfiSafi> {
    let (afi, subtype, safi) = (reader.u16()?, reader.u8()?, reader.u8()?);
    AfiSafi::from_wire(afi, safi).filter(|_| subtype == 0)
}

/// The bytes of a KEEPALIVE.
pub fn keepalive() -> Vec<u8> {
    frame(KEEPALIVE, &[])
}

/// Asks a peer for all its routes again.
pub fn route_refresh(family: AfiSafi) -> Vec<u8> {
    let [high, low] = family.afi().to_be_bytes();
    frame(ROUTE_REFRESH, &[high, low, 0, family.safi()])
}

/// A message around its body. The callers keep the body within `MOST`.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER + body.len()).unwrap_or(u16::MAX);
    let mut message = Vec::with_capacity(length.into());
    message.extend(MARKER);
    message.extend(length.to_be_bytes());
    message.push(kind);
    message.extend(body);
    message
}

#[cfg(test)]
mod tests;
