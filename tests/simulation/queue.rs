//! What is to happen, in the order of time; at one time, in the order in which it was said.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

pub(crate) struct Queue<E> {
    events: BinaryHeap<Reverse<(Duration, u64, E)>>,
    /// So many were added.
    pub count: u64,
}

impl<E: Ord> Queue<E> {
    pub(crate) fn new() -> Self {
        Self {
            events: BinaryHeap::new(),
            count: 0,
        }
    }

    pub(crate) fn add(&mut self, time: Duration, event: E) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    /// The next event until then, and its time.
    pub(crate) fn next_until(&mut self, end: Duration) -> Option<(Duration, E)> {
        let Reverse((time, _, _)) = self.events.peek()?;
        if *time > end {
            return None;
        }
        let Reverse((time, _, event)) = self.events.pop()?;
        Some((time, event))
    }
}
