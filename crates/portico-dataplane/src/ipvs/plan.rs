//! What is and what should be → operations, in an order in which no client is refused meanwhile.
//! Pure.
//!
//! The kernel does them one after the other: what others lead to comes before what leads there, and
//! new ways are open before old ones are closed.

use super::leaving::{Leaving, Left};
use super::server::{At, Destination, Found, Server, Settings, contains, socket};
use super::sets::{Entry, Set};
use portico_model::table::Protocol;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    AddEntry(Set, Entry),
    DeleteEntry(Set, Entry),
    AddServer(At, Settings),
    EditServer(At, Settings),
    DeleteServer(At),
    AddDestination(At, SocketAddr),
    /// Gets new connections, or (0) none.
    Weigh(At, SocketAddr, u32),
    DeleteDestination(At, SocketAddr),
    Bind(IpAddr),
    Unbind(IpAddr),
}

use Operation::*;

impl Operation {
    /// The turn in which an operation is done. All operations of a turn are of one kind.
    fn turn(&self) -> usize {
        match self {
            AddEntry(Set::Sources | Set::Bound | Set::LoopBack, _) => 0,
            AddEntry(Set::Inside | Set::Leaving, _) => 3,
            // A frontend is treated as it should be before its server is there.
            AddEntry(..) => 1,
            AddServer(..) | EditServer(..) | AddDestination(..) | Weigh(_, _, 1..) => 2,
            Bind(_) => 4,
            DeleteEntry(Set::Inside | Set::Guarded | Set::DroppedOutside, _) => 5,
            DeleteEntry(Set::Sources | Set::Bound | Set::LoopBack | Set::Leaving, _) => 10,
            // Without it the filter rejects what is sent to the port.
            DeleteEntry(..) => 6,
            Weigh(_, _, 0) | DeleteDestination(..) => 7,
            DeleteServer(_) => 8,
            Unbind(_) => 9,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddEntry(set, entry) => write!(f, "add {entry} to {}", set.name(entry.family())),
            DeleteEntry(set, entry) => {
                write!(f, "delete {entry} from {}", set.name(entry.family()))
            }
            AddServer(at, settings) => write!(f, "add virtual server {at} {settings}"),
            EditServer(at, settings) => write!(f, "change virtual server {at} to {settings}"),
            DeleteServer(at) => write!(f, "delete virtual server {at}"),
            AddDestination(at, endpoint) => write!(f, "add {endpoint} to {at}"),
            Weigh(at, endpoint, weight) => write!(f, "give {endpoint} of {at} weight {weight}"),
            DeleteDestination(at, endpoint) => write!(f, "delete {endpoint} from {at}"),
            Bind(address) => write!(f, "add address {address}"),
            Unbind(address) => write!(f, "delete address {address}"),
        }
    }
}

/// What is to be done, by turn.
#[derive(Debug, Default)]
pub(super) struct Plan {
    turns: [Vec<Operation>; TURNS],
}

const TURNS: usize = 11;

impl Plan {
    fn push(&mut self, operation: Operation) {
        if let Some(turn) = self.turns.get_mut(operation.turn()) {
            turn.push(operation);
        }
    }

    pub(super) fn extend(&mut self, operations: impl IntoIterator<Item = Operation>) {
        operations
            .into_iter()
            .for_each(|operation| self.push(operation));
    }

