//! Which Service to work on next: each at most once at a time, failed ones later and later.
//!
//! However many changes touch a Service while it waits or is worked on, it is worked on once more.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use portico_client::wait::doubled;
use portico_model::key::ObjectKey;

/// How long a Service waits after its first failure, twice as long after each further one, and at
/// most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub first: Duration,
    pub last: Duration,
}

/// How the work on a Service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Failed,
    /// Nothing failed, and there is more to do after this time. What failed before is not
    /// forgotten.
    Again(Duration),
}

pub(crate) struct Queue {
    limit: usize,
    delays: Delays,
    ready: VecDeque<ObjectKey>,
    /// Everything in `ready`, and what became due again while it was worked on.
    wanted: HashSet<ObjectKey>,
    active: HashSet<ObjectKey>,
    /// One time for each Service, also in `due`.
    delayed: BTreeSet<(Instant, ObjectKey)>,
    due: HashMap<ObjectKey, Instant>,
    failures: HashMap<ObjectKey, u32>,
}

impl Queue {
    /// `limit`: how many Services may be worked on at a time.
    pub(crate) fn new(limit: usize, delays: Delays) -> Self {
        Self {
            limit: limit.max(1),
            delays,
            ready: VecDeque::new(),
            wanted: HashSet::new(),
            active: HashSet::new(),
            delayed: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, key: ObjectKey) {
        if self.wanted.insert(key.clone()) && !self.active.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Work on it then, or earlier if there is a reason.
    pub(crate) fn add_at(&mut self, key: ObjectKey, at: Instant) {
        if self.due.get(&key).is_none_or(|due| at < *due) {
            self.cancel(&key);
            self.delayed.insert((at, key.clone()));
            self.due.insert(key, at);
        }
    }

    /// The next Service to work on; `finish` has to follow.
    pub(crate) fn start(&mut self, now: Instant) -> Option<ObjectKey> {
        while self.delayed.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.due.remove(&key);
                self.add(key);
            }
        }
        if self.active.len() >= self.limit {
            return None;
        }
        let key = self.ready.pop_front()?;
        self.wanted.remove(&key);
        self.active.insert(key.clone());
        self.cancel(&key);
        Some(key)
    }

    /// Returns after how long a failed Service is tried again.
    pub(crate) fn finish(&mut self, key: ObjectKey, end: End, now: Instant) -> Option<Duration> {
        self.active.remove(&key);
        if self.wanted.contains(&key) {
            self.ready.push_back(key.clone());
        }
        let delay = match end {
            End::Done => {
                self.failures.remove(&key);
                return None;
            }
            End::Again(delay) => delay,
            End::Failed => {
                let times = self.failures.entry(key.clone()).or_default();
                let delay = doubled(self.delays.first, *times, self.delays.last);
                *times = times.saturating_add(1);
                delay
            }
        };
        self.add_at(key, now + delay);
        Some(delay)
    }

    pub(crate) fn is_active(&self, key: &ObjectKey) -> bool {
        self.active.contains(key)
    }

