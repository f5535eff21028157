//! Netlink: messages to and from the kernel, and the socket. Knows nothing of what the messages
//! mean; nftables, the connection tracker and IPVS build theirs on it.

pub(crate) mod generic;
pub mod message;
pub(crate) mod socket;
pub(crate) mod uapi;

pub use message::{Attribute, Message, Messages, attributes, messages};
pub use socket::{Refusal, Replies, Socket};

/// Flags of a message header.
pub mod flags {
    /// It is a request.
    pub const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
    /// It is to be answered with an acknowledgement.
    pub const ACK: u16 = libc::NLM_F_ACK as u16;
    /// The list changed while it was read.
    pub const DUMP_INTERRUPTED: u16 = libc::NLM_F_DUMP_INTR as u16;
    /// It asks for all objects.
    pub const DUMP: u16 = libc::NLM_F_DUMP as u16;
    /// It fails if the object is there.
    pub const EXCLUSIVE: u16 = libc::NLM_F_EXCL as u16;
    /// It makes the object if it is not there.
    pub const CREATE: u16 = libc::NLM_F_CREATE as u16;
    /// It puts the object behind the others.
    pub const APPEND: u16 = libc::NLM_F_APPEND as u16;
}
