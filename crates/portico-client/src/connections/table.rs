//! The decisions about connections, without sockets or a clock: whether a peer may open one more,
//! and which ones are closed for it.
//!
//! A connection counts for the address of its peer until a request has shown its user, and from
//! then on for that identity. Where there is no room the connection that has been idle for longest
//! makes room; one with a request under way never does.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many connections there may be, and for how long they may be idle.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub all: usize,
    /// How many of them may be strangers: connections on which no request has been authenticated.
    pub strangers: usize,
    /// How many of the strangers may come from one address.
    pub of_one_peer: usize,
    /// Connections of one identity.
    pub of_one_identity: usize,
    /// How long the first request may take to arrive, the TLS handshake included.
    pub first_request: Duration,
    /// How long a stranger may be silent between two requests.
    pub idle: Duration,
}

/// Why there was no room, as metrics say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// So many connections, all of them busy.
    Full,
    /// So many strangers.
    Strangers,
    /// So many strangers from this address.
    Peer,
    /// So many connections of this identity.
    Identity,
    /// Nothing was said in time.
    Silent,
    /// An answer was not taken in time.
    Stalled,
}

impl Reason {
    /// The reason as a label of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Strangers => "strangers",
            Self::Peer => "peer",
            Self::Identity => "identity",
            Self::Silent => "silent",
            Self::Stalled => "stalled",
        }
    }
}

pub(super) type Id = u64;

/// The peer or user that a connection counts for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Peer(IpAddr),
    Identity(Arc<str>),
}

impl Owner {
    fn is_known(&self) -> bool {
        matches!(self, Self::Identity(_))
    }
}

#[derive(Default)]
struct Group {
    count: usize,
    idle: BTreeSet<(Instant, Id)>,
}

struct Connection<C> {
    owner: Owner,
    closer: C,
    /// Requests that have no complete answer yet.
    under_way: usize,
    /// Has there been a request?
    asked: bool,
    /// When it became idle; of use while nothing is under way.
    idle_since: Instant,
    /// When each answer that is being sent has to be gone.
    unsent: BTreeSet<(Instant, u64)>,
}

/// All connections. `C` is what ends one; the table hands it out with the reason.
pub(super) struct Table<C> {
    limits: Limits,
    connections: HashMap<Id, Connection<C>>,
    groups: HashMap<Owner, Group>,
    strangers: usize,
    /// Those without a request under way: strangers before the others, then by age.
    idle: BTreeSet<(bool, Instant, Id)>,
    next: u64,
}

