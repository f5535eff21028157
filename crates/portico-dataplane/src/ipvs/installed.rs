//! What we believe is in the kernel, and how changes change it. Pure.

use super::leaving::Leaving;
use super::plan::{Bound, Operation, Plan};
use super::server::{At, Destination, Found, Server, socket};
use super::sets::{Entry, Set};
use super::snapshot::Snapshot;
use super::wanted::{Surroundings, Wanted, on_own};
use ipnet::IpNet;
use portico_model::table::{Change, NodeRules, PortKey, Protocol, ServicePort};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

pub(super) type Ports = BTreeMap<PortKey, Arc<ServicePort>>;

#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub ports: Ports,
    here: Surroundings,
    /// How many servers are on each address of our link.
    addresses: HashMap<IpAddr, u32>,
    /// How many ports want an entry of those that several may want.
    shared: HashMap<(Set, Entry), u32>,
    leaving: Leaving,
}

/// What was found, and what we know beside it.
pub(super) struct Start<'a> {
    pub snapshot: &'a Snapshot,
    pub excluded: &'a [IpNet],
    pub scheduler: &'a Arc<str>,
    /// The destinations that were leaving before; they need not wait anew.
    pub leaving: Leaving,
    pub now: Instant,
}

impl Installed {
    /// Plans the whole table, whatever is installed.
    pub(super) fn repair(rules: &NodeRules, ports: Ports, start: Start<'_>) -> (Self, Plan) {
        let Start { snapshot, now, .. } = start;
        let here = surroundings(rules, &ports, snapshot, start.scheduler);
        let mut wanted = Wanted::default();
        ports
            .iter()
            .for_each(|(key, port)| wanted.add(key, port, &here));
        let mut plan = Plan::default();
        let mut leaving = start.leaving;
        for at in leaving
            .servers()
            .iter()
            .filter(|at| !snapshot.servers.contains_key(at))
        {
            leaving.forget(at);
        }
        for at in keys(&snapshot.servers, &wanted.servers) {
            let after = wanted.servers.get(&at);
            if after.is_some() || snapshot.is_ours(&at, start.excluded) {
                plan.server(at, snapshot.servers.get(&at), after, &mut leaving, now);
            }
        }
        wanted.entries.extend(leaving.whole_servers().map(kept));
        repair_entries(&mut plan, snapshot, &wanted);
        repair_addresses(&mut plan, snapshot, &wanted, &leaving);
        let here = Surroundings {
            shadows: std::mem::take(&mut wanted.shadows),
            ..here
        };
        let addresses = wanted.addresses.into_iter().collect();
        let shared = wanted.shared.into_iter().collect();
        (
            Self {
                ports,
                here,
                addresses,
                shared,
                leaving,
            },
            plan,
        )
    }

    pub(super) fn rules(&self) -> &NodeRules {
        &self.here.rules
    }

    pub(super) fn own(&self) -> &Arc<[IpAddr]> {
        &self.here.own
    }

    pub(super) fn into_leaving(self) -> Leaving {
        self.leaving
    }

    /// Whether a change has an effect on other ports: a frontend on an address of the node takes it
    /// from a node port.
    pub(super) fn reaches_further(&self, changes: &[Change]) -> bool {
        let reaches = |key: &PortKey, port: &Option<Arc<ServicePort>>| {
            port.as_deref()
                .is_some_and(|port| on_own(key, port, &self.here.own).next().is_some())
        };
        changes.iter().any(|change| {
            reaches(&change.key, &change.before) || reaches(&change.key, &change.after)
        })
    }

    /// Servers that changes remove, and that may have connections.
    pub(super) fn abandoned(&self, change: &Prepared) -> Vec<At> {
        let gone = change
            .before
            .servers
            .keys()
            .filter(|at| !change.after.servers.contains_key(at));
        gone.filter(|at| at.protocol == Protocol::Tcp)
            .copied()
            .collect()
    }

