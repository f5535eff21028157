//! What is not wanted any more and still there, for the connections that it has: endpoints that get
//! no new ones, and virtual servers of which only those are left. Pure.

use super::plan::Operation;
use super::server::{At, Destination, Found, Settings};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Between two looks at whether connections have ended.
const LOOK: Duration = Duration::from_secs(10);
/// How long a datagram's endpoint stays that has no successor: as long as its flows are left alone.
const A_WHILE: Duration = crate::conntrack::ABANDONED_AFTER;

/// How long an endpoint stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Until its connections have ended.
    UntilIdle,
    ForAWhile,
}

#[derive(Clone, Debug, Default)]
pub struct Leaving {
    servers: BTreeMap<At, LeavingServer>,
    next_look: Option<Instant>,
}

#[derive(Clone, Debug)]
struct LeavingServer {
    settings: Settings,
    /// Nobody wants the server itself either.
    whole: bool,
    destinations: BTreeMap<SocketAddr, (Left, Instant)>,
}

/// Since when each endpoint of a server is leaving.
pub type Since = BTreeMap<SocketAddr, (Left, Instant)>;

impl Leaving {
    /// It is planned anew; what was known of it so far.
    pub fn forget(&mut self, at: &At) -> Since {
        self.servers
            .remove(at)
            .map(|server| server.destinations)
            .unwrap_or_default()
    }

    pub fn insert(
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
    pub fn destinations(&self, at: &At) -> impl Iterator<Item = Destination> {
        let server = self.servers.get(at);
        server
            .into_iter()
            .flat_map(|server| server.destinations.keys())
            .map(|endpoint| Destination::idle(*endpoint, 0))
    }

    /// A server of which only leaving endpoints are left.
    pub fn whole(&self, at: &At) -> Option<Found> {
        let server = self.servers.get(at).filter(|server| server.whole)?;
        Some(Found {
            settings: server.settings.clone(),
            destinations: self.destinations(at).collect(),
        })
    }

    /// Whether an address is needed for a server that is leaving.
    pub fn needs(&self, address: IpAddr) -> bool {
        self.whole_servers().any(|needed| needed.address == address)
    }

    /// Servers that nobody wants any more.
    pub fn whole_servers(&self) -> impl Iterator<Item = At> {
        self.servers
            .iter()
            .filter(|(_, server)| server.whole)
            .map(|(at, _)| *at)
    }

    pub fn is_whole(&self, at: &At) -> bool {
        self.servers.get(at).is_some_and(|server| server.whole)
    }

    pub fn servers(&self) -> Vec<At> {
        self.servers.keys().copied().collect()
    }

    /// When it is time for [`Leaving::look`].
    pub fn due(&self) -> Option<Instant> {
        self.next_look.filter(|_| !self.servers.is_empty())
    }

    pub fn looked(&mut self, now: Instant) {
        self.next_look = (!self.servers.is_empty()).then_some(now + LOOK);
    }

    /// What of a server can go now, given what the kernel says of its endpoints.
    pub fn look(&mut self, at: At, found: &[Destination], now: Instant) -> Vec<Operation> {
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
