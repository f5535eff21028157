//! Netlink: messages to and from the kernel, and the socket. Knows nothing of what the messages
//! mean; nftables, the connection tracker and IPVS build theirs on it.

pub mod generic;
pub mod message;
pub mod socket;

pub use message::{Attribute, Message, Messages, attributes, messages};
pub use socket::{Refusal, Replies, Socket};

/// Flags of a message header.
pub mod flags {
    pub const REQUEST: u16 = 0x1;
    pub const ACK: u16 = 0x4;
    pub const DUMP_INTERRUPTED: u16 = 0x10;
    pub const DUMP: u16 = 0x300;
    pub const EXCLUSIVE: u16 = 0x200;
    pub const CREATE: u16 = 0x400;
    pub const APPEND: u16 = 0x800;
}
