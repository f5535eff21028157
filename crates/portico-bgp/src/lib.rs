//! What a BGP speaker needs to announce addresses: messages, sessions as a state machine, and which
//! routes to tell whom. Decides and touches nothing.
//!
//! - [`message`]: bytes to messages and back. Whatever is wrong with bytes is the [`Notification`]
//!   to be sent for it.
//! - [`routes`]: addresses with their [`Policy`] to the routes of each peer.
//! - [`session`]: one session: inputs and the time go in, outputs and the next deadline come out.
//!   UPDATEs are pulled, when there is room to send them, so that nothing queues up for a peer that
//!   is slow.
//!
//! What it does not do: listen, keep what peers announce, choose among routes. Why it is as it is:
//! `design/0010-bgp.md`.

#![warn(clippy::iter_over_hash_type)]

mod community;
mod family;
pub mod message;
pub mod routes;
pub mod session;
mod wire;

pub use community::{Communities, Community, LargeCommunity};
pub use family::{AfiSafi, PerFamily};
pub use message::{Message, Notification, Open, Update};
pub use routes::{Attributes, Conflict, Policy, Table};
pub use session::{Config, Input, NextHops, Now, Output, Session, State, Status, Time};
