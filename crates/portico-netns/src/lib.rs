//! Hosts as network namespaces: for `portico up --demo` and what is done in it (`lab`, `bench`), for
//! looking into another namespace (`explain`, `doctor`), and for tests and benchmarks.
//!
//! A namespace has no name and no process: a file descriptor holds it, so it is gone with its
//! [`Testbed`], and also after a panic or a kill of the program. Programs started in one die with
//! the program that started them. Needs root.
//!
//! - [`host`]: a namespace, what is in it and how to be in it; [`network`]: its links, addresses,
//!   routes, rules and settings.
//! - [`process`]: programs inside a host.
//! - [`lab`]: a cluster to show and to play with: nodes, pods that answer HTTP, and a client behind
//!   a router.

pub mod host;
pub mod lab;
pub mod network;
pub mod process;

mod http;
mod namespace;
mod netlink;

pub use host::{Host, Testbed};
pub use lab::Lab;
pub use namespace::inside;
pub use network::{Route, Rule};
pub use process::Process;

/// What could not be done, where.
#[derive(Debug, thiserror::Error)]
#[error("{host}: {doing}")]
pub struct Error {
    /// The name of the host.
    pub host: String,
    /// What was tried, as a verb and its object.
    pub doing: String,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// The result of what is done to hosts.
pub type Result<T> = std::result::Result<T, Error>;
