//! The API servers: which there are, and which of them answer.

use std::net::SocketAddr;

/// One API server as it is known now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: SocketAddr,
    pub healthy: bool,
}

/// The servers that are to get connections: the healthy ones, and all of them where none is.
pub fn eligible(servers: &[Server]) -> Vec<SocketAddr> {
    let all = || servers.iter().map(|server| server.address);
    let healthy: Vec<_> = servers.iter().filter(|server| server.healthy).map(|server| server.address).collect();
    if healthy.is_empty() { all().collect() } else { healthy }
}
