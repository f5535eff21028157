//! Which node announces which address: pools, Nodes and what Services have become shares on layer 2
//! and the routes of this node. Pure.
//!
//! A change costs what it touches: the addresses of a Service, those in a pool, or those whose
//! nodes are others now.

mod pool;

use super::{Peers, RouteChanges, Share, ShareChanges};
use pool::Pool;
use portico_model::announce::Announceable;
use portico_model::key::ObjectKey;
use portico_model::pools::{AddressPoolSpec, AddressRange, PoolBgp};
use portico_model::table::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What of a Node matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    pub labels: BTreeMap<String, String>,
    pub addresses: Vec<IpAddr>,
    /// It is excluded from load balancers, being deleted, or about to be.
    pub leaving: bool,
}

/// What is to be announced, as far as everything is known.
pub(super) struct Plan {
    node: Arc<str>,
    nodes: BTreeMap<Arc<str>, NodeFacts>,
    /// The nodes that are not leaving.
    peers: Peers,
    /// The oldest first: where two name the same address, it is the older one's.
    pools: BTreeMap<PoolKey, Pool>,
    services: BTreeMap<ObjectKey, Arc<Announceable>>,
    addresses: BTreeMap<IpAddr, Address>,
    /// To be decided anew.
    dirty: BTreeSet<IpAddr>,
}

/// When it was created, and its name.
type PoolKey = (i64, String);

/// An address of Services, and how it was last said to be announced.
#[derive(Default)]
struct Address {
    services: BTreeSet<ObjectKey>,
    share: Option<Arc<Share>>,
    route: Option<Arc<PoolBgp>>,
}

/// What changed since the last [`Plan::take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub shares: ShareChanges,
    pub routes: RouteChanges,
}

/// The nodes that can serve an address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Servers {
    Nobody,
    Everybody,
    /// Sorted.
    Only(Vec<Arc<str>>),
}

impl Plan {
    /// An empty plan for this node.
    pub(super) fn new(node: Arc<str>) -> Self {
        Self {
            node,
            nodes: BTreeMap::new(),
            peers: Peers::new(),
            pools: BTreeMap::new(),
            services: BTreeMap::new(),
            addresses: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    pub(super) fn set_service(&mut self, name: ObjectKey, now: Option<Arc<Announceable>>) {
        let before = match &now {
            Some(now) => self.services.insert(name.clone(), Arc::clone(now)),
            None => self.services.remove(&name),
        };
        for address in before.iter().flat_map(|before| &before.addresses) {
            if let Some(known) = self.addresses.get_mut(address) {
                known.services.remove(&name);
            }
            self.dirty.insert(*address);
        }
        for address in now.iter().flat_map(|now| &now.addresses) {
            self.addresses
                .entry(*address)
                .or_default()
                .services
                .insert(name.clone());
            self.dirty.insert(*address);
        }
    }

    /// A pool that is there, created at this second, or (`None`) no more.
    pub(super) fn set_pool(&mut self, name: &str, now: Option<(i64, &AddressPoolSpec)>) {
        let key = self.pools.keys().find(|(_, known)| known == name).cloned();
        let before = key.and_then(|key| self.pools.remove_entry(&key));
        let now =
            now.map(|(created, spec)| ((created, name.to_owned()), Pool::new(spec, &self.nodes)));
        if before != now {
            let both = before.iter().chain(&now);
            let touched: Vec<IpAddr> = both
                .flat_map(|(_, pool)| inside(&self.addresses, pool))
                .collect();
            self.dirty.extend(touched);
        }
        self.pools.extend(now);
    }

    pub(super) fn pool_names(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(|(_, name)| name.as_str())
    }

    /// Some pool wants its addresses on layer 2.
    pub(super) fn has_layer2(&self) -> bool {
        self.pools.values().any(|pool| pool.layer2)
    }

    /// A Node that is there, or (`None`) no more. Says whether the peers, or this node's labels,
    /// are others now.
    pub(super) fn set_node(&mut self, name: &str, now: Option<NodeFacts>) -> bool {
        let before = self.nodes.get(name);
        if before == now.as_ref() {
            return false;
        }
        let was_fit = before.is_some_and(|before| !before.leaving);
        let is_fit = now.as_ref().is_some_and(|now| !now.leaving);
        let labels = before.map(|before| &before.labels) != now.as_ref().map(|now| &now.labels);
        let (name, is_own): (Arc<str>, bool) = (name.into(), *name == *self.node);
        let peer = now
            .as_ref()
            .filter(|_| is_fit)
            .map(|now| now.addresses.clone());
        let changed = match peer {
            Some(addresses) => {
                self.peers.insert(Arc::clone(&name), addresses.clone()) != Some(addresses)
            }
            None => self.peers.remove(&name).is_some(),
        };
        if is_own && was_fit != is_fit {
            self.dirty.extend(self.addresses.keys());
        }
        match now {
            Some(now) => self.nodes.insert(name, now),
            None => self.nodes.remove(&name),
        };
        if labels {
            self.select_nodes();
        }
        changed || (labels && is_own)
    }

    /// Pools that choose by labels may choose others now.
    fn select_nodes(&mut self) {
        for pool in self.pools.values_mut() {
            if pool.select(&self.nodes) {
                self.dirty.extend(inside(&self.addresses, pool));
            }
        }
    }

    /// All Nodes that are known, those that are leaving too, with their addresses.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Arc<str>, &[IpAddr])> {
        let nodes = self.nodes.iter();
        nodes.map(|(name, facts)| (name, facts.addresses.as_slice()))
    }

    /// Addresses that nodes may announce.
    pub(super) fn announced(&self) -> impl Iterator<Item = AddressRange> {
        let pools = self.pools.values();
        pools
            .filter(|pool| pool.layer2 || pool.bgp.is_some())
            .flat_map(|pool| pool.ranges.iter().copied())
    }

    pub(super) fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|name| &**name)
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// This node, as others know it.
    pub(super) fn own(&self) -> Option<&NodeFacts> {
        self.nodes.get(&self.node)
    }

