//! NOTIFICATION: why a session ends. RFC 4271 section 4.5, codes of IANA, and text for people from
//! RFC 9003.

use super::{LARGEST, NOTIFICATION, frame};
use crate::wire::Reader;
use std::fmt;

/// What kind of error.
pub mod code {
    /// Message Header Error.
    pub const HEADER: u8 = 1;
    /// OPEN Message Error.
    pub const OPEN: u8 = 2;
    /// UPDATE Message Error.
    pub const UPDATE: u8 = 3;
    /// Hold Timer Expired.
    pub const HOLD_TIME: u8 = 4;
    /// Finite State Machine Error.
    pub const STATE: u8 = 5;
    /// Cease, whose subcodes are in [`super::cease`].
    pub const CEASE: u8 = 6;
}

/// Subcodes of Cease (RFC 4486): why a speaker ended a session without an error.
pub mod cease {
    /// Administrative Shutdown.
    pub const SHUTDOWN: u8 = 2;
    /// Peer De-configured.
    pub const DECONFIGURED: u8 = 3;
    /// Administrative Reset.
    pub const RESET: u8 = 4;
    /// Other Configuration Change.
    pub const CONFIGURATION: u8 = 6;
}

/// Says what is wrong to the peer, or comes from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The kind of error, as in [`code`].
    pub code: u8,
    /// The error within its kind; 0 where none is defined.
    pub subcode: u8,
    /// The bytes that are wrong, or a text; may be empty.
    pub data: Vec<u8>,
}

impl Notification {
    /// A notification without data.
    pub fn new(code: u8, subcode: u8) -> Self {
        Self::with(code, subcode, vec![])
    }

    /// A notification with data.
    pub fn with(code: u8, subcode: u8, data: Vec<u8>) -> Self {
        Self {
            code,
            subcode,
            data,
        }
    }

    /// Ends a session without an error, with a text for the operator of the router (RFC 9003).
    pub fn cease(subcode: u8, text: &str) -> Self {
        let length = u8::try_from(text.len()).unwrap_or_default();
        let mut data = vec![length];
        data.extend(text.bytes().take(length.into()));
        Self::with(code::CEASE, subcode, data)
    }

    pub(super) fn decode(mut reader: Reader<'_>) -> Self {
        let (code, subcode) = (
            reader.u8().unwrap_or_default(),
            reader.u8().unwrap_or_default(),
        );
        Self::with(code, subcode, reader.rest().to_vec())
    }

    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![self.code, self.subcode];
        body.extend(self.data.iter().take(LARGEST - super::HEADER - 2));
        frame(NOTIFICATION, &body)
    }

    /// What the code means.
    fn meaning(&self) -> &'static str {
        match (self.code, self.subcode) {
            (code::HEADER, 1) => "the connection is not synchronized",
            (code::HEADER, 2) => "a message of a wrong length",
            (code::HEADER, 3) => "a message of an unknown type",
            (code::HEADER, _) => "a message with a wrong header",
            (code::OPEN, 1) => "another version of BGP",
            (code::OPEN, 2) => "the AS number is not the one expected",
            (code::OPEN, 3) => "the router ID is not acceptable",
            (code::OPEN, 4) => "an unknown optional parameter",
            (code::OPEN, 5) => "authentication failed",
            (code::OPEN, 6) => "the hold time is not acceptable",
            (code::OPEN, 7) => "a capability is missing",
            (code::OPEN, 11) => "the roles do not fit",
            (code::OPEN, _) => "an OPEN that is not right",
            (code::UPDATE, 1) => "an UPDATE with malformed attributes",
            (code::UPDATE, 2) => "an UPDATE with an unknown well-known attribute",
            (code::UPDATE, 3) => "an UPDATE without a mandatory attribute",
            (code::UPDATE, 8) => "an UPDATE with a wrong next hop",
            (code::UPDATE, 9) => "an UPDATE with a wrong optional attribute",
            (code::UPDATE, 10) => "an UPDATE with a wrong prefix",
            (code::UPDATE, 11) => "an UPDATE with a wrong AS path",
            (code::UPDATE, _) => "an UPDATE that is not right",
            (code::HOLD_TIME, _) => "nothing was heard for the hold time",
            (code::STATE, _) => "a message that does not fit the state of the session",
            (code::CEASE, 1) => "too many prefixes",
            (code::CEASE, 2) => "shut down by its operator",
            (code::CEASE, 3) => "not configured any more",
            (code::CEASE, 4) => "reset by its operator",
            (code::CEASE, 5) => "the connection was rejected",
            (code::CEASE, 6) => "its configuration changed",
            (code::CEASE, 7) => "there was another connection between the two",
            (code::CEASE, 8) => "out of resources",
            (code::CEASE, 9) => "a hard reset",
            (code::CEASE, 10) => "BFD says that the path is down",
            (code::CEASE, _) => "ended without an error",
            _ => "an unknown reason",
        }
    }

    /// What the operator of the peer has to say (RFC 9003), on one line whatever it is.
    fn text(&self) -> Option<String> {
        if self.code != code::CEASE || ![cease::SHUTDOWN, cease::RESET].contains(&self.subcode) {
            return None;
        }
        let text = String::from_utf8_lossy(Reader(&self.data).short_block()?).into_owned();
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        Some(text.chars().map(printable).collect()).filter(|text: &String| !text.is_empty())
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (notification {}/{})",
            self.meaning(),
            self.code,
            self.subcode
        )?;
        self.text().map_or(Ok(()), |text| write!(f, ": {text:?}"))
    }
}
