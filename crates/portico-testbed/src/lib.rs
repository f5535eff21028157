//! Hosts, pods, routers and clients as network namespaces, for tests, benchmarks and the lab.
//!
//! A namespace has no name and no process: a file descriptor holds it, so it is gone with its
//! [`Testbed`], and also after a panic or a kill of the program. Programs started in one die with
//! the program that started them. Needs root.
//!
//! - [`host`]: a namespace, what is in it and how to be in it; [`network`]: its links, addresses,
//!   routes, rules and settings.
//! - [`process`]: programs inside a host.
//! - [`echo`]: servers that answer who they are and whom they saw; [`flow`]: asking them over TCP,
//!   UDP and SCTP.
//! - [`cluster`]: a small dual-stack cluster with nodes, pods, clients and a box that answers
//!   everything else.
//! - [`lab`]: a cluster to show and to play with: nodes, pods, and a client behind a router.
//! - [`uml`]: another kernel, for tests of what this one does not have.

pub mod cluster;
pub mod echo;
pub mod flow;
pub mod host;
pub mod lab;
pub mod network;
pub mod process;
pub mod uml;

mod namespace;
mod netlink;
mod sctp;

pub use cluster::Cluster;
pub use echo::Seen;
pub use flow::{Failure, Flow, Protocol};
pub use host::{Host, Testbed};
pub use lab::Lab;
pub use namespace::inside;
pub use network::{Route, Rule};
pub use process::Process;

/// What could not be done, where.
#[derive(Debug, thiserror::Error)]
#[error("{host}: {doing}")]
pub struct Error {
    pub host: String,
    pub doing: String,
    #[source]
    pub source: std::io::Error,
}

pub type Result<T> = std::result::Result<T, Error>;