    pub(super) fn take(&mut self) -> Changes {
        let mut changes = Changes::default();
        for address in std::mem::take(&mut self.dirty) {
            let (share, route) = self.decide(address);
            let Some(known) = self.addresses.get_mut(&address) else {
                continue;
            };
            if known.share != share {
                known.share.clone_from(&share);
                changes.shares.push((address, share));
            }
            if known.route != route {
                known.route.clone_from(&route);
                changes.routes.push((address, route));
            }
            if known.services.is_empty() {
                self.addresses.remove(&address);
            }
        }
        changes
    }

    fn decide(&self, address: IpAddr) -> (Option<Arc<Share>>, Option<Arc<PoolBgp>>) {
        let Some(pool) = self.pools.values().find(|pool| pool.contains(address)) else {
            return (None, None);
        };
        let servers = self.servers(address);
        let here = self.peers.contains_key(&self.node)
            && pool.permits(&self.node)
            && servers.include(&self.node);
        let route = pool.bgp.as_ref().filter(|_| here).map(Arc::clone);
        (pool.share(&servers), route)
    }

    /// Services that share an address are served where all of them are; if there is no such node,
    /// where any of them is.
    fn servers(&self, address: IpAddr) -> Servers {
        let family = Family::of(address);
        let names = self
            .addresses
            .get(&address)
            .into_iter()
            .flat_map(|known| &known.services);
        let services = names.filter_map(|name| self.services.get(name));
        let all: Vec<Servers> = services
            .map(|service| Servers::of(service, family))
            .collect();
        let common = all.iter().cloned().fold(Servers::Nobody, Servers::and);
        match common {
            Servers::Only(nodes) if nodes.is_empty() => {
                all.into_iter().fold(Servers::Nobody, Servers::or)
            }
            common => common,
        }
    }
}

/// Addresses of Services in a pool.
fn inside(addresses: &BTreeMap<IpAddr, Address>, pool: &Pool) -> impl Iterator<Item = IpAddr> {
    let ranges = pool.ranges.iter();
    ranges.flat_map(|range| {
        addresses
            .range(range.first()..=range.last())
            .map(|(address, _)| *address)
    })
}

impl Servers {
    fn of(service: &Announceable, family: Family) -> Self {
        match (service.served.get(family), service.local) {
            (false, _) => Self::Nobody,
            (true, false) => Self::Everybody,
            (true, true) => Self::Only(service.nodes.get(family).to_vec()),
        }
    }

    fn include(&self, node: &Arc<str>) -> bool {
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::Only(nodes) => nodes.binary_search(node).is_ok(),
        }
    }

    /// The nodes that serve both; a Service that no node serves does not count.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobody, one) | (one, Self::Nobody) => one,
            (Self::Everybody, one) | (one, Self::Everybody) => one,
            (Self::Only(one), Self::Only(other)) => Self::Only(
                one.into_iter()
                    .filter(|node| other.binary_search(node).is_ok())
                    .collect(),
            ),
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobody, one) | (one, Self::Nobody) => one,
            (Self::Everybody, _) | (_, Self::Everybody) => Self::Everybody,
            (Self::Only(one), Self::Only(other)) => {
                let both: BTreeSet<Arc<str>> = one.into_iter().chain(other).collect();
                Self::Only(both.into_iter().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests;
