//! The mirror's contents and the rules that change them: plain data, no lock, no clock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::chain::{Chain, Version};
use super::history::{self, HistoryLimits, Past};
use super::topics::{Topics, Woken};
use super::{Batch, Change, Commit, Subscription};
use crate::types::topic_of;
use crate::{Entry, Event, Range, RangeResult, ReadError, Revision, WatchError};

pub(super) struct State {
    revision: Revision,
    compacted: Revision,
    /// Counts the times the contents were replaced as a whole; watchers from before cannot go on.
    generation: u64,
    keys: BTreeMap<Arc<str>, Chain>,
    topics: Topics,
    /// All events of all topics, oldest first, with the time they came.
    past: VecDeque<(Instant, Arc<Event>)>,
    past_bytes: usize,
    limits: HistoryLimits,
}

impl State {
    pub(super) fn new(
        revision: Revision,
        entries: impl IntoIterator<Item = Entry>,
        limits: HistoryLimits,
    ) -> Self {
        let keys = entries
            .into_iter()
            .map(|entry| (entry.key.clone(), Chain::new(version(&entry))))
            .collect();
        Self {
            revision,
            compacted: revision,
            generation: 0,
            keys,
            topics: Topics::default(),
            past: VecDeque::new(),
            past_bytes: 0,
            limits,
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(super) fn get(&self, key: &str) -> Option<Entry> {
        let (key, chain) = self.keys.get_key_value(key)?;
        entry(key, chain.newest())
    }

    pub(super) fn get_at(&self, key: &str, at: Revision) -> Result<Option<Entry>, ReadError> {
        self.readable(at)?;
        let found = self.keys.get_key_value(key);
        Ok(found.and_then(|(key, chain)| entry(key, chain.at(at)?)))
    }

    pub(super) fn range(&self, range: Range<'_>) -> Result<RangeResult, ReadError> {
        let mut found = self.found(range)?;
        let entries: Vec<Entry> = first(&mut found, range.limit).collect();
        let remaining = found.count();
        Ok(RangeResult {
            entries,
            revision: range.at.unwrap_or(self.revision),
            more: remaining > 0,
            remaining,
        })
    }

    /// The same without a count of what remains, which would cost a look at all of it.
    pub(super) fn page(&self, range: Range<'_>) -> Result<(Vec<Entry>, bool), ReadError> {
        let mut found = self.found(range)?;
        let entries = first(&mut found, range.limit).collect();
        Ok((entries, found.next().is_some()))
    }

    /// The keys of a range that existed then, whatever its limit.
    fn found<'a>(
        &'a self,
        range: Range<'a>,
    ) -> Result<impl Iterator<Item = (&'a Arc<str>, &'a Version)>, ReadError> {
        let at = range.at.unwrap_or(self.revision);
        self.readable(at)?;
        let start = match range.after {
            Some(after) if after >= range.prefix => Bound::Excluded(after),
            _ => Bound::Included(range.prefix),
        };
        let found = self
            .keys
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(range.prefix));
        Ok(found.filter_map(move |(key, chain)| {
            chain
                .at(at)
                .filter(|version| version.value.is_some())
                .map(|version| (key, version))
        }))
    }

    fn readable(&self, at: Revision) -> Result<(), ReadError> {
        if at < self.compacted {
            return Err(ReadError::Compacted {
                compacted: self.compacted,
            });
        }
        if at > self.revision {
            return Err(ReadError::Future {
                revision: at,
                current: self.revision,
            });
        }
        Ok(())
    }

    /// Takes over a commit, if it is new.
    pub(super) fn apply(&mut self, commit: Commit, now: Instant, woken: &mut Woken) {
        if commit.revision <= self.revision {
            return;
        }
        self.revision = commit.revision;
        for change in commit.changes {
            if let Some(event) = self.change(commit.revision, change) {
                self.remember(event, now, woken);
            }
        }
        if let Some(revision) = self.due(now) {
            self.compact(revision);
        }
    }

    fn change(&mut self, revision: Revision, change: Change) -> Option<Event> {
        let known = self
            .keys
            .get_key_value(&*change.key)
            .map(|(key, chain)| (key.clone(), entry(key, chain.newest())));
        let (key, before) = known.unwrap_or((change.key, None));
        let now = change.now.map(|entry| Entry {
            key: key.clone(),
            ..entry
        });
        if now.is_none() && before.is_none() {
            return None;
        }
        let grave = Version {
            created: 0,
            modified: revision,
            value: None,
        };
        self.push(key.clone(), now.as_ref().map_or(grave, version));
        Some(Event {
            revision,
            key,
            now,
            before,
            cache: OnceLock::new(),
        })
    }

