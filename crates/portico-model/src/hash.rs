//! Hash maps of what every change looks up, mostly by name. The hash of the standard library
//! withstands an attacker who chooses the keys, and takes ten times as long. This one has a seed of
//! its own in each process, which is enough: a user who may write thousands of Services has simpler
//! ways to be a burden.
//!
//! Beside them, the one hash ([`stable`]) that is the same in every process and every version.

use fnv::FnvHasher;
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::Hasher;

/// A map with a seed of its own in each process.
pub type Map<K, V> = HashMap<K, V, RandomState>;
/// A set with a seed of its own in each process.
pub type Set<K> = HashSet<K, RandomState>;

/// FNV-1a, for what is compared with what another process, or an older version, has written down.
pub fn stable(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stable_hash_is_the_published_one() {
        assert_eq!(stable(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
