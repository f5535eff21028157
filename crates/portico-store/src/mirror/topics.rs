//! The change logs, one per topic, and their watchers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::delivery::{Delivery, TopicWatchers};
use crate::types::topic_of;
use crate::{Event, Revision};

/// A batch for one watcher has about so many events: it is only exceeded to finish a revision.
const BATCH: usize = 256;

/// There are as many topics as kinds of objects, so they are never removed.
#[derive(Default)]
pub(super) struct Topics(HashMap<Box<str>, Topic>);

struct Topic {
    log: VecDeque<Arc<Event>>,
    /// The revision of the last event that was dropped from the log.
    dropped: Revision,
    watchers: Arc<TopicWatchers>,
}

/// The watchers of the topics that changed, each once, to be used after the lock is gone.
#[derive(Default)]
pub(super) struct Woken(Vec<Arc<TopicWatchers>>);

impl Woken {
    fn add(&mut self, watchers: &Arc<TopicWatchers>) {
        if !self.0.iter().any(|known| Arc::ptr_eq(known, watchers)) {
            self.0.push(Arc::clone(watchers));
        }
    }

    /// Wakes all of them. The writer waits for what is returned.
    pub(super) fn wake(self) -> Arc<Delivery> {
        let delivery = Arc::new(Delivery::of(
            self.0.iter().map(|watchers| watchers.waiting()).sum(),
        ));
        self.0.iter().for_each(|watchers| watchers.wake(&delivery));
        delivery
    }
}

impl Topics {
    pub(super) fn append(&mut self, event: Arc<Event>, compacted: Revision, woken: &mut Woken) {
        let Some(name) = topic_of(&event.key) else {
            return;
        };
        let topic = self.topic(name, compacted);
        woken.add(&topic.watchers);
        topic.log.push_back(event);
    }

    /// Drops the oldest event of all, which is also the oldest of its topic.
    pub(super) fn forget(&mut self, event: &Event) {
        if let Some(topic) = topic_of(&event.key).and_then(|name| self.0.get_mut(name)) {
            topic.log.pop_front();
            topic.dropped = event.revision;
        }
    }

    pub(super) fn forget_all(&mut self, revision: Revision) {
        for topic in self.0.values_mut() {
            topic.log = VecDeque::new();
            topic.dropped = revision;
        }
    }

    pub(super) fn subscribe(&mut self, name: &str, compacted: Revision) -> Arc<TopicWatchers> {
        Arc::clone(&self.topic(name, compacted).watchers)
    }

    /// What happened under `prefix` after `position`, and whether there is more. `None` if some of
    /// it was dropped.
    pub(super) fn events(
        &self,
        prefix: &str,
        position: Revision,
    ) -> Option<(Vec<Arc<Event>>, bool)> {
        let mut events: Vec<Arc<Event>> = Vec::new();
        let Some(topic) = self.of(prefix) else {
            return Some((events, false));
        };
        if position < topic.dropped {
            return None;
        }
        let start = topic
            .log
            .partition_point(|event| event.revision <= position);
        for event in topic
            .log
            .range(start..)
            .filter(|event| event.key.starts_with(prefix))
        {
            let inside_revision = events
                .last()
                .is_none_or(|last| last.revision == event.revision);
            if events.len() >= BATCH && !inside_revision {
                return Some((events, true));
            }
            events.push(event.clone());
        }
        Some((events, false))
    }

    /// The revision of the newest event in the topic of `prefix`, dropped or not.
    pub(super) fn newest(&self, prefix: &str) -> Revision {
        let newest = |topic: &Topic| {
            topic
                .log
                .back()
                .map_or(topic.dropped, |event| event.revision)
        };
        self.of(prefix).map_or(0, newest)
    }

    pub(super) fn all(&self) -> Woken {
        Woken(
            self.0
                .values()
                .map(|topic| Arc::clone(&topic.watchers))
                .collect(),
        )
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.values().map(|topic| topic.log.len()).sum()
    }

    fn of(&self, prefix: &str) -> Option<&Topic> {
        topic_of(prefix).and_then(|name| self.0.get(name))
    }

    fn topic(&mut self, name: &str, compacted: Revision) -> &mut Topic {
        let new = || Topic {
            log: VecDeque::new(),
            dropped: compacted,
            watchers: Arc::default(),
        };
        self.0.entry(name.into()).or_insert_with(new)
    }
}
