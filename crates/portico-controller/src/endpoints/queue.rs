//! Which Service to work on next: each at most once at a time, failed ones later and later.
//!
//! However many changes touch a Service while it waits or is worked on, it is worked on once more.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use super::ObjectKey;

pub struct Queue {
    limit: usize,
    ready: VecDeque<ObjectKey>,
    /// Everything in `ready`, and what became due again while it was worked on.
    wanted: HashSet<ObjectKey>,
    active: HashSet<ObjectKey>,
    delayed: BTreeSet<(Instant, ObjectKey)>,
    failures: HashMap<ObjectKey, Failed>,
}

struct Failed {
    times: u32,
    retry_at: Instant,
}

/// A conflict is over when the watch has caught up, which takes milliseconds.
const FIRST_DELAY: Duration = Duration::from_millis(10);
const LAST_DELAY: Duration = Duration::from_secs(60);

impl Queue {
    /// `limit`: how many Services may be worked on at a time.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            ready: VecDeque::new(),
            wanted: HashSet::new(),
            active: HashSet::new(),
            delayed: BTreeSet::new(),
            failures: HashMap::new(),
        }
    }

    pub fn add(&mut self, key: ObjectKey) {
        if self.wanted.insert(key.clone()) && !self.active.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// The next Service to work on; `finish` has to follow.
    pub fn start(&mut self, now: Instant) -> Option<ObjectKey> {
        while self.delayed.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.delayed.pop_first() {
                self.add(key);
            }
        }
        if self.active.len() >= self.limit {
            return None;
        }
        let key = self.ready.pop_front()?;
        self.wanted.remove(&key);
        self.active.insert(key.clone());
        if let Some(failed) = self.failures.get(&key) {
            self.delayed.remove(&(failed.retry_at, key.clone()));
        }
        Some(key)
    }

    /// Returns after how long a failed Service is tried again.
    pub fn finish(&mut self, key: ObjectKey, succeeded: bool, now: Instant) -> Option<Duration> {
        self.active.remove(&key);
        if self.wanted.contains(&key) {
            self.ready.push_back(key.clone());
        }
        if succeeded {
            self.failures.remove(&key);
            return None;
        }
        let times = self.failures.get(&key).map_or(0, |failed| failed.times);
        let delay = FIRST_DELAY.saturating_mul(1 << times.min(20)).min(LAST_DELAY);
        let retry_at = now + delay;
        self.failures.insert(key.clone(), Failed { times: times + 1, retry_at });
        self.delayed.insert((retry_at, key));
        Some(delay)
    }

    /// When `start` may have something to return although nothing was added or finished.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("default", name)
    }

    #[test]
    fn many_changes_become_one_run() {
        let mut queue = Queue::new(2);
        let now = Instant::now();
        (0..3).for_each(|_| queue.add(key("a")));
        assert_eq!(queue.start(now), Some(key("a")));
        assert_eq!(queue.start(now), None);
    }

    #[test]
    fn a_change_during_the_run_starts_another_after_it() {
        let mut queue = Queue::new(2);
        let now = Instant::now();
        queue.add(key("a"));
        queue.start(now);
        queue.add(key("a"));
        assert_eq!(queue.start(now), None, "one run at a time");
        queue.finish(key("a"), true, now);
        assert_eq!(queue.start(now), Some(key("a")));
        queue.finish(key("a"), true, now);
        assert_eq!(queue.start(now), None);
    }

    #[test]
    fn no_more_than_the_limit_run_at_a_time() {
        let mut queue = Queue::new(2);
        let now = Instant::now();
        ["a", "b", "c"].into_iter().for_each(|name| queue.add(key(name)));
        assert_eq!((queue.start(now), queue.start(now), queue.start(now)), (Some(key("a")), Some(key("b")), None));
        queue.finish(key("b"), true, now);
        assert_eq!(queue.start(now), Some(key("c")));
    }

    #[test]
    fn failures_wait_twice_as_long_each_time_and_success_resets() {
        let mut queue = Queue::new(1);
        let mut now = Instant::now();
        queue.add(key("a"));
        for wait in [10, 20, 40, 80].map(Duration::from_millis) {
            assert_eq!(queue.start(now), Some(key("a")));
            assert_eq!(queue.finish(key("a"), false, now), Some(wait));
            assert_eq!(queue.next_deadline(), Some(now + wait));
            assert_eq!(queue.start(now + wait - Duration::from_millis(1)), None);
            now += wait;
        }
        assert_eq!(queue.start(now), Some(key("a")));
        queue.finish(key("a"), true, now);
        queue.add(key("a"));
        queue.start(now);
        assert_eq!(queue.finish(key("a"), false, now), Some(FIRST_DELAY));
    }

    #[test]
    fn the_wait_has_a_ceiling() {
        let mut queue = Queue::new(1);
        let now = Instant::now();
        for _ in 0..100 {
            queue.add(key("a"));
            queue.start(now);
            assert!(queue.finish(key("a"), false, now).is_some_and(|wait| wait <= LAST_DELAY));
        }
        assert_eq!(queue.start(now + LAST_DELAY), Some(key("a")));
        queue.finish(key("a"), true, now);
        assert_eq!(queue.next_deadline(), None, "one retry, however often it failed");
    }
}
