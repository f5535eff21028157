//! Pools as the provider uses them: which addresses belong to which pool, which Services may have
//! them, and how many are left.
//!
//! An address is in one pool only. Where two pools name the same addresses, the older one has them,
//! and the younger one says so.

use std::collections::BTreeMap;
use std::net::IpAddr;

use portico_model::pools::{AddressPoolSpec, AddressRange};

use super::runs::{Runs, address, is_buggy, number};
use crate::Family;

type Labels = BTreeMap<String, String>;

/// A pool as the API has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolObject {
    pub name: String,
    pub generation: i64,
    /// Seconds since 1970.
    pub created: i64,
    pub spec: AddressPoolSpec,
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub name: String,
    pub generation: i64,
    pub spec: AddressPoolSpec,
    /// What it can give, in the order in which it does.
    ranges: Vec<AddressRange>,
    /// Why some of its addresses cannot be used, for people.
    pub problems: Vec<Problem>,
    v4: Space,
    v6: Space,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Unreadable(String),
    Overlap(String),
}

#[derive(Clone, Debug, Default)]
struct Space {
    taken: Runs,
    assigned: u128,
}

/// How many addresses of a family there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub capacity: u128,
    pub assigned: u128,
}

impl Pool {
    fn new(object: &PoolObject) -> Self {
        let (ranges, unreadable) = object.spec.ranges();
        let space = |avoid| Space {
            taken: Runs::new(avoid),
            assigned: 0,
        };
        Self {
            name: object.name.clone(),
            generation: object.generation,
            spec: object.spec.clone(),
            ranges,
            problems: unreadable.into_iter().map(Problem::Unreadable).collect(),
            v4: space(object.spec.avoid_buggy_ips),
            v6: space(false),
        }
    }

    /// Whether the pool is for some Services only: they get addresses of it before those of pools
    /// for all.
    pub(super) fn is_pinned(&self) -> bool {
        self.is_for_namespaces() || self.spec.service_selector.is_some()
    }

    fn is_for_namespaces(&self) -> bool {
        !self.spec.namespaces.is_empty() || self.spec.namespace_selector.is_some()
    }

    pub(super) fn permits(
        &self,
        namespace: &str,
        namespace_labels: Option<&Labels>,
        labels: &Labels,
    ) -> bool {
        let by_selector = || {
            let selector = self.spec.namespace_selector.as_ref();
            selector
                .zip(namespace_labels)
                .is_some_and(|(selector, labels)| selector.matches(labels))
        };
        let named = || self.spec.namespaces.iter().any(|name| name == namespace);
        (!self.is_for_namespaces() || named() || by_selector())
            && self
                .spec
                .service_selector
                .as_ref()
                .is_none_or(|selector| selector.matches(labels))
    }

    pub(super) fn avoids(&self, address: IpAddr) -> bool {
        self.spec.avoid_buggy_ips && address.is_ipv4() && is_buggy(number(address))
    }

    pub(super) fn has_family(&self, family: Family) -> bool {
        self.count(family).capacity > 0
    }

    /// The first free address.
    pub(super) fn free(&self, family: Family) -> Option<IpAddr> {
        let taken = &self.space(family).taken;
        self.of_family(family).find_map(|range| {
            let found = taken
                .next_free(number(range.first()))
                .filter(|found| *found <= number(range.last()))?;
            address(family, found)
        })
    }

    pub(super) fn count(&self, family: Family) -> Count {
        let capacity = self.of_family(family).map(|range| {
            let (first, last) = (number(range.first()), number(range.last()));
            let buggy = if self.spec.avoid_buggy_ips && family == Family::V4 {
                buggy_between(first, last)
            } else {
                0
            };
            (last - first).saturating_add(1) - buggy
        });
        Count {
            capacity: capacity.fold(0, u128::saturating_add),
            assigned: self.space(family).assigned,
        }
    }

    fn take(&mut self, address: IpAddr) {
        let space = self.space_mut(Family::of(address));
        space.taken.insert(number(address));
        space.assigned += 1;
    }

    fn give_back(&mut self, address: IpAddr) {
        let space = self.space_mut(Family::of(address));
        space.taken.remove(number(address));
        space.assigned = space.assigned.saturating_sub(1);
    }

    fn of_family(&self, family: Family) -> impl Iterator<Item = &AddressRange> {
        self.ranges
            .iter()
            .filter(move |range| Family::of(range.first()) == family)
    }

