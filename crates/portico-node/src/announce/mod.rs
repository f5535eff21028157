//! Announcing: attracts the traffic of load-balancer addresses to this node, by layer 2 (ARP and neighbour discovery) and BGP.
//!
//! `plan` knows pools, Nodes and what Services have, and says which addresses are shared out among whom on layer 2 and which
//! routes this node announces by BGP; `l2` and [`bgp`] do it.

pub mod bgp;

use ipnet::IpNet;
use std::sync::Arc;

/// What the pool of an address says of routes to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteAttributes {
    /// As the pool has them: `64512:100`, `large:64512:1:2`, or the names of well-known ones.
    pub communities: Box<[String]>,
    pub local_preference: Option<u32>,
    /// Names of BgpPeers; none: all.
    pub peers: Box<[String]>,
}

/// Routes that this node is to announce from now on (already aggregated to the pool's length), or no more (`None`).
pub type RouteChanges = Vec<(IpNet, Option<Arc<RouteAttributes>>)>;
