//! What comes to the virtual address goes to an API server. One way a file; all are chosen at run time.

use crate::servers::Server;
use std::net::{IpAddr, SocketAddr};

/// What is to be forwarded where, on every node that runs `portico vip`, whether it has the address or not: a take-over finds
/// it ready, and who is on the node needs no owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    /// All that are known, in a stable order. [`crate::servers::eligible`] says which of them get connections.
    pub servers: Vec<Server>,
    /// The cluster IPs and the port of `default/kubernetes`, where they are known.
    pub cluster: Vec<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error(transparent)]
    Dataplane(#[from] portico_dataplane::ApplyError),
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error("{0}")]
    Unfit(String),
}

/// One way to forward.
pub trait Forwarder: Send {
    fn name(&self) -> &'static str;

    /// Make it so; called when something changed, and on a slow timer to put back what others removed. What is right already is
    /// not touched.
    fn apply(&mut self, wanted: &Wanted) -> Result<(), ForwardError>;

    /// The rules in force, as their own tool prints them, for `portico vip status`.
    fn rules(&mut self) -> Result<Vec<String>, ForwardError>;

    /// Remove everything of ours, also what an earlier process left, and nothing else.
    fn remove(&mut self) -> Result<(), ForwardError>;
}
