//! What has to be known of a peer to speak with it.

use portico_model::hash;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// As MetalLB has it, and routers often.
pub(super) const HOLD_TIME: u16 = 90;
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(60);
pub(super) const RESTART_TIME: u16 = 120;

/// One router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The name of the BgpPeer.
    pub name: String,
    /// The address and port of the router.
    pub address: SocketAddr,
    /// The address that connections come from; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
    /// The AS of this node.
    pub local_as: u32,
    /// The AS that the router has to have.
    pub peer_as: u32,
    /// The BGP identifier; `None` takes one of the node's addresses.
    pub router_id: Option<Ipv4Addr>,
    /// In seconds; 0: for ever.
    pub hold_time: u16,
    /// The time between two KEEPALIVEs in seconds; `None` takes a third of the hold time.
    pub keepalive_time: Option<u16>,
    /// Attempts never wait for longer.
    pub connect_time: Duration,
    /// The key of TCP's MD5 signatures (RFC 2385); `None` for none.
    pub password: Option<Password>,
    /// A router of another AS may be further away than the next link.
    pub ebgp_multihop: bool,
    /// In seconds; `None`: routers take a restart of this daemon for its end.
    pub restart_time: Option<u16>,
}

impl PeerConfig {
    /// A router of which nothing else is known.
    pub fn new(name: &str, address: SocketAddr, local_as: u32, peer_as: u32) -> Self {
        Self {
            name: name.to_owned(),
            address,
            source: None,
            local_as,
            peer_as,
            router_id: None,
            hold_time: HOLD_TIME,
            keepalive_time: None,
            connect_time: LONGEST_RETRY,
            password: None,
            ebgp_multihop: false,
            restart_time: Some(RESTART_TIME),
        }
    }

    /// Whether the router sees the same neighbour as before, whatever else changed.
    pub fn is_same_neighbour(&self, other: &Self) -> bool {
        let who = |config: &Self| {
            (
                config.address,
                config.source,
                config.local_as,
                config.peer_as,
            )
        };
        who(self) == who(other)
    }

    pub(super) fn session(&self, router_id: Ipv4Addr) -> portico_bgp::Config {
        portico_bgp::Config {
            local_as: self.local_as,
            peer_as: self.peer_as,
            router_id: self.router_id.unwrap_or(router_id),
            hold_time: self.hold_time,
            keepalive_time: self.keepalive_time,
            longest_retry: self.connect_time,
            restart_time: self.restart_time,
        }
    }
}

/// The key of TCP-MD5 (RFC 2385). It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<str>);

impl Password {
    /// The kernel takes no more octets.
    pub const LONGEST: usize = 80;

    /// `None` if it is empty or too long.
    pub fn new(text: &str) -> Option<Self> {
        (1..=Self::LONGEST)
            .contains(&text.len())
            .then(|| Self(text.into()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// The same for all sessions of a node: its address of IPv4, or else a number made of its name.
pub(super) fn router_id(node: &str, own: Option<IpAddr>) -> Ipv4Addr {
    match own {
        Some(IpAddr::V4(own)) if !own.is_unspecified() && !own.is_loopback() => own,
        _ => {
            // The same in every process, as routers sort by it.
            let hash = hash::stable(node.as_bytes());
            Ipv4Addr::from(((hash >> 32) as u32 ^ hash as u32).max(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_printed() {
        let mut config =
            PeerConfig::new("tor", SocketAddr::from(([192, 0, 2, 1], 179)), 64512, 64513);
        config.password = Password::new("s3cret");
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn passwords_that_the_kernel_does_not_take_are_none() {
        assert!(Password::new("").is_none());
        assert!(Password::new(&"x".repeat(80)).is_some());
        assert!(Password::new(&"x".repeat(81)).is_none());
    }

    #[test]
    fn nodes_without_ipv4_have_different_router_ids() {
        let ids = ["node-1", "node-2", ""]
            .map(|node| router_id(node, Some("2001:db8::1".parse().unwrap())));
        assert!(ids.iter().all(|id| !id.is_unspecified()));
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert_eq!(
            router_id("node-1", Some("192.0.2.7".parse().unwrap())),
            Ipv4Addr::new(192, 0, 2, 7)
        );
    }
}
