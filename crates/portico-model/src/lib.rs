//! What a node forwards, and why: API objects and a node's settings become a
//! [`table::ForwardingTable`], from which every dataplane is planned and every packet is explained.
//!
//! Nothing here touches a socket, a file, the kernel or the clock.
//!
//! - [`objects`]: the parts of Services, EndpointSlices, Nodes and ServiceCIDRs that forwarding
//!   needs, as they come from the API.
//! - [`static_services`]: where such objects come from beside the API.
//! - [`key`]: namespace and name, which every crate that names an object uses.
//! - [`table`]: the table itself: service ports with their frontends and pools of endpoints, and
//!   the rules of the node.
//! - [`index`]: objects in, changes out; an update costs what it touches.
//! - [`explain`]: walks the table for one packet.
//! - [`announce`]: addresses that nodes have to attract traffic for.
//! - [`pools`]: address pools, blocks of addresses and BGP peers, as they come from the API; ranges
//!   of addresses.
//! - [`partitions`]: port partitions, as they come from the API, and what Services say of them.
//! - [`report`]: what a node tells about itself.
//! - [`checks`]: when what is probed, and what the answers mean.
//! - [`duration`]: durations as Kubernetes writes them.
//! - [`edge`]: which node serves a connection from outside.
//! - [`hash`]: the hash maps of what every change looks up.

#![warn(clippy::iter_over_hash_type)]

pub mod announce;
pub mod checks;
pub mod duration;
pub mod edge;
pub mod explain;
pub mod hash;
pub mod index;
pub mod key;
pub mod objects;
pub mod partitions;
pub mod pools;
pub mod report;
pub mod static_services;
pub mod table;
