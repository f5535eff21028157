//! UPDATE: routes that come and go. RFC 4271 section 4.3; other families by RFC 4760, IPv4 with an
//! IPv6 next hop by RFC 8950.
//!
//! Writing packs as many prefixes with the same path into a message as have room. Reading is
//! forgiving as RFC 7606 has it.

mod attributes;
mod read;
mod write;

pub use write::{announce, end_of_rib, withdraw};

use crate::community::Communities;
use crate::family::AfiSafi;
use ipnet::IpNet;
use std::net::IpAddr;

/// What all prefixes of a message have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The AS path: numbers of sequences and sets, one after the other.
    pub as_path: Vec<u32>,
    /// Among the speakers of one AS only.
    pub local_preference: Option<u32>,
    /// The communities that are attached.
    pub communities: Communities,
}

/// Prefixes of one family that are announced, and their next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The router that they are reached through.
    pub next_hop: IpAddr,
    /// The prefixes.
    pub prefixes: Vec<IpNet>,
}

/// The content of an UPDATE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Prefixes that are not reachable any more.
    pub withdrawn: Vec<IpNet>,
    /// At most one for each way to write them.
    pub reached: Vec<Reached>,
    /// The attributes of all prefixes that are announced.
    pub path: Path,
    /// All that there is of this family has been told.
    pub end_of_rib: Option<AfiSafi>,
    /// What was wrong, where the prefixes were to be understood nevertheless: they count as
    /// withdrawn.
    pub flaw: Option<&'static str>,
}
