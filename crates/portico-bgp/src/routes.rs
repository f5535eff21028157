//! Which routes go to which peer.
//!
//! The [`Table`] holds the addresses that this node should announce, each with the [`Policy`] of
//! where it comes from. A peer hears of the prefixes that they are aggregated to, while any address
//! in one is announced. A change costs what it touches.

use crate::community::Communities;
use crate::family::{AfiSafi, PerFamily};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// What a route says beside where it goes: equal ones are told in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attributes {
    /// The communities that are attached to the route.
    pub communities: Communities,
    /// Sent to speakers of the same AS only.
    pub local_preference: Option<u32>,
}

/// How the addresses of one pool are announced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Policy {
    /// What the routes of the pool say.
    pub attributes: Arc<Attributes>,
    /// The length of the prefixes that addresses are aggregated to.
    pub aggregation_v4: u8,
    /// The same for IPv6.
    pub aggregation_v6: u8,
    /// The names of the peers that hear of it; empty: all.
    pub peers: BTreeSet<String>,
}

impl Default for Policy {
    /// Single addresses, to every peer.
    fn default() -> Self {
        let (aggregation_v4, aggregation_v6) =
            (AfiSafi::Ipv4Unicast.bits(), AfiSafi::Ipv6Unicast.bits());
        Self {
            attributes: Arc::default(),
            aggregation_v4,
            aggregation_v6,
            peers: BTreeSet::new(),
        }
    }
}

impl Policy {
    fn prefix(&self, address: IpAddr) -> Option<IpNet> {
        let family = AfiSafi::of(address);
        let length = *PerFamily {
            v4: self.aggregation_v4,
            v6: self.aggregation_v6,
        }
        .get(family);
        IpNet::new(address, length.min(family.bits()))
            .ok()
            .map(|prefix| prefix.trunc())
    }

    fn is_for(&self, peer: &str) -> bool {
        self.peers.is_empty() || self.peers.contains(peer)
    }

    /// Some peer hears of both.
    fn meets(&self, other: &Self) -> bool {
        self.peers.is_empty() || other.peers.is_empty() || !self.peers.is_disjoint(&other.peers)
    }
}

/// A prefix whose addresses do not agree. It is announced nevertheless, without what they do not
/// agree upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// They come from pools with different local preferences: it gets none of them.
    LocalPreference {
        /// The prefix that is announced without a local preference.
        prefix: IpNet,
        /// The preferences of its addresses, sorted.
        preferences: Vec<u32>,
    },
    /// Together they have more communities than can be told.
    Communities {
        /// The prefix that is announced with the first of them only.
        prefix: IpNet,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LocalPreference {
                prefix,
                preferences,
            } => {
                let all: Vec<String> = preferences.iter().map(u32::to_string).collect();
                let all = all.join(" and ");
                write!(
                    f,
                    "{prefix} has the local preferences {all} from different pools, and is \
                     announced without"
                )
            }
            Self::Communities { prefix } => {
                write!(
                    f,
                    "{prefix} has more than {} communities, and is announced with those only",
                    Communities::MOST
                )
            }
        }
    }
}

/// A route of a peer that changed: what it is now, or that there is none.
pub type Change = (IpNet, Option<Arc<Attributes>>);

/// The addresses that this node announces, and the routes that follow for each peer.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Sorted and without repetition.
    addresses: BTreeMap<IpAddr, Vec<Arc<Policy>>>,
    /// How many addresses each prefix is announced for, by policy: there are few of those, however
    /// many addresses.
    prefixes: BTreeMap<IpNet, BTreeMap<Arc<Policy>, usize>>,
    conflicts: BTreeMap<IpNet, Vec<Conflict>>,
}

impl Table {
    /// These are the policies by which an address is announced; without any, it is not. The
    /// prefixes that this touches.
    pub fn set(&mut self, address: IpAddr, mut policies: Vec<Arc<Policy>>) -> Vec<IpNet> {
        policies.sort();
        policies.dedup();
        let before = match policies.is_empty() {
            true => self.addresses.remove(&address),
            false => self.addresses.insert(address, policies.clone()),
        };
        let before = before.unwrap_or_default();
        if before == policies {
            return vec![];
        }
        let mut touched = BTreeSet::new();
        for policy in policies {
            let Some(prefix) = policy.prefix(address) else {
                continue;
            };
            *self
                .prefixes
                .entry(prefix)
                .or_default()
                .entry(policy)
                .or_default() += 1;
            touched.insert(prefix);
        }
        for policy in before {
            let Some(prefix) = policy.prefix(address) else {
                continue;
            };
            self.leave(prefix, &policy);
            touched.insert(prefix);
        }
        touched
            .iter()
            .for_each(|prefix| self.look_for_conflicts(*prefix));
        touched.into_iter().collect()
    }

