//! How many ports have an address, where an element stands for all of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

#[derive(Default)]
pub(super) struct Counts(HashMap<IpAddr, u32, BuildHasherDefault<Quick>>);

impl Counts {
    /// Replaces one port's addresses, both sorted. Returns the addresses that no port had before,
    /// and those that no port has any more.
    pub(super) fn exchange(
        &mut self,
        old: &[IpAddr],
        new: &[IpAddr],
    ) -> (Vec<IpAddr>, Vec<IpAddr>) {
        let come = new
            .iter()
            .filter(|address| old.binary_search(address).is_err() && self.add(**address));
        let come = come.copied().collect();
        let gone = old
            .iter()
            .filter(|address| new.binary_search(address).is_err() && self.take(**address));
        (come, gone.copied().collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.0.keys().copied()
    }

    /// Whether it is the first.
    fn add(&mut self, address: IpAddr) -> bool {
        let count = self.0.entry(address).or_default();
        *count += 1;
        *count == 1
    }

    /// Whether it was the last.
    fn take(&mut self, address: IpAddr) -> bool {
        let Entry::Occupied(mut entry) = self.0.entry(address) else {
            return false;
        };
        *entry.get_mut() -= 1;
        let is_last = *entry.get() == 0;
        if is_last {
            entry.remove();
        }
        is_last
    }
}

/// There is an entry for each endpoint of the cluster, and they are addresses: a multiplication
/// tells them apart.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(chunk)
                .for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The map looks at the highest and the lowest bits, so every bit has to reach them.
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_comes_and_the_last_goes() {
        let [a, b, c] = [1, 2, 3].map(|n| IpAddr::from([10, 0, 0, n]));
        let mut counts = Counts::default();
        assert_eq!(counts.exchange(&[], &[a, b]), (vec![a, b], vec![]));
        assert_eq!(counts.exchange(&[], &[b, c]), (vec![c], vec![]));
        assert_eq!(counts.exchange(&[a, b], &[a]), (vec![], vec![]));
        assert_eq!(counts.exchange(&[b, c], &[a]), (vec![], vec![b, c]));
        assert_eq!(counts.addresses().collect::<Vec<_>>(), [a]);
    }

    #[test]
    fn neighbours_are_spread() {
        use std::hash::BuildHasher;
        let hash = |n: u32| BuildHasherDefault::<Quick>::default().hash_one(IpAddr::V4(n.into()));
        let low: std::collections::BTreeSet<u64> =
            (0..4096).map(|n| hash(0x0a00_0000 + n) % 4096).collect();
        assert!(low.len() > 2000, "{} of 4096 places", low.len());
    }
}
