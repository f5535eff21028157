//! What tests and benchmarks of networks need beside the hosts of `portico-netns`, which are
//! exported from here as well.
//!
//! - [`echo`]: servers that answer with their own name and the client's address; [`flow`]: asking
//!   them over TCP, UDP and SCTP.
//! - [`cluster`]: a small dual-stack cluster with nodes, pods, clients and a box that answers
//!   everything else.
//! - [`uml`]: another kernel, for tests of what this one does not have.

#![allow(missing_docs, reason = "only tests use it")]

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