    /// All addresses at once; whatever else there was is gone. The prefixes that this touches.
    pub fn replace(
        &mut self,
        all: impl IntoIterator<Item = (IpAddr, Arc<Policy>)>,
    ) -> BTreeSet<IpNet> {
        let mut wanted: BTreeMap<IpAddr, Vec<Arc<Policy>>> = BTreeMap::new();
        for (address, policy) in all {
            wanted.entry(address).or_default().push(policy);
        }
        let gone: Vec<IpAddr> = self
            .addresses
            .keys()
            .filter(|have| !wanted.contains_key(have))
            .copied()
            .collect();
        let gone = gone.into_iter().map(|address| (address, vec![]));
        gone.chain(wanted)
            .flat_map(|(address, policies)| self.set(address, policies))
            .collect()
    }

    fn leave(&mut self, prefix: IpNet, policy: &Arc<Policy>) {
        let Some(policies) = self.prefixes.get_mut(&prefix) else {
            return;
        };
        if let Some(count) = policies.get_mut(policy) {
            *count = count.saturating_sub(1);
        }
        policies.retain(|_, count| *count > 0);
        if policies.is_empty() {
            self.prefixes.remove(&prefix);
        }
    }

    /// What a peer should hear of a prefix.
    pub fn route(&self, peer: &str, prefix: &IpNet) -> Option<Arc<Attributes>> {
        merge(self.policies(prefix).filter(|policy| policy.is_for(peer)))
    }

    /// What a peer should hear of prefixes that were touched.
    pub fn changes<'a>(
        &self,
        peer: &str,
        touched: impl IntoIterator<Item = &'a IpNet>,
    ) -> Vec<Change> {
        touched
            .into_iter()
            .map(|prefix| (*prefix, self.route(peer, prefix)))
            .collect()
    }

    /// All that a peer should hear of.
    pub fn routes(&self, peer: &str) -> Vec<Change> {
        self.changes(peer, self.prefixes.keys())
            .into_iter()
            .filter(|(_, route)| route.is_some())
            .collect()
    }

    /// Prefixes whose addresses do not agree.
    pub fn conflicts(&self) -> impl Iterator<Item = &Conflict> {
        self.conflicts.values().flatten()
    }

    fn policies(&self, prefix: &IpNet) -> impl Iterator<Item = &Policy> {
        self.prefixes
            .get(prefix)
            .into_iter()
            .flat_map(|policies| policies.keys())
            .map(AsRef::as_ref)
    }

    /// The local preferences that some peer would hear together.
    fn disagreeing(&self, prefix: &IpNet) -> BTreeSet<u32> {
        let preference = |policy: &Policy| {
            policy
                .attributes
                .local_preference
                .unwrap_or(DEFAULT_PREFERENCE)
        };
        let mut found = BTreeSet::new();
        for one in self.policies(prefix) {
            for other in self.policies(prefix).filter(|other| one.meets(other)) {
                if preference(one) != preference(other) {
                    found.extend([preference(one), preference(other)]);
                }
            }
        }
        found
    }

    fn look_for_conflicts(&mut self, prefix: IpNet) {
        let preferences = self.disagreeing(&prefix);
        let mut communities = Communities::default();
        self.policies(&prefix)
            .for_each(|policy| communities.add(&policy.attributes.communities));
        let mut found = Vec::new();
        if !preferences.is_empty() {
            let preferences = preferences.into_iter().collect();
            found.push(Conflict::LocalPreference {
                prefix,
                preferences,
            });
        }
        if communities.are_too_many() {
            found.push(Conflict::Communities { prefix });
        }
        match found.is_empty() {
            true => self.conflicts.remove(&prefix),
            false => self.conflicts.insert(prefix, found),
        };
    }
}

/// What a route has among the speakers of one AS if nothing else is said.
pub const DEFAULT_PREFERENCE: u32 = 100;

/// All communities; the local preference if all agree.
fn merge<'a>(mut policies: impl Iterator<Item = &'a Policy>) -> Option<Arc<Attributes>> {
    let first = policies.next()?;
    let mut merged = Arc::clone(&first.attributes);
    for policy in policies {
        if merged == policy.attributes {
            continue;
        }
        let both = Arc::make_mut(&mut merged);
        both.communities.add(&policy.attributes.communities);
        if both.local_preference != policy.attributes.local_preference {
            both.local_preference = None;
        }
    }
    Some(merged)
}

#[cfg(test)]
mod tests;