    fn push(&mut self, key: Arc<str>, version: Version) {
        match self.keys.get_mut(&key) {
            Some(chain) => chain.push(version),
            None => drop(self.keys.insert(key, Chain::new(version))),
        }
    }

    fn remember(&mut self, event: Event, now: Instant, woken: &mut Woken) {
        let event = Arc::new(event);
        self.past_bytes += history::weight(&event);
        self.past.push_back((now, event.clone()));
        self.topics.append(event, self.compacted, woken);
    }

    /// The revision that the limits say to compact at now.
    pub(super) fn due(&self, now: Instant) -> Option<Revision> {
        let past = self.past.iter().map(|(at, event)| Past {
            revision: event.revision,
            at: *at,
            bytes: history::weight(event),
        });
        history::due(past, self.past_bytes, now, self.limits, self.revision)
    }

    /// Forgets what can only be seen by reading before `revision` or watching from before it.
    pub(super) fn compact(&mut self, revision: Revision) {
        let revision = revision.min(self.revision);
        self.compacted = self.compacted.max(revision);
        while let Some((_, event)) = self
            .past
            .pop_front_if(|(_, event)| event.revision <= revision)
        {
            self.past_bytes = self.past_bytes.saturating_sub(history::weight(&event));
            self.topics.forget(&event);
            let forgotten = self
                .keys
                .get_mut(&event.key)
                .is_some_and(|chain| chain.forget_before(event.revision));
            if forgotten {
                self.keys.remove(&event.key);
            }
        }
    }

    /// True if the entries are exactly what the mirror shows now.
    pub(super) fn shows(&self, entries: &[Entry]) -> bool {
        let now = self
            .keys
            .iter()
            .filter_map(|(key, chain)| entry(key, chain.newest()));
        now.map(|entry| (entry.key, entry.modified)).eq(entries
            .iter()
            .map(|entry| (entry.key.clone(), entry.modified)))
    }

    /// Starts again from other contents: there is no history, and no watch from before can go on.
    pub(super) fn replace(&mut self, revision: Revision, entries: Vec<Entry>) {
        let mut topics = std::mem::take(&mut self.topics);
        topics.forget_all(revision);
        let generation = self.generation + 1;
        *self = Self {
            topics,
            generation,
            ..Self::new(revision, entries, self.limits)
        };
    }

    pub(super) fn subscribe(
        &mut self,
        prefix: &str,
        from: Revision,
    ) -> Result<Subscription, ReadError> {
        let name = topic_of(prefix).ok_or_else(|| ReadError::Prefix {
            prefix: prefix.to_owned(),
        })?;
        self.readable(from)?;
        let watchers = self.topics.subscribe(name, self.compacted);
        Ok(Subscription {
            watchers,
            generation: self.generation,
        })
    }

    /// What happened under `prefix` after `position`, and the position behind it.
    pub(super) fn events(
        &self,
        prefix: &str,
        position: Revision,
        generation: u64,
    ) -> Result<Batch, WatchError> {
        let events = self
            .topics
            .events(prefix, position)
            .filter(|_| generation == self.generation);
        let (events, more) = events.ok_or(WatchError::Compacted {
            compacted: self.compacted,
        })?;
        let position = match events.last() {
            Some(last) if more => last.revision,
            _ => self.revision,
        };
        Ok(Batch { events, position })
    }

    /// Everything up to the result has been seen by a watcher at `position`.
    pub(super) fn seen(&self, prefix: &str, position: Revision, generation: u64) -> Revision {
        let up_to_date = generation == self.generation && self.topics.newest(prefix) <= position;
        if up_to_date {
            self.revision.max(position)
        } else {
            position
        }
    }

    pub(super) fn everybody(&self) -> Woken {
        self.topics.all()
    }

    /// How many keys, events and bytes of history are held.
    #[cfg(test)]
    pub(super) fn footprint(&self) -> (usize, usize, usize) {
        (
            self.keys.len(),
            self.past.len() + self.topics.len(),
            self.past_bytes,
        )
    }
}

/// The first entries of these; all with the limit 0.
fn first<'a>(
    found: &mut impl Iterator<Item = (&'a Arc<str>, &'a Version)>,
    limit: usize,
) -> impl Iterator<Item = Entry> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    found
        .by_ref()
        .take(limit)
        .filter_map(|(key, version)| entry(key, version))
}

fn version(entry: &Entry) -> Version {
    Version {
        created: entry.created,
        modified: entry.modified,
        value: Some(entry.value.clone()),
    }
}

fn entry(key: &Arc<str>, version: &Version) -> Option<Entry> {
    let value = version.value.clone()?;
    Some(Entry {
        key: key.clone(),
        value,
        created: version.created,
        modified: version.modified,
    })
}
