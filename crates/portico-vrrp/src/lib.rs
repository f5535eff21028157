//! The owner of a virtual address: VRRP packets and the election, as a state machine without IO.
//!
//! [`packet`] reads and writes advertisements (versions 2 and 3, IPv4 and IPv6). [`Router`] is one
//! node's part in one virtual router: it takes [`Input`]s and the time, and answers with
//! [`Output`]s and the next [`Router::deadline`]. `auth` signs adverts and verifies signatures
//! outside of it. Sockets, links and clocks belong to its driver. Why it is as it is:
//! `design/0007-one-owner.md`.

#![warn(clippy::iter_over_hash_type)]

mod auth;
pub mod packet;
pub mod router;

pub use auth::{Auth, HmacSha256, Keys, Mode, Signer, Unproven};
pub use packet::{Advert, Malformed, Version};
pub use router::{
    Config, Conflict, Input, Output, Reason, Refused, Role, Router, Time, Unfit, screen,
};
