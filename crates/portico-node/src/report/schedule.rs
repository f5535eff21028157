//! When the next report is due. Pure.

use crate::aligned_timer::AlignedTimer;
use portico_view::pace::{GATHER, Pace};
use std::time::{Duration, Instant};

/// From one report to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    timer: AlignedTimer,
    pace: Pace,
    written: Instant,
    due: Instant,
}

impl Schedule {
    /// A report was written.
    pub(super) fn new(timer: AlignedTimer, pace: Pace, written: Instant) -> Self {
        Self {
            timer,
            pace,
            written,
            due: timer.next(written, pace.renew).max(written + GATHER),
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Something changed that is to be told.
    pub(super) fn changed(&mut self, awaited: bool, now: Instant) {
        let interval = match awaited {
            true => self.pace.awaited,
            false => self.pace.changes,
        };
        self.due = self.due.min(self.told_at(interval, now));
    }

    /// Where the interval is long, each node has moments of its own: thousands of nodes that all
    /// hear of a change at the same time do not all write at the same time.
    fn told_at(&self, interval: Duration, now: Instant) -> Instant {
        match Pace::is_at_once(interval) {
            true => now.max(self.written + interval),
            false => self.timer.next(now, interval),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: u64 = 120;

    /// A cluster in which every node hears of all changes.
    struct Cluster {
        nodes: u32,
        changes_a_second: u32,
        awaited: bool,
    }

    impl Cluster {
        /// How many reports are written in each second.
        fn writes(&self) -> Vec<u32> {
            let began = Instant::now();
            let mut writes = vec![0; RUN as usize];
            for node in 0..self.nodes {
                // Golden ratio: the moments of any number of nodes are spread evenly.
                let phase = (f64::from(node) * 0.618_033_988_75).fract();
                let timer = AlignedTimer::from(began + Duration::from_secs_f64(60.0 * phase));
                for at in self.reports(timer, began) {
                    if let Some(second) = writes.get_mut((at - began).as_secs() as usize) {
                        *second += 1;
                    }
                }
            }
            writes
        }

        /// When one node reports.
        fn reports(&self, timer: AlignedTimer, began: Instant) -> Vec<Instant> {
            let pace = Pace::of(self.nodes as usize);
            let (mut all, mut at) = (Vec::new(), began);
            while at < began + Duration::from_secs(RUN) {
                let mut schedule = Schedule::new(timer, pace, at);
                if let Some(gap) = Duration::from_secs(1).checked_div(self.changes_a_second) {
                    // The first change after the report; later ones do not make it earlier.
                    let passed = (at - began).as_nanos() / gap.as_nanos() + 1;
                    schedule.changed(self.awaited, began + gap * passed as u32);
                }
                at = schedule.due();
                all.push(at);
            }
            all
        }

        /// On average and in the worst second, once it runs evenly.
        fn rate(&self) -> (f64, u32) {
            let writes = &self.writes()[60..];
            let sum: u32 = writes.iter().sum();
            (
                f64::from(sum) / writes.len() as f64,
                *writes.iter().max().unwrap(),
            )
        }
    }

    /// What is told of in design/0041: at rest, under 100 changes a second, and under 100 a second
    /// that a user waits for.
    #[test]
    fn the_writes_of_a_cluster_are_bounded() {
        println!("nodes  at rest  100 changes/s  100 awaited changes/s");
        for (nodes, bounds) in [
            (3, [3.0, 6.0, 6.0]),
            (100, [10.0, 60.0, 210.0]),
            (1000, [34.0, 84.0, 534.0]),
            (5000, [167.0, 334.0, 667.0]),
        ] {
            let load = |changes_a_second, awaited| Cluster {
                nodes,
                changes_a_second,
                awaited,
            };
            let rates = [load(0, false), load(100, false), load(100, true)].map(|c| c.rate());
            println!("{nodes:>5}  {rates:.1?} (average, worst second)");
            for ((average, worst), bound) in rates.into_iter().zip(bounds) {
                assert!(average <= bound * 1.02, "{nodes}: {average} > {bound}");
                assert!(
                    f64::from(worst) <= bound * 1.3 + 3.0,
                    "{nodes}: {worst} in a second"
                );
            }
        }
    }

    #[test]
    fn a_change_is_told_at_once_in_a_small_cluster_and_in_turn_in_a_large_one() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let timer = AlignedTimer::from(began);
        let due = |nodes, awaited, heard| {
            let mut schedule = Schedule::new(timer, Pace::of(nodes), at(0));
            schedule.changed(awaited, heard);
            schedule.due()
        };
        assert_eq!(due(3, false, at(700)), at(700));
        assert_eq!(
            due(3, false, at(100)),
            at(500),
            "not twice within half a second"
        );
        assert_eq!(due(100, true, at(2700)), at(2700));
        assert_eq!(due(100, false, at(2700)), at(4000));
        assert_eq!(due(5000, true, at(2700)), at(10_000));
        assert_eq!(due(5000, false, at(2700)), at(30_000));
    }
}
