//! Which of the nodes on a link answers for an address: membership by heartbeats, one owner per
//! address, and the frames by which an address is announced and asked for. Decides and touches
//! nothing.
//!
//! [`Speaker`] is one node's part: it takes [`Input`]s and the time, and answers with [`Output`]s
//! and the next [`Speaker::deadline`]. [`Heartbeat`] is what nodes tell each other (authenticated
//! by the driver), [`rank`] says which of several nodes is to have an address, [`frame`] has ARP
//! and neighbour discovery, [`Announcer`] says when to announce. Why it is as it is:
//! `design/0011-layer-2.md`.

#![warn(clippy::iter_over_hash_type)]

mod announcer;
pub mod frame;
pub mod heartbeat;
pub mod rank;
pub mod speaker;

pub use announcer::Announcer;
pub use frame::Mac;
pub use heartbeat::Heartbeat;
pub use rank::NodeId;
pub use speaker::{Conflict, Input, Output, Share, Speaker, Timing};

/// Since some moment that does not change while the process lives, on a clock that goes on while
/// the machine sleeps.
pub type Time = std::time::Duration;