impl<C> Table<C> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            connections: HashMap::new(),
            groups: HashMap::new(),
            strangers: 0,
            idle: BTreeSet::new(),
            next: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn strangers(&self) -> usize {
        self.strangers
    }

    /// Take in a new connection. The second part of the result is what has to end for it.
    pub(super) fn enter(
        &mut self,
        peer: IpAddr,
        closer: C,
        now: Instant,
    ) -> Result<(Id, Option<(C, Reason)>), Reason> {
        let owner = Owner::Peer(peer);
        let own = self.groups.get(&owner).map_or(0, |group| group.count);
        let ended = if own >= self.limits.of_one_peer {
            Some(self.end_oldest_of(&owner).ok_or(Reason::Peer)?)
                .map(|closer| (closer, Reason::Peer))
        } else if self.strangers >= self.limits.strangers {
            let oldest = self.idle.first().filter(|(known, ..)| !known).copied();
            let closer = oldest.and_then(|(_, _, id)| self.leave(id));
            Some((closer.ok_or(Reason::Strangers)?, Reason::Strangers))
        } else if self.count() >= self.limits.all {
            Some((self.end_oldest().ok_or(Reason::Full)?, Reason::Full))
        } else {
            None
        };
        self.next += 1;
        let id = self.next;
        let connection = Connection {
            owner: owner.clone(),
            closer,
            under_way: 0,
            asked: false,
            idle_since: now,
            unsent: BTreeSet::new(),
        };
        self.connections.insert(id, connection);
        self.count_for(&owner);
        self.rest(id, &owner, now);
        Ok((id, ended))
    }

    /// A request has begun; `identity` is the user that sends it, where it is known. The result is
    /// a connection of that identity that has to end, if there are too many of them.
    pub(super) fn begin(&mut self, id: Id, identity: Option<&str>) -> Option<C> {
        let connection = self.connections.get_mut(&id)?;
        connection.asked = true;
        connection.under_way += 1;
        let (old, since) = (connection.owner.clone(), connection.idle_since);
        if connection.under_way == 1 {
            self.rouse(id, &old, since);
        }
        let identity = identity?;
        if matches!(&old, Owner::Identity(known) if **known == *identity) {
            return None;
        }
        let owner = Owner::Identity(identity.into());
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.owner = owner.clone();
        }
        self.count_off(&old);
        self.count_for(&owner);
        let crowded =
            self.groups.get(&owner).map_or(0, |group| group.count) > self.limits.of_one_identity;
        if !crowded {
            return None;
        }
        // Where all others are busy it is the new one that has to go.
        self.end_oldest_of(&owner).or_else(|| self.leave(id))
    }

    /// An answer is on its way, and has to be taken until then. The result names it for `end`.
    pub(super) fn sending(&mut self, id: Id, until: Instant) -> Option<(Instant, u64)> {
        self.next += 1;
        let answer = (until, self.next);
        self.connections.get_mut(&id)?.unsent.insert(answer);
        Some(answer)
    }

    /// A request is over: its answer was sent, or the client has gone.
    pub(super) fn end(&mut self, id: Id, answer: Option<(Instant, u64)>, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(answer) = answer {
            connection.unsent.remove(&answer);
        }
        connection.under_way = connection.under_way.saturating_sub(1);
        if connection.under_way == 0 {
            connection.idle_since = now;
            let owner = connection.owner.clone();
            self.rest(id, &owner, now);
        }
    }

    /// Forget a connection; what would have ended it, if it was still there.
    pub(super) fn leave(&mut self, id: Id) -> Option<C> {
        let connection = self.connections.remove(&id)?;
        if connection.under_way == 0 {
            self.rouse(id, &connection.owner, connection.idle_since);
        }
        self.count_off(&connection.owner);
        Some(connection.closer)
    }

    /// The connection that can be missed most easily.
    pub(super) fn end_oldest(&mut self) -> Option<C> {
        let (_, _, id) = *self.idle.first()?;
        self.leave(id)
    }

    /// Removes and returns the connections whose time is up.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(C, Reason)> {
        let Limits {
            first_request,
            idle,
            ..
        } = self.limits;
        let silent = self
            .idle
            .iter()
            .take_while(|(known, ..)| !known)
            .filter(|(_, since, id)| {
                let asked = self.connections.get(id).is_some_and(|found| found.asked);
                let patience = if asked { idle } else { first_request };
                now.saturating_duration_since(*since) >= patience
            })
            .map(|(_, _, id)| (*id, Reason::Silent));
        let stalled = self.connections.iter().filter_map(|(id, connection)| {
            let (until, _) = connection.unsent.first()?;
            (*until <= now).then_some((*id, Reason::Stalled))
        });
        let due: Vec<(Id, Reason)> = silent.chain(stalled).collect();
        due.into_iter()
            .filter_map(|(id, reason)| Some((self.leave(id)?, reason)))
            .collect()
    }

    fn end_oldest_of(&mut self, owner: &Owner) -> Option<C> {
        let (_, id) = *self.groups.get(owner)?.idle.first()?;
        self.leave(id)
    }

    fn count_for(&mut self, owner: &Owner) {
        self.groups.entry(owner.clone()).or_default().count += 1;
        self.strangers += usize::from(!owner.is_known());
    }

    fn count_off(&mut self, owner: &Owner) {
        self.strangers -= usize::from(!owner.is_known());
        if let Entry::Occupied(mut group) = self.groups.entry(owner.clone()) {
            group.get_mut().count -= 1;
            if group.get().count == 0 {
                group.remove();
            }
        }
    }

    fn rest(&mut self, id: Id, owner: &Owner, since: Instant) {
        self.idle.insert((owner.is_known(), since, id));
        if let Some(group) = self.groups.get_mut(owner) {
            group.idle.insert((since, id));
        }
    }

    fn rouse(&mut self, id: Id, owner: &Owner, since: Instant) {
        self.idle.remove(&(owner.is_known(), since, id));
        if let Some(group) = self.groups.get_mut(owner) {
            group.idle.remove(&(since, id));
        }
    }
}

#[cfg(test)]
mod tests;
