//! Why there is no session, in words for the operator who has to mend it.

use crate::message::Notification;
use std::fmt;

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No connection within the time limit, and no error either.
    NoAnswer,
    /// No connection, for this reason.
    Unreachable(String),
    /// The peer ended the connection without a word.
    Closed {
        /// Whether the peer had sent its OPEN.
        introduced: bool,
        /// The error of the connection, or that the peer closed it.
        why: String,
    },
    /// The peer said what it does not like.
    Refused(Notification),
    /// We said it.
    Refusing(Notification),
    /// The peer's AS is not the configured one.
    OtherAs {
        /// The AS that is configured.
        expected: u32,
        /// The AS in the peer's OPEN.
        found: u32,
    },
    /// Both have the same router ID.
    SameRouterId(std::net::Ipv4Addr),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => write!(
                f,
                "no answer from the router: is it up, and is the password the same there?"
            ),
            Self::Unreachable(why) => write!(f, "cannot connect: {why}"),
            Self::Closed {
                introduced: true,
                why,
            } => write!(f, "the connection broke: {why}"),
            Self::Closed {
                introduced: false,
                why,
            } => {
                write!(
                    f,
                    "the router hung up at once, is this node one of its neighbours? ({why})"
                )
            }
            Self::Refused(notification) => write!(f, "the router says: {notification}"),
            Self::Refusing(notification) => {
                write!(f, "ended the session with the router: {notification}")
            }
            Self::OtherAs { expected, found } => {
                write!(
                    f,
                    "the router is AS {found}, not {expected} as configured (peerASN)"
                )
            }
            Self::SameRouterId(id) => {
                write!(
                    f,
                    "the router has our router ID {id}: give this node another (routerID)"
                )
            }
        }
    }
}
