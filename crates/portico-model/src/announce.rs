//! Addresses of load balancers that nodes themselves have to attract traffic for: which there are,
//! and which nodes could serve it.
//!
//! Which of them are announced, by which node and how is decided elsewhere; here is what follows
//! from Services and EndpointSlices.

use crate::table::PerFamily;
use std::net::IpAddr;
use std::sync::Arc;

/// The load-balancer addresses of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announceable {
    /// Those that packets arrive with (`ipMode: VIP`), sorted.
    pub addresses: Box<[IpAddr]>,
    /// Only nodes with an endpoint of their own may attract traffic
    /// (`externalTrafficPolicy: Local`).
    pub local: bool,
    /// There is an endpoint, on whatever node.
    pub served: PerFamily<bool>,
    /// Nodes with a ready endpoint, sorted; where none is ready, those with one that still serves
    /// while it ends. Only known where it matters (`local`).
    pub nodes: PerFamily<Box<[Arc<str>]>>,
}