    pub(super) fn prepare(&self, changes: &[Change]) -> Prepared {
        let mut prepared = Prepared::default();
        for change in changes {
            if let Some(before) = &change.before {
                prepared.before.add(&change.key, before, &self.here);
            }
            if let Some(after) = &change.after {
                prepared.after.add(&change.key, after, &self.here);
            }
        }
        prepared
    }

    /// `found`: what the kernel says of servers that are removed.
    pub(super) fn change(
        &mut self,
        Prepared {
            mut before,
            mut after,
        }: Prepared,
        found: &BTreeMap<At, Vec<Destination>>,
        now: Instant,
    ) -> Plan {
        let mut plan = Plan::default();
        for shared in keys(&before.shared, &after.shared) {
            let (had, has) = count(
                &mut self.shared,
                shared,
                before.shared.get(&shared),
                after.shared.get(&shared),
            );
            plan.entry(shared.0, shared.1, had, has);
        }
        let servers = keys(&before.servers, &after.servers);
        let was = self.bounds(&servers.iter().map(|at| at.address).collect());
        for at in servers {
            let as_it_is = self.as_it_is(at, before.servers.get(&at), found.get(&at));
            before
                .entries
                .extend(self.leaving.is_whole(&at).then(|| kept(at)));
            plan.server(
                at,
                as_it_is.as_ref(),
                after.servers.get(&at),
                &mut self.leaving,
                now,
            );
            after
                .entries
                .extend(self.leaving.is_whole(&at).then(|| kept(at)));
        }
        plan.entries(&before.entries, &after.entries);
        for address in keys(&before.addresses, &after.addresses) {
            count(
                &mut self.addresses,
                address,
                before.addresses.get(&address),
                after.addresses.get(&address),
            );
        }
        self.here.shadows.extend(after.shadows);
        self.bind(&mut plan, was);
        plan
    }

    fn as_it_is(
        &self,
        at: At,
        server: Option<&Server>,
        found: Option<&Vec<Destination>>,
    ) -> Option<Found> {
        let Some(server) = server else {
            return self.leaving.whole(&at);
        };
        let destinations = match found {
            Some(found) => found.clone(),
            None => {
                let pool = server
                    .pool
                    .iter()
                    .map(|endpoint| Destination::idle(socket(endpoint), 1));
                pool.chain(self.leaving.destinations(&at)).collect()
            }
        };
        Some(Found {
            settings: server.settings.clone(),
            destinations,
        })
    }

    fn bound(&self, address: IpAddr) -> Bound {
        // An address of the node needs no other link.
        let leaving = !self.here.is_own(address) && self.leaving.needs(address);
        Bound::wanted(self.addresses.contains_key(&address), leaving)
    }

    fn bounds(&self, addresses: &BTreeSet<IpAddr>) -> Vec<(IpAddr, Bound)> {
        addresses
            .iter()
            .map(|address| (*address, self.bound(*address)))
            .collect()
    }

    /// Plan what became of addresses, given what they were.
    fn bind(&mut self, plan: &mut Plan, was: Vec<(IpAddr, Bound)>) {
        for (address, before) in was {
            let after = self.bound(address);
            plan.address(address, before, after);
            if !after.linked {
                self.here.shadows.remove(&address);
            }
        }
    }

    /// Servers with something that is to be removed when its connections have ended.
    pub(super) fn leaving(&self) -> Vec<At> {
        self.leaving.servers()
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.leaving.due()
    }

    /// What can go now, given what the kernel says of those servers.
    pub(super) fn tend(&mut self, found: &BTreeMap<At, Vec<Destination>>, now: Instant) -> Plan {
        let was = self.bounds(&found.keys().map(|at| at.address).collect());
        let mut plan = Plan::default();
        for (at, destinations) in found {
            let whole = self.leaving.is_whole(at);
            plan.extend(self.leaving.look(*at, destinations, now));
            plan.entry(Set::Plain, Entry::At(*at), whole, self.leaving.is_whole(at));
        }
        self.bind(&mut plan, was);
        self.leaving.looked(now);
        plan
    }
}

