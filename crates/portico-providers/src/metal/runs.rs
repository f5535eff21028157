//! Which addresses of a pool are taken, as runs of neighbours: the first free one is found without
//! looking at the others.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Family;

/// Taken numbers, from first to last of each run. Runs do not touch each other, but for what was
/// given back between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<u128, u128>,
    /// Numbers that end in 0 or 255 are never free; they belong to the run beside them.
    avoid: bool,
}

impl Runs {
    pub(super) fn new(avoid: bool) -> Self {
        Self {
            runs: BTreeMap::new(),
            avoid,
        }
    }

    pub(super) fn insert(&mut self, number: u128) {
        let (mut first, mut last) = (number, number);
        while let Some(before) = first.checked_sub(1).filter(|before| self.avoids(*before)) {
            first = before;
        }
        while let Some(after) = last.checked_add(1).filter(|after| self.avoids(*after)) {
            last = after;
        }
        while let Some((&start, &end)) = self.runs.range(..=last.saturating_add(1)).next_back()
            && end.saturating_add(1) >= first
        {
            self.runs.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.runs.insert(first, last);
    }

    pub(super) fn remove(&mut self, number: u128) {
        let Some((&start, &end)) = self
            .runs
            .range(..=number)
            .next_back()
            .filter(|(_, end)| **end >= number)
        else {
            return;
        };
        self.runs.remove(&start);
        if start < number {
            self.runs.insert(start, number - 1);
        }
        if number < end {
            self.runs.insert(number + 1, end);
        }
    }

    /// The first free number that is not below `from`.
    pub(super) fn next_free(&self, from: u128) -> Option<u128> {
        let mut number = from;
        loop {
            match self.runs.range(..=number).next_back() {
                Some((_, &end)) if end >= number => number = end.checked_add(1)?,
                _ if self.avoids(number) => number = number.checked_add(1)?,
                _ => return Some(number),
            }
        }
    }

    fn avoids(&self, number: u128) -> bool {
        self.avoid && is_buggy(number)
    }
}

/// Ends in .0 or .255.
pub(super) fn is_buggy(number: u128) -> bool {
    matches!(number & 0xff, 0 | 0xff)
}

pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// `None` for a number that no IPv4 address has.
pub(super) fn address(family: Family, number: u128) -> Option<IpAddr> {
    match family {
        Family::V4 => u32::try_from(number)
            .ok()
            .map(|bits| Ipv4Addr::from_bits(bits).into()),
        Family::V6 => Some(Ipv6Addr::from_bits(number).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_full_front_is_one_run() {
        let mut runs = Runs::new(true);
        for number in (0x0a00_0000..0x0a01_0000).filter(|number| !is_buggy(*number)) {
            assert_eq!(runs.next_free(0x0a00_0000), Some(number));
            runs.insert(number);
        }
        assert_eq!(runs.runs.len(), 1);
        runs.remove(0x0a00_1234);
        assert_eq!(runs.next_free(0x0a00_0000), Some(0x0a00_1234));
    }

    proptest! {
        #[test]
        fn as_a_set_would_have_it(steps in prop::collection::vec((any::<bool>(), 0_u128..600), 1..200), avoid: bool) {
            let (mut runs, mut taken) = (Runs::new(avoid), BTreeSet::new());
            for (insert, number) in steps {
                if avoid && is_buggy(number) {
                    continue;
                }
                match insert {
                    true => { runs.insert(number); taken.insert(number); }
                    false => if taken.remove(&number) { runs.remove(number) },
                }
                for from in [0, 255, 300] {
                    let wanted = (from..).find(|number| !(taken.contains(number) || avoid && is_buggy(*number)));
                    prop_assert_eq!(runs.next_free(from), wanted);
                }
            }
        }
    }
}
