//! Which node has which slot: a pure function of the nodes and the endpoints that each of them has.
//!
//! Each endpoint of a node bids for every slot, with numbers that follow from the node's name
//! alone, and the slot goes to the node with the highest bid. So a node that comes takes slots from
//! all others, and one that goes leaves its slots to the others, and nothing else moves. Left to
//! chance a node would have too much or too little; no node gets more than its share and a bit
//! ([`SLACK`]), and one that has less takes from those that have the most. Balancing exactly would
//! move more slots at each change (design/0040 has the figures).

use crate::hash;
use std::cmp::Reverse;
use std::sync::Arc;

/// So many slots has each port of a Service. A prime, so that no pattern in the hash matters. Fewer
/// would be balanced less well and more would move at a change; each takes about 60 bytes of the
/// kernel's memory on every node.
pub const SLOTS: u16 = 509;

/// A node may have so many slots more or fewer than its exact share: less than 1% of all.
const SLACK: u32 = SLOTS as u32 / 100;

/// Nodes beyond this would have too few slots each to be balanced.
pub const MOST_NODES: usize = 64;

/// About so many endpoints bid at most; the balance is by their true number.
const MOST_BIDS: u64 = 64;

/// For each slot the position of its node in `nodes`, which are sorted by name, with the number of
/// endpoints that each of them has. `None` where there are no endpoints, or too many nodes.
pub fn assign(nodes: &[(Arc<str>, u32)]) -> Option<Arc<[u16]>> {
    let total: u64 = nodes.iter().map(|(_, weight)| u64::from(*weight)).sum();
    if total == 0 || nodes.len() > MOST_NODES {
        return None;
    }
    if let [_] = nodes {
        return Some(vec![0; usize::from(SLOTS)].into());
    }
    let mut slots = Slots::new(nodes, total);
    let bids = bids(nodes, total);
    bids.iter().for_each(|bid| slots.give(bid));
    bids.iter().for_each(|bid| slots.level(bid));
    slots.owners.into_iter().collect()
}

/// What a node bids for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bid {
    height: u64,
    slot: u16,
    node: u16,
}

/// The highest first.
fn bids(nodes: &[(Arc<str>, u32)], total: u64) -> Vec<Bid> {
    let mut bids = Vec::new();
    for (node, (name, weight)) in nodes.iter().enumerate() {
        let name = hash::stable(name.as_bytes());
        for number in 0..bidders(*weight, total) {
            let seed = scatter(name ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            // Steps of a constant fill a range more evenly than random numbers do.
            let (step, start) = (scatter(seed) | 1, scatter(!seed));
            bids.extend((0..SLOTS).map(|slot| Bid {
                height: start.wrapping_add(step.wrapping_mul(slot.into())),
                slot,
                node: node as u16,
            }));
        }
    }
    bids.sort_unstable_by_key(|bid| Reverse(*bid));
    bids
}

/// How many endpoints of a node bid. Where there are too many, every second of them does, or every
/// fourth, so that a change of their number hardly ever changes how many others bid.
fn bidders(weight: u32, total: u64) -> u64 {
    let every = total.div_ceil(MOST_BIDS).next_power_of_two();
    u64::from(weight).div_ceil(every)
}

/// The finalizer of SplitMix64: near numbers become far ones.
fn scatter(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

struct Slots {
    owners: Vec<Option<u16>>,
    nodes: Vec<Share>,
}

/// Of one node.
#[derive(Clone, Copy, Default)]
struct Share {
    has: u32,
    least: u32,
    exact: u32,
    most: u32,
}

impl Slots {
    fn new(nodes: &[(Arc<str>, u32)], total: u64) -> Self {
        let share = |(_, weight): &(Arc<str>, u32)| {
            let of_all = u64::from(SLOTS) * u64::from(*weight);
            let (down, up) = ((of_all / total) as u32, of_all.div_ceil(total) as u32);
            Share {
                has: 0,
                // What has endpoints has a slot, also where it is one of very many.
                least: up.saturating_sub(SLACK).max(1),
                exact: down,
                most: down + SLACK,
            }
        };
        Self {
            owners: vec![None; usize::from(SLOTS)],
            nodes: nodes.iter().map(share).collect(),
        }
    }

    /// A slot that nobody has goes to a node that may have more.
    fn give(&mut self, bid: &Bid) {
        let free = self.owners.get_mut(usize::from(bid.slot));
        let node = self.nodes.get_mut(usize::from(bid.node));
        if let (Some(owner @ None), Some(node)) = (free, node)
            && node.has < node.most
        {
            node.has += 1;
            *owner = Some(bid.node);
        }
    }

    /// A node with too little takes a slot from one that has more than its share.
    fn level(&mut self, bid: &Bid) {
        let Some(Some(owner)) = self.owners.get(usize::from(bid.slot)).copied() else {
            return;
        };
        let share = |node: u16| {
            self.nodes
                .get(usize::from(node))
                .copied()
                .unwrap_or_default()
        };
        let (poor, rich) = (share(bid.node), share(owner));
        if poor.has >= poor.least || rich.has <= rich.exact {
            return;
        }
        for (node, change) in [(owner, -1), (bid.node, 1)] {
            if let Some(share) = self.nodes.get_mut(usize::from(node)) {
                share.has = share.has.saturating_add_signed(change);
            }
        }
        if let Some(place) = self.owners.get_mut(usize::from(bid.slot)) {
            *place = Some(bid.node);
        }
    }
}

#[cfg(test)]
mod tests;
