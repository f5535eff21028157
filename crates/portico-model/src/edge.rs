//! The consistent edge: which node serves a connection from outside, decided alike on all nodes.
//!
//! Every node hashes the client's address and port to a slot ([`hash`]), and the slots of a service
//! port to nodes ([`slots`]), weighted by the endpoints that each node has. All nodes compute the
//! same slots from the same EndpointSlices, so it makes no difference which of them receives a
//! packet: connections go on when the way to an address moves.

pub mod hash;
pub mod slots;

pub use slots::SLOTS;

use crate::objects::EDGE;
use crate::pools::AddressRange;
use crate::table::PerFamily;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What a node has to know of others for the edge. The slots do not depend on it, only the way to
/// the nodes that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Addresses that nodes announce: only there a packet may arrive at any of them.
    pub announced: Vec<AddressRange>,
    /// Addresses of other nodes on a network that this node is attached to.
    pub neighbours: BTreeMap<Arc<str>, PerFamily<Option<IpAddr>>>,
}

impl Surroundings {
    /// Whether this node, or another, attracts traffic to the address.
    pub fn announces(&self, address: IpAddr) -> bool {
        self.announced.iter().any(|range| range.contains(address))
    }
}

/// The edge of one port of a Service in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The load balancer's addresses that it holds for, sorted.
    pub addresses: Box<[IpAddr]>,
    /// All connections of a client have one slot, since it has to stay with its endpoint.
    pub by_address: bool,
    /// Nodes that have endpoints, sorted by name.
    pub nodes: Box<[EdgeNode]>,
    /// [`SLOTS`] of them, each with the position of a node.
    pub slots: Arc<[u16]>,
}

/// A node that serves at the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeNode {
    /// Its Node object.
    pub name: Arc<str>,
    /// How many endpoints it has.
    pub endpoints: u32,
    /// How packets get there.
    pub way: Way,
}

/// How packets get to the node that has their slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is this node.
    Here,
    /// As they are, to this address on the same network.
    Neighbour(IpAddr),
    /// There is no such way: this node translates them as if there were no edge.
    None,
}

impl Edge {
    /// The node that has a slot.
    pub fn node(&self, slot: u16) -> Option<&EdgeNode> {
        let position = self.slots.get(usize::from(slot))?;
        self.nodes.get(usize::from(*position))
    }

    /// The slot of a connection.
    pub fn slot(&self, client: IpAddr, port: u16) -> u16 {
        hash::slot(client, (!self.by_address).then_some(port))
    }

    /// How many slots another node has after a change.
    pub fn moved(&self, after: &Self) -> usize {
        let name = |edge: &Self, slot| edge.node(slot).map(|node| Arc::clone(&node.name));
        (0..SLOTS)
            .filter(|slot| name(self, *slot) != name(after, *slot))
            .count()
    }
}

/// Whether the annotation of a Service leaves the edge on.
pub(crate) fn is_wanted(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(EDGE).is_none_or(|value| value != "off")
}
