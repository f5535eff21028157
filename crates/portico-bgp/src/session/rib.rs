//! What is wanted, what the peer has been told, and the difference. Adj-RIB-Out of RFC 4271, and
//! what is due of it.

use crate::family::{AfiSafi, PerFamily};
use crate::routes::Attributes;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `None`: that there is no route any more.
type Said = Option<Arc<Attributes>>;

#[derive(Clone, Debug, Default)]
struct Entry {
    wanted: Said,
    told: Said,
    /// The peer asked to be told again.
    again: bool,
}

/// A prefix is due while what is wanted and what was told are not the same, and the peer can be
/// told.
#[derive(Clone, Debug, Default)]
pub(super) struct Rib {
    entries: BTreeMap<IpNet, Entry>,
    /// By what is to be said of them, so that one message says it of many. Withdrawals come first.
    due: BTreeMap<(Said, AfiSafi), BTreeSet<IpNet>>,
    /// Families that the peer can be told of, while there is a session.
    families: PerFamily<bool>,
    told: usize,
    wanted: PerFamily<usize>,
}

impl Rib {
    pub(super) fn want(&mut self, prefix: IpNet, route: Said) {
        let family = AfiSafi::of_net(&prefix);
        let entry = self.entries.entry(prefix).or_default();
        let before = std::mem::replace(&mut entry.wanted, route.clone());
        if before != route {
            remove(&mut self.due, before.clone(), prefix);
            let count = self.wanted.get_mut(family);
            *count = count.saturating_sub(before.is_some().into()) + usize::from(route.is_some());
        }
        let is_due = entry.told != route || entry.again && route.is_some();
        if is_due && *self.families.get(family) {
            self.due.entry((route, family)).or_default().insert(prefix);
        } else if entry.wanted.is_none() && entry.told.is_none() {
            self.entries.remove(&prefix);
        }
    }

    pub(super) fn want_nothing(&mut self) {
        let all: Vec<IpNet> = self.entries.keys().copied().collect();
        all.into_iter().for_each(|prefix| self.want(prefix, None));
    }

    /// A session begins, in which nothing has been told.
    pub(super) fn begin(&mut self, families: PerFamily<bool>) {
        self.lost();
        self.families = families;
        for (prefix, entry) in &self.entries {
            let family = AfiSafi::of_net(prefix);
            if *families.get(family) {
                self.due
                    .entry((entry.wanted.clone(), family))
                    .or_default()
                    .insert(*prefix);
            }
        }
    }

    /// A session ended: the peer knows nothing of us.
    pub(super) fn lost(&mut self) {
        self.families = PerFamily::default();
        self.due.clear();
        self.told = 0;
        self.entries.retain(|_, entry| {
            (entry.told, entry.again) = (None, false);
            entry.wanted.is_some()
        });
    }

    /// Everything of a family is to be told again.
    pub(super) fn again(&mut self, family: AfiSafi) {
        for (prefix, entry) in &mut self.entries {
            if AfiSafi::of_net(prefix) == family && entry.wanted.is_some() {
                entry.again = true;
                self.due
                    .entry((entry.wanted.clone(), family))
                    .or_default()
                    .insert(*prefix);
            }
        }
    }

    /// Has a message written of what is to be said of some prefixes. It takes those that it had
    /// room for.
    pub(super) fn tell(
        &mut self,
        write: impl FnOnce(AfiSafi, Option<&Attributes>, &mut BTreeSet<IpNet>) -> (Vec<u8>, Vec<IpNet>),
    ) -> Option<Vec<u8>> {
        let mut first = self.due.first_entry()?;
        let (said, family) = first.key().clone();
        let (message, prefixes) = write(family, said.as_deref(), first.get_mut());
        // Should nothing have had room, nothing ever will.
        if first.get().is_empty() || prefixes.is_empty() {
            first.remove();
        }
        for prefix in prefixes {
            self.note(prefix, said.clone());
        }
        Some(message)
    }

    fn note(&mut self, prefix: IpNet, said: Said) {
        let Some(entry) = self.entries.get_mut(&prefix) else {
            return;
        };
        self.told =
            self.told.saturating_sub(entry.told.is_some().into()) + usize::from(said.is_some());
        (entry.told, entry.again) = (said, false);
        if entry.told.is_none() && entry.wanted.is_none() {
            self.entries.remove(&prefix);
        }
    }

    /// Prefixes that the peer has been told.
    pub(super) fn told(&self) -> usize {
        self.told
    }

    pub(super) fn due(&self) -> usize {
        self.due.values().map(BTreeSet::len).sum()
    }

    pub(super) fn wanted(&self, family: AfiSafi) -> usize {
        *self.wanted.get(family)
    }
}

fn remove(due: &mut BTreeMap<(Said, AfiSafi), BTreeSet<IpNet>>, said: Said, prefix: IpNet) {
    let key = (said, AfiSafi::of_net(&prefix));
    if let Some(prefixes) = due.get_mut(&key) {
        prefixes.remove(&prefix);
        if prefixes.is_empty() {
            due.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
