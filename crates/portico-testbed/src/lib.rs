//! What tests and benchmarks of networks need beside the hosts of `portico-netns`, which are
//! exported from here as well.
//!
//! - [`echo`]: servers that answer who they are and whom they saw; [`flow`]: asking them over TCP,
//!   UDP and SCTP.
//! - [`cluster`]: a small dual-stack cluster with nodes, pods, clients and a box that answers
//!   everything else.
//! - [`uml`]: another kernel, for tests of what this one does not have.

pub mod cluster;
pub mod echo;
pub mod flow;
pub mod uml;

mod sctp;

pub use cluster::Cluster;
pub use echo::{Echo, Seen};
pub use flow::{Ask, Failure, Flow, Protocol};
pub use portico_netns::{
    Error, Host, Process, Result, Route, Rule, Testbed, host, inside, network, process,
};
