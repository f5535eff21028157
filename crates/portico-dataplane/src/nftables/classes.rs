//! Numbers of classes. A class that no pool uses any more keeps its number and chain until the
//! number is needed: they cost nothing, and it is likely to be used again.

use super::delta::Delta;
use super::element::Element;
use super::number::{CLASSES, Number};
use super::rules::Class;
use crate::ApplyError;
use portico_model::hash::Map;
use std::sync::Arc;

/// The most classes with affinity: many Services with as many different timeouts leave room for
/// those without.
pub(super) const STICKY: usize = CLASSES / 2;

#[derive(Default)]
pub(super) struct Classes {
    /// By number; zero is not used, so that no packet's number is zero.
    entries: Vec<Option<Entry>>,
    numbers: Map<Class, u32>,
}

struct Entry {
    class: Class,
    users: u32,
}

impl Classes {
    /// The class has this number in the kernel.
    pub(super) fn adopt(&mut self, number: u32, class: Class) {
        let place = number as usize;
        if place == 0 || place >= CLASSES || self.numbers.contains_key(&class) {
            return;
        }
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, || None);
        }
        if let Some(entry @ None) = self.entries.get_mut(place) {
            *entry = Some(Entry { class, users: 0 });
            self.numbers.insert(class, number);
        }
    }

    /// Counts one more pool of this class, which is made if it is the first.
    pub(super) fn acquire(&mut self, class: Class, delta: &mut Delta) -> Result<u32, ApplyError> {
        let number = match self.numbers.get(&class) {
            Some(number) => *number,
            None => self.create(class, delta)?,
        };
        if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
            entry.users += 1;
        }
        Ok(number)
    }

    pub(super) fn release(&mut self, number: u32) {
        if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Class)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(number, entry)| Some((number as u32, entry.as_ref()?.class)))
    }

    /// Whether all of these, which have affinity, can be acquired.
    pub(super) fn has_room(&self, wanted: &[Class]) -> bool {
        let new = wanted
            .iter()
            .filter(|class| !self.numbers.contains_key(class))
            .count();
        let sticky = || {
            self.entries
                .iter()
                .flatten()
                .filter(|entry| entry.class.affinity.is_some())
        };
        let idle = sticky()
            .filter(|entry| entry.users == 0 && !wanted.contains(&entry.class))
            .count();
        new <= idle + STICKY.saturating_sub(sticky().count())
    }

    fn create(&mut self, class: Class, delta: &mut Delta) -> Result<u32, ApplyError> {
        let place = self.free_place(&class)?;
        if self.entries.len() <= place {
            self.entries.resize_with(place + 1, || None);
        }
        let number = place as u32;
        if let Some(old) = self
            .entries
            .get_mut(place)
            .and_then(|entry| entry.replace(Entry { class, users: 0 }))
        {
            self.numbers.remove(&old.class);
            delta.removed.push(element(number, &old.class));
            delta.drop_chain(old.class);
        }
        self.numbers.insert(class, number);
        delta.added.push(element(number, &class));
        delta.add_chain(class);
        Ok(number)
    }

    /// A number that no class has, else one whose class is unused.
    fn free_place(&self, class: &Class) -> Result<usize, ApplyError> {
        let sticky = class.affinity.is_some();
        let full = sticky
            && self
                .numbers
                .keys()
                .filter(|known| known.affinity.is_some())
                .count()
                >= STICKY;
        if !full && self.numbers.len() < CLASSES - 1 {
            let unused = self.entries.iter().skip(1).position(Option::is_none);
            return Ok(unused.map_or(self.entries.len().max(1), |place| place + 1));
        }
        let idle = |entry: &Option<Entry>| {
            entry
                .as_ref()
                .is_some_and(|entry| entry.users == 0 && (!full || entry.class.affinity.is_some()))
        };
        self.entries.iter().position(idle).ok_or_else(|| {
            ApplyError::Limit(format!(
                "more than {} numbers of endpoints and affinity timeouts",
                CLASSES - 1
            ))
        })
    }
}

pub(super) fn element(number: u32, class: &Class) -> Element {
    Element::Class {
        class: Number::class(number),
        chain: Arc::from(class.chain_name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nftables::rules::Affinity;

    fn class(endpoints: u32) -> Class {
        Class {
            endpoints,
            affinity: None,
        }
    }

    #[test]
    fn numbers_are_shared_kept_and_reused_when_all_are_taken() {
        let (mut classes, mut delta) = (Classes::default(), Delta::default());
        assert_eq!(classes.acquire(class(1), &mut delta).unwrap(), 1);
        assert_eq!(classes.acquire(class(1), &mut delta).unwrap(), 1);
        for endpoints in 2..CLASSES as u32 {
            assert_eq!(
                classes.acquire(class(endpoints), &mut delta).unwrap(),
                endpoints
            );
        }
        assert_eq!(delta.classes.len(), CLASSES - 1);
        assert!(matches!(
            classes.acquire(class(9999), &mut delta),
            Err(ApplyError::Limit(_))
        ));
        classes.release(1);
        assert!(
            classes.acquire(class(9999), &mut delta).is_err(),
            "still has a user"
        );
        classes.release(1);
        assert_eq!(classes.acquire(class(9999), &mut delta).unwrap(), 1);
        assert_eq!(delta.removed, [element(1, &class(1))]);
    }

    #[test]
    fn affinity_leaves_room_for_what_has_none() {
        let (mut classes, mut delta) = (Classes::default(), Delta::default());
        let sticky = |seconds| Class {
            endpoints: 1,
            affinity: Some(Affinity {
                seconds,
                local: false,
            }),
        };
        for seconds in 1..=STICKY as u32 {
            assert!(classes.has_room(&[sticky(seconds)]));
            classes.acquire(sticky(seconds), &mut delta).unwrap();
        }
        let new = [sticky(90_000), sticky(90_001)];
        assert!(classes.has_room(&[sticky(1)]) && !classes.has_room(&new[..1]));
        assert!(classes.acquire(new[0], &mut delta).is_err());
        for endpoints in 1..STICKY as u32 {
            classes.acquire(class(endpoints), &mut delta).unwrap();
        }
        let number = classes.acquire(sticky(1), &mut delta).unwrap();
        classes.release(number);
        classes.release(number);
        assert!(
            classes.has_room(&new[..1])
                && !classes.has_room(&new)
                && !classes.has_room(&[sticky(1), new[0]])
        );
        assert_eq!(classes.acquire(new[0], &mut delta).unwrap(), number);
    }

    #[test]
    fn adopted_numbers_are_not_given_away() {
        let (mut classes, mut delta) = (Classes::default(), Delta::default());
        classes.adopt(1, class(7));
        classes.adopt(3, class(8));
        classes.adopt(1, class(9));
        classes.adopt(0, class(10));
        classes.adopt(CLASSES as u32, class(11));
        assert_eq!(classes.acquire(class(7), &mut delta).unwrap(), 1);
        assert_eq!(classes.acquire(class(9), &mut delta).unwrap(), 2);
        assert_eq!(classes.acquire(class(10), &mut delta).unwrap(), 4);
        assert_eq!(delta.classes, [class(9), class(10)]);
    }
}
