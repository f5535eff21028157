//! Advertisements on the wire: RFC 3768 (version 2) and RFC 9568 (version 3).

use std::net::IpAddr;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// IPv4 only, whole seconds.
    V2,
    V3,
}

/// What an owner says, and with priority 0 that it stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advert {
    pub version: Version,
    pub vrid: u8,
    pub priority: u8,
    pub interval: Duration,
    pub addresses: Vec<IpAddr>,
    /// Version 2 alone: the simple password, which keeps mistakes out and nobody else.
    pub password: Option<[u8; 8]>,
}
