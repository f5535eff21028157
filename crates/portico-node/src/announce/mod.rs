//! Announcing: attracts the traffic of load-balancer addresses to this node, by layer 2 (ARP and
//! neighbour discovery) and BGP.
//!
//! `plan` knows pools, Nodes and what Services have, and says which addresses are shared out among
//! whom on layer 2 and which routes this node announces by BGP; [`l2`] and [`bgp`] do it. `follow`
//! brings pools and Nodes, `surroundings` tells the edge of other nodes, `run` ties it together.

pub mod bgp;
mod follow;
mod key;
pub mod l2;
mod outbox;
mod plan;
mod run;
mod surroundings;

pub use run::{Announceables, Parts, ToEdge, run};

use portico_model::pools::PoolBgp;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Addresses that this node is to announce from now on, with what their pool says of it, or no more
/// (`None`). The first ones are all that there are. Aggregation and what pools do not agree upon is
/// left to BGP.
pub type RouteChanges = Vec<(IpAddr, Option<Arc<PoolBgp>>)>;

/// An address that nodes share out among themselves on layer 2.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Share {
    /// Nodes that may answer for it, sorted; `None`: every member.
    pub nodes: Option<Arc<[Arc<str>]>>,
    /// Names or patterns of links; where it is empty, all that have the address's network or a
    /// default route.
    pub interfaces: Arc<[String]>,
}

/// Addresses to be shared out from now on, or no more (`None`). The first ones are all that there
/// are.
pub type ShareChanges = Vec<(IpAddr, Option<Arc<Share>>)>;

/// Nodes that could take part, with their addresses: those that are neither excluded from load
/// balancers nor about to leave. One that is not among them takes no part itself.
pub type Peers = BTreeMap<Arc<str>, Vec<IpAddr>>;
