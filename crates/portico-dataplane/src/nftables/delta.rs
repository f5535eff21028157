//! Elements that come and go in one batch, with what cancels out taken out.

use super::element::Element;
use super::rules::Class;
use std::cmp::Ordering;

/// What a change does to one family. Parts of a change may add what another part removes: only the
/// outcome is sent.
#[derive(Debug, Default)]
pub struct Delta {
    pub removed: Vec<Element>,
    pub added: Vec<Element>,
    /// Classes that had no chain before.
    pub classes: Vec<Class>,
    /// Classes whose chain goes.
    pub dropped: Vec<Class>,
}

impl Delta {
    /// The class has a chain from now on.
    pub fn add_chain(&mut self, class: Class) {
        if !take_out(&mut self.dropped, class) {
            self.classes.push(class);
        }
    }

    /// The class has a chain no longer.
    pub fn drop_chain(&mut self, class: Class) {
        if !take_out(&mut self.classes, class) {
            self.dropped.push(class);
        }
    }

    /// Take out what is both removed and added, and bring the rest into the order of its sets.
    pub fn settle(&mut self) {
        self.removed.sort_unstable();
        self.added.sort_unstable();
        if !self.removed.is_empty() && !self.added.is_empty() {
            (self.removed, self.added) = differences(&self.removed, &self.added);
        }
    }
}

fn take_out(classes: &mut Vec<Class>, class: Class) -> bool {
    let place = classes.iter().position(|other| *other == class);
    place.map(|place| classes.swap_remove(place)).is_some()
}

/// What only the first has, and what only the second has, of two sorted lists.
pub(super) fn differences(
    mut first: &[Element],
    mut second: &[Element],
) -> (Vec<Element>, Vec<Element>) {
    let (mut only_first, mut only_second) = (Vec::new(), Vec::new());
    while let ([a, rest_of_first @ ..], [b, rest_of_second @ ..]) = (first, second) {
        match a.cmp(b) {
            Ordering::Equal => (first, second) = (rest_of_first, rest_of_second),
            Ordering::Less => {
                only_first.push(a.clone());
                first = rest_of_first;
            }
            Ordering::Greater => {
                only_second.push(b.clone());
                second = rest_of_second;
            }
        }
    }
    only_first.extend_from_slice(first);
    only_second.extend_from_slice(second);
    (only_first, only_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(numbers: &[u8]) -> Vec<Element> {
        numbers
            .iter()
            .map(|n| Element::ClusterIp([10, 0, 0, *n].into()))
            .collect()
    }

    #[test]
    fn only_the_outcome_remains() {
        type Case = [&'static [u8]; 4];
        let cases: [Case; 5] = [
            [&[], &[], &[], &[]],
            [&[1, 2], &[2, 1], &[], &[]],
            [&[1, 2], &[2, 3], &[1], &[3]],
            [&[5, 5], &[5], &[5], &[]],
            [&[], &[9, 8], &[], &[8, 9]],
        ];
        for [removed, added, gone, come] in cases {
            let mut delta = Delta {
                removed: elements(removed),
                added: elements(added),
                ..Delta::default()
            };
            delta.settle();
            assert_eq!(
                (delta.removed, delta.added),
                (elements(gone), elements(come))
            );
        }
    }

    #[test]
    fn a_chain_that_comes_and_goes_is_not_sent() {
        let [a, b, c] = [1, 2, 3].map(|endpoints| Class {
            endpoints,
            affinity: None,
        });
        let mut delta = Delta::default();
        [a, b].into_iter().for_each(|class| delta.add_chain(class));
        [b, c].into_iter().for_each(|class| delta.drop_chain(class));
        assert_eq!((&delta.classes, &delta.dropped), (&vec![a], &vec![c]));
        delta.add_chain(c);
        delta.drop_chain(a);
        assert!(delta.classes.is_empty() && delta.dropped.is_empty());
    }
}