    fn space(&self, family: Family) -> &Space {
        if family == Family::V4 {
            &self.v4
        } else {
            &self.v6
        }
    }

    fn space_mut(&mut self, family: Family) -> &mut Space {
        if family == Family::V4 {
            &mut self.v4
        } else {
            &mut self.v6
        }
    }
}

fn buggy_between(first: u128, last: u128) -> u128 {
    let below = |end: u128| 2 * (end / 256) + u128::from(!end.is_multiple_of(256));
    below(last + 1) - below(first)
}

/// All pools, in the order in which a Service is offered their addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    pools: Vec<Pool>,
    /// First number of each range, by family: its last, and the pool.
    ranges: BTreeMap<(Family, u128), (u128, usize)>,
}

impl Pools {
    /// `taken`: every address that is not free.
    pub(super) fn new(
        objects: &BTreeMap<String, PoolObject>,
        taken: impl Iterator<Item = IpAddr>,
    ) -> Self {
        let mut by_age: Vec<&PoolObject> = objects.values().collect();
        by_age.sort_by_key(|object| (object.created, &object.name));
        let mut pools: Vec<Pool> = Vec::new();
        for object in by_age {
            let mut pool = Pool::new(object);
            cede(&mut pool, &pools);
            pools.push(pool);
        }
        pools.sort_by(|a, b| {
            let order = |pool: &Pool| (!pool.is_pinned(), std::cmp::Reverse(pool.spec.priority));
            (order(a), &a.name).cmp(&(order(b), &b.name))
        });
        let mut all = Self {
            ranges: BTreeMap::new(),
            pools,
        };
        for (index, pool) in all.pools.iter().enumerate() {
            for range in &pool.ranges {
                let key = (Family::of(range.first()), number(range.first()));
                all.ranges.insert(key, (number(range.last()), index));
            }
        }
        taken.for_each(|address| all.take(address));
        all
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The pool that an address is in.
    pub(super) fn of(&self, address: IpAddr) -> Option<&Pool> {
        self.pools.get(self.index_of(address)?)
    }

    pub(super) fn take(&mut self, address: IpAddr) {
        if let Some(pool) = self
            .index_of(address)
            .and_then(|index| self.pools.get_mut(index))
        {
            pool.take(address);
        }
    }

    pub(super) fn give_back(&mut self, address: IpAddr) {
        if let Some(pool) = self
            .index_of(address)
            .and_then(|index| self.pools.get_mut(index))
        {
            pool.give_back(address);
        }
    }

    fn index_of(&self, address: IpAddr) -> Option<usize> {
        let (family, number) = (Family::of(address), number(address));
        let ((found, _), (last, index)) = self.ranges.range(..=(family, number)).next_back()?;
        (*found == family && *last >= number).then_some(*index)
    }
}

/// Take out of a pool what older ones have, and what it names twice itself.
fn cede(pool: &mut Pool, older: &[Pool]) {
    let mut kept: Vec<AddressRange> = Vec::new();
    for range in std::mem::take(&mut pool.ranges) {
        let mut rest = vec![range];
        let own = kept.iter().map(|other| (pool.name.as_str(), other));
        let theirs = older
            .iter()
            .flat_map(|pool| pool.ranges.iter().map(|other| (pool.name.as_str(), other)));
        for (owner, other) in own
            .chain(theirs)
            .filter(|(_, other)| other.overlaps(&range))
        {
            rest = rest.iter().flat_map(|part| without(part, other)).collect();
            let whose = if owner == pool.name {
                "this pool itself"
            } else {
                owner
            };
            pool.problems.push(Problem::Overlap(format!(
                "{range} overlaps {other} of {whose}"
            )));
        }
        kept.extend(rest);
    }
    pool.ranges = kept;
}

/// What is left of a range.
fn without(range: &AddressRange, other: &AddressRange) -> Vec<AddressRange> {
    if !range.overlaps(other) {
        return vec![*range];
    }
    let family = Family::of(range.first());
    let before = number(other.first())
        .checked_sub(1)
        .and_then(|last| address(family, last));
    let after = number(other.last())
        .checked_add(1)
        .and_then(|first| address(family, first));
    let left = before.and_then(|last| AddressRange::new(range.first(), last));
    let right = after.and_then(|first| AddressRange::new(first, range.last()));
    left.into_iter().chain(right).collect()
}

#[cfg(test)]
mod tests;