    /// Services that are worked on or could be.
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.active.len()
    }

    /// Services whose last work failed.
    pub(crate) fn failing(&self) -> usize {
        self.failures.len()
    }

    /// There is no such Service any more.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.cancel(key);
        self.failures.remove(key);
    }

    /// When `start` may have something to return although nothing was added or finished.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, _)| *due)
    }

    fn cancel(&mut self, key: &ObjectKey) {
        if let Some(due) = self.due.remove(key) {
            self.delayed.remove(&(due, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: Delays = Delays {
        first: Duration::from_millis(10),
        last: Duration::from_secs(60),
    };

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    #[test]
    fn many_changes_become_one_run() {
        let mut queue = Queue::new(2, DELAYS);
        let now = Instant::now();
        (0..3).for_each(|_| queue.add(key("a")));
        assert_eq!(queue.start(now), Some(key("a")));
        assert_eq!(queue.start(now), None);
    }

    #[test]
    fn a_change_during_the_run_starts_another_after_it() {
        let mut queue = Queue::new(2, DELAYS);
        let now = Instant::now();
        queue.add(key("a"));
        queue.start(now);
        queue.add(key("a"));
        assert_eq!(queue.start(now), None, "one run at a time");
        queue.finish(key("a"), End::Done, now);
        assert_eq!(queue.start(now), Some(key("a")));
        queue.finish(key("a"), End::Done, now);
        assert_eq!(queue.start(now), None);
    }

    #[test]
    fn no_more_than_the_limit_run_at_a_time() {
        let mut queue = Queue::new(2, DELAYS);
        let now = Instant::now();
        ["a", "b", "c"]
            .into_iter()
            .for_each(|name| queue.add(key(name)));
        assert_eq!(
            (queue.start(now), queue.start(now), queue.start(now)),
            (Some(key("a")), Some(key("b")), None)
        );
        queue.finish(key("b"), End::Done, now);
        assert_eq!(queue.start(now), Some(key("c")));
    }

    #[test]
    fn failures_wait_twice_as_long_each_time_and_success_resets() {
        let mut queue = Queue::new(1, DELAYS);
        let mut now = Instant::now();
        queue.add(key("a"));
        for wait in [10, 20, 40, 80].map(Duration::from_millis) {
            assert_eq!(queue.start(now), Some(key("a")));
            assert_eq!(queue.finish(key("a"), End::Failed, now), Some(wait));
            assert_eq!(queue.next_deadline(), Some(now + wait));
            assert_eq!(queue.start(now + wait - Duration::from_millis(1)), None);
            now += wait;
        }
        assert_eq!(queue.start(now), Some(key("a")));
        queue.finish(key("a"), End::Done, now);
        queue.add(key("a"));
        queue.start(now);
        assert_eq!(queue.finish(key("a"), End::Failed, now), Some(DELAYS.first));
    }

    /// A provider that says when to ask again makes no failure longer, and forgets none.
    #[test]
    fn being_asked_to_come_again_is_no_failure() {
        let mut queue = Queue::new(1, DELAYS);
        let (now, later) = (Instant::now(), Duration::from_secs(15));
        let mut run = |end| {
            queue.add(key("a"));
            queue.start(now);
            queue.finish(key("a"), end, now)
        };
        assert_eq!(run(End::Failed), Some(DELAYS.first));
        for _ in 0..3 {
            assert_eq!(run(End::Again(later)), Some(later));
        }
        assert_eq!(run(End::Failed), Some(DELAYS.first * 2));
    }

    #[test]
    fn the_wait_has_a_ceiling() {
        let mut queue = Queue::new(1, DELAYS);
        let now = Instant::now();
        for _ in 0..100 {
            queue.add(key("a"));
            queue.start(now);
            assert!(
                queue
                    .finish(key("a"), End::Failed, now)
                    .is_some_and(|wait| wait <= DELAYS.last)
            );
        }
        assert_eq!(queue.start(now + DELAYS.last), Some(key("a")));
        queue.finish(key("a"), End::Done, now);
        assert_eq!(
            queue.next_deadline(),
            None,
            "one retry, however often it failed"
        );
    }

    #[test]
    fn a_set_time_comes_once_and_the_earlier_one_counts() {
        let mut queue = Queue::new(1, DELAYS);
        let now = Instant::now();
        let (soon, late) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        queue.add_at(key("a"), late);
        queue.add_at(key("a"), soon);
        queue.add_at(key("a"), late);
        assert_eq!(queue.next_deadline(), Some(soon));
        assert_eq!(queue.start(now), None);
        assert_eq!(queue.start(soon), Some(key("a")));
        assert_eq!(
            queue.finish(key("a"), End::Again(Duration::from_secs(5)), soon),
            Some(Duration::from_secs(5))
        );
        assert_eq!(queue.next_deadline(), Some(soon + Duration::from_secs(5)));
    }
}
