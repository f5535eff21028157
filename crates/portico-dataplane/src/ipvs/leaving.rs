//! What is not wanted any more and still there, for the connections that it has: endpoints that get
//! no new ones, and virtual servers of which only those are left. Pure.

use super::plan::Operation;
use super::server::{At, Destination, Found, Settings};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The time between two looks at whether connections have ended.
const LOOK: Duration = Duration::from_secs(10);
/// How long a datagram's endpoint stays that has no successor: as long as its flows are left alone.
const A_WHILE: Duration = crate::conntrack::ABANDONED_AFTER;

/// How long an endpoint stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Until its connections have ended.
    UntilIdle,
    ForAWhile,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    servers: BTreeMap<At, LeavingServer>,
    next_look: Option<Instant>,
}

#[derive(Clone, Debug)]
struct LeavingServer {
    settings: Settings,
    /// Whether the server itself is no longer wanted either.
    whole: bool,
    destinations: BTreeMap<SocketAddr, (Left, Instant)>,
}

/// Since when each endpoint of a server is leaving.
pub(super) type Since = BTreeMap<SocketAddr, (Left, Instant)>;

impl Leaving {
    /// It is planned anew; what was known of it so far.
    pub(super) fn forget(&mut self, at: &At) -> Since {
        self.servers
            .remove(at)
            .map(|server| server.destinations)
            .unwrap_or_default()
    }

    pub(super) fn insert(
        &mut self,
        at: At,
        settings: Settings,
        whole: bool,
        left: Vec<(SocketAddr, Left)>,
        since: &Since,
        now: Instant,
    ) {
        if left.is_empty() {
            return;
        }
        let began = |endpoint: &SocketAddr| since.get(endpoint).map_or(now, |(_, began)| *began);
        let destinations = left
            .into_iter()
            .map(|(endpoint, how)| (endpoint, (how, began(&endpoint))))
            .collect();
        self.servers.insert(
            at,
            LeavingServer {
                settings,
                whole,
                destinations,
            },
        );
        self.next_look.get_or_insert(now + LOOK);
    }

    /// The endpoints of a server that are leaving, as the kernel has them.
    pub(super) fn destinations(&self, at: &At) -> impl Iterator<Item = Destination> {
        let server = self.servers.get(at);
        server
            .into_iter()
            .flat_map(|server| server.destinations.keys())
            .map(|endpoint| Destination::idle(*endpoint, 0))
    }

    /// A server of which only leaving endpoints are left.
    pub(super) fn whole(&self, at: &At) -> Option<Found> {
        let server = self.servers.get(at).filter(|server| server.whole)?;
        Some(Found {
            settings: server.settings.clone(),
            destinations: self.destinations(at).collect(),
        })
    }

    /// Whether an address is needed for a server that is leaving.
    pub(super) fn needs(&self, address: IpAddr) -> bool {
        self.whole_servers().any(|needed| needed.address == address)
    }

    /// Servers that are no longer wanted.
    pub(super) fn whole_servers(&self) -> impl Iterator<Item = At> {
        self.servers
            .iter()
            .filter(|(_, server)| server.whole)
            .map(|(at, _)| *at)
    }

    pub(super) fn is_whole(&self, at: &At) -> bool {
        self.servers.get(at).is_some_and(|server| server.whole)
    }

    pub(super) fn servers(&self) -> Vec<At> {
        self.servers.keys().copied().collect()
    }

    /// When it is time for [`Leaving::look`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.next_look.filter(|_| !self.servers.is_empty())
    }

    pub(super) fn looked(&mut self, now: Instant) {
        self.next_look = (!self.servers.is_empty()).then_some(now + LOOK);
    }

    /// What of a server can go now, given what the kernel says of its endpoints.
    pub(super) fn look(&mut self, at: At, found: &[Destination], now: Instant) -> Vec<Operation> {
        let Some(server) = self.servers.get_mut(&at) else {
            return Vec::new();
        };
        let mut operations = Vec::new();
        let whole = server.whole;
        server.destinations.retain(|endpoint, (how, since)| {
            let Some(destination) = found.iter().find(|destination| destination.at == *endpoint)
            else {
                return false;
            };
            let over = match how {
                // What is left of a connection that both sides have closed does not keep a whole
                // server.
                Left::UntilIdle if whole => destination.active == 0,
                Left::UntilIdle => destination.active + destination.inactive == 0,
                Left::ForAWhile => now >= *since + A_WHILE,
            };
            if over && !whole {
                operations.push(Operation::DeleteDestination(at, *endpoint));
            }
            !over
        });
        if server.destinations.is_empty() {
            if whole {
                operations.push(Operation::DeleteServer(at));
            }
            self.servers.remove(&at);
        }
        operations
    }
}