/// How it is known that a server without a frontend is ours.
fn kept(at: At) -> (Set, Entry) {
    (Set::Plain, Entry::At(at))
}

/// What changed ports had, and what they have.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    before: Wanted,
    after: Wanted,
}

fn surroundings(
    rules: &NodeRules,
    ports: &Ports,
    snapshot: &Snapshot,
    scheduler: &Arc<str>,
) -> Surroundings {
    let own: Arc<[IpAddr]> = snapshot.own.as_slice().into();
    let claimed = ports
        .iter()
        .flat_map(|(key, port)| on_own(key, port, &own))
        .collect();
    Surroundings {
        rules: rules.clone(),
        own,
        claimed,
        shadows: BTreeMap::new(),
        scheduler: scheduler.clone(),
    }
}

/// Repairs the entries of all sets but those of addresses.
fn repair_entries(plan: &mut Plan, snapshot: &Snapshot, wanted: &Wanted) {
    let all = wanted.entries.iter().chain(wanted.shared.keys());
    let missing = all.filter(|entry| !snapshot.entries.contains(*entry));
    plan.extend(missing.map(|(set, entry)| Operation::AddEntry(*set, *entry)));
    let is_wanted =
        |entry: &(Set, Entry)| wanted.entries.contains(entry) || wanted.shared.contains_key(entry);
    let of_addresses = |set: Set| matches!(set, Set::Bound | Set::Leaving);
    let surplus = snapshot
        .entries
        .iter()
        .filter(|entry| !of_addresses(entry.0) && !is_wanted(entry));
    plan.extend(surplus.map(|(set, entry)| Operation::DeleteEntry(*set, *entry)));
}

fn repair_addresses(plan: &mut Plan, snapshot: &Snapshot, wanted: &Wanted, leaving: &Leaving) {
    let own = |address: &IpAddr| snapshot.own.binary_search(address).is_ok();
    let leaving: BTreeSet<IpAddr> = leaving
        .whole_servers()
        .map(|at| at.address)
        .filter(|address| !own(address))
        .collect();
    let listed = snapshot
        .entries
        .iter()
        .filter_map(|(_, entry)| match entry {
            Entry::Address(address) => Some(*address),
            _ => None,
        });
    let all: BTreeSet<IpAddr> = snapshot
        .linked
        .iter()
        .chain(wanted.addresses.keys())
        .chain(&leaving)
        .copied()
        .chain(listed)
        .collect();
    let has = |set, address| snapshot.entries.contains(&(set, Entry::Address(address)));
    for address in all {
        let before = Bound {
            linked: snapshot.linked.contains(&address),
            live: has(Set::Bound, address),
            leaving: has(Set::Leaving, address),
        };
        let after = Bound::wanted(
            wanted.addresses.contains_key(&address),
            leaving.contains(&address),
        );
        plan.address(address, before, after);
    }
}

/// All keys of both, each once.
fn keys<K: Ord + Copy, A, B>(one: &BTreeMap<K, A>, other: &BTreeMap<K, B>) -> BTreeSet<K> {
    one.keys().chain(other.keys()).copied().collect()
}

/// Counts what some ports no longer have and others now have; returns whether any had it before,
/// and whether any has it now.
fn count<K: Eq + Hash>(
    counts: &mut HashMap<K, u32>,
    key: K,
    before: Option<&u32>,
    after: Option<&u32>,
) -> (bool, bool) {
    let all = counts.get(&key).copied().unwrap_or_default();
    let now = (all + after.copied().unwrap_or_default())
        .saturating_sub(before.copied().unwrap_or_default());
    match now {
        0 => _ = counts.remove(&key),
        _ => _ = counts.insert(key, now),
    }
    (all > 0, now > 0)
}