    /// The operations in order.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.turns.iter().flatten()
    }

    /// Batches to be done one after the other; the operations of each may be done in any order.
    pub(super) fn into_turns(self) -> impl Iterator<Item = Vec<Operation>> {
        self.turns.into_iter().filter(|turn| !turn.is_empty())
    }

    pub(super) fn entry(&mut self, set: Set, entry: Entry, before: bool, after: bool) {
        match (before, after) {
            (false, true) => self.push(AddEntry(set, entry)),
            (true, false) => self.push(DeleteEntry(set, entry)),
            _ => {}
        }
    }

    pub(super) fn entries(
        &mut self,
        before: &BTreeSet<(Set, Entry)>,
        after: &BTreeSet<(Set, Entry)>,
    ) {
        let missing = after
            .difference(before)
            .map(|(set, entry)| AddEntry(*set, *entry));
        let surplus = before
            .difference(after)
            .map(|(set, entry)| DeleteEntry(*set, *entry));
        self.extend(missing.chain(surplus));
    }

    pub(super) fn address(&mut self, address: IpAddr, before: Bound, after: Bound) {
        match (before.linked, after.linked) {
            (false, true) => self.push(Bind(address)),
            (true, false) => self.push(Unbind(address)),
            _ => {}
        }
        self.entry(Set::Bound, Entry::Address(address), before.live, after.live);
        self.entry(
            Set::Leaving,
            Entry::Address(address),
            before.leaving,
            after.leaving,
        );
    }

    /// Plans one virtual server. What has to stay for its connections is put into `leaving`.
    pub(super) fn server(
        &mut self,
        at: At,
        before: Option<&Found>,
        after: Option<&Server>,
        leaving: &mut Leaving,
        now: Instant,
    ) {
        let since = leaving.forget(&at);
        match (before, after) {
            (None, None) => {}
            (None, Some(after)) => {
                self.push(AddServer(at, after.settings.clone()));
                self.extend(
                    after
                        .pool
                        .iter()
                        .map(|endpoint| AddDestination(at, socket(endpoint))),
                );
            }
            (Some(before), Some(after)) => {
                if before.settings != after.settings {
                    self.push(EditServer(at, after.settings.clone()));
                }
                let left = self.destinations(at, &before.destinations, after);
                leaving.insert(at, before.settings.clone(), false, left, &since, now);
            }
            (Some(before), None) => {
                let left = self.abandon(at, &before.destinations);
                leaving.insert(at, before.settings.clone(), true, left, &since, now);
            }
        }
    }

    fn destinations(
        &mut self,
        at: At,
        before: &[Destination],
        after: &Server,
    ) -> Vec<(SocketAddr, Left)> {
        let mut found: Vec<&Destination> = before.iter().collect();
        found.sort_unstable_by_key(|destination| destination.at);
        for endpoint in after.pool.iter().map(socket) {
            match found.binary_search_by_key(&endpoint, |destination| destination.at) {
                Ok(index)
                    if found
                        .get(index)
                        .is_some_and(|destination| destination.weight == 1) => {}
                Ok(_) => self.push(Weigh(at, endpoint, 1)),
                Err(_) => self.push(AddDestination(at, endpoint)),
            }
        }
        let mut left = Vec::new();
        for destination in found
            .into_iter()
            .filter(|destination| !contains(&after.pool, destination.at))
        {
            match fate(at.protocol, destination.at, after) {
                Some(how) => {
                    left.push((destination.at, how));
                    self.close(at, destination);
                }
                None => self.push(DeleteDestination(at, destination.at)),
            }
        }
        left
    }

    /// The server is no longer wanted. It stays while connections use it.
    fn abandon(&mut self, at: At, destinations: &[Destination]) -> Vec<(SocketAddr, Left)> {
        let busy =
            |destination: &&Destination| at.protocol == Protocol::Tcp && destination.active > 0;
        if !destinations.iter().any(|destination| busy(&destination)) {
            self.push(DeleteServer(at));
            return Vec::new();
        }
        for idle in destinations.iter().filter(|destination| !busy(destination)) {
            self.push(DeleteDestination(at, idle.at));
        }
        let busy = destinations.iter().filter(busy);
        busy.clone()
            .for_each(|destination| self.close(at, destination));
        busy.map(|destination| (destination.at, Left::UntilIdle))
            .collect()
    }

    fn close(&mut self, at: At, destination: &Destination) {
        if destination.weight != 0 {
            self.push(Weigh(at, destination.at, 0));
        }
    }
}

/// What becomes of an endpoint that gets no new connections: it stays for those it has, or goes at
/// once.
fn fate(protocol: Protocol, endpoint: SocketAddr, server: &Server) -> Option<Left> {
    let serves = contains(&server.lingering, endpoint);
    match protocol {
        Protocol::Tcp => Some(Left::UntilIdle),
        _ if serves => Some(Left::UntilIdle),
        // No other endpoint can take its flows, and it may be back in a moment.
        _ if server.pool.is_empty() => Some(Left::ForAWhile),
        _ => None,
    }
}

/// Where an address is, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bound {
    /// Our link has it.
    pub linked: bool,
    /// In [`Set::Bound`].
    pub live: bool,
    /// In [`Set::Leaving`].
    pub leaving: bool,
}

impl Bound {
    /// What an address should be: with servers that are wanted, or only some that are leaving.
    pub(super) fn wanted(live: bool, leaving: bool) -> Self {
        Self {
            linked: live || leaving,
            live,
            leaving: leaving && !live,
        }
    }
}
