//! Rendezvous hashing: every node has a score for every address, and the highest of those that can
//! has it. When a node comes or goes, only the addresses that it has the highest score for move.

use fnv::FnvHasher;
use std::fmt;
use std::hash::Hasher;
use std::net::IpAddr;

/// A node, by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The id of the node with this name.
    pub fn of(name: &str) -> Self {
        Self(hash(name.as_bytes()))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A hash that is the same on every node and in every version (FNV-1a, mixed).
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    mix(hasher.finish())
}

/// The hash of an address that ranks nodes for it, the same on every node.
pub fn hash_address(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => hash(&address.octets()),
        IpAddr::V6(address) => hash(&address.octets()),
    }
}

/// How much a node is to have an address, of which the hash is given. Never the same for two nodes.
pub fn score(address: u64, node: NodeId) -> (u64, NodeId) {
    (mix(address ^ node.0.rotate_left(32)), node)
}

/// Who of these nodes is to have an address, of which the hash is given.
pub fn first(address: u64, nodes: impl IntoIterator<Item = NodeId>) -> Option<NodeId> {
    nodes.into_iter().max_by_key(|node| score(address, *node))
}

/// The finalizer of SplitMix64: every bit of the input changes half of the output.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn owners(nodes: &[NodeId]) -> Vec<NodeId> {
        let owner = |n: u32| {
            let address = hash_address(Ipv4Addr::from(0x0a00_0000 + n).into());
            first(address, nodes.iter().copied()).unwrap()
        };
        (0..10_000).map(owner).collect()
    }

    fn nodes(count: usize) -> Vec<NodeId> {
        (0..count)
            .map(|n| NodeId::of(&format!("node-{n}")))
            .collect()
    }

    #[test]
    fn addresses_spread_evenly() {
        for count in [2, 3, 7, 20] {
            let (nodes, mut shares) = (nodes(count), vec![0; count]);
            for owner in owners(&nodes) {
                shares[nodes.iter().position(|node| *node == owner).unwrap()] += 1;
            }
            let fair = 10_000 / count;
            assert!(
                shares
                    .iter()
                    .all(|share| (fair * 8 / 10..=fair * 12 / 10).contains(share)),
                "{shares:?}"
            );
        }
    }

    #[test]
    fn who_comes_or_goes_moves_its_share_and_nothing_else() {
        let all = nodes(5);
        let (with, without) = (owners(&all), owners(&all[..4]));
        for (with, without) in with.iter().zip(&without) {
            assert!(with == without || *with == all[4]);
        }
    }

    #[test]
    fn hashes_are_the_same_in_every_version() {
        assert_eq!(NodeId::of("node-1"), NodeId(0x1395_0d4e_f307_e655));
        assert_eq!(
            hash_address("192.0.2.1".parse().unwrap()),
            0x1e00_e9a1_2f82_49cb
        );
    }
}
