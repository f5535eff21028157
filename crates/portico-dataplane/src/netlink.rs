//! Netlink: encoding of messages, and the socket.
