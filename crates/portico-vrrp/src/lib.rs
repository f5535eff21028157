//! Who owns a virtual address: VRRP packets and the election, as a state machine without IO.
//!
//! [`packet`] reads and writes advertisements (versions 2 and 3, IPv4 and IPv6). [`Router`] is one node's part in one virtual
//! router: it takes [`Input`]s and the time, and answers with [`Output`]s and the next [`Router::deadline`]. Sockets, links and
//! clocks belong to whoever drives it.

pub mod packet;
pub mod router;

pub use packet::{Advert, Version};
pub use router::{Config, Conflict, Input, Output, Reason, Role, Router, Time};
