//! A link between machines that loses, delays, repeats and parts.

use crate::random::Random;
use std::time::Duration;

/// Losses in a row on a way, where any number is possible.
pub(crate) const HEAVY: usize = usize::MAX;

/// What the network does to packets.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub least_delay: Duration,
    pub most_delay: Duration,
    /// In percent.
    pub loss: usize,
    /// Losses in a row on one way from one to another.
    pub in_a_row: usize,
    pub twice: usize,
    /// How late a process is at most.
    pub late: Duration,
}

/// The ways from each machine to each other one.
pub(crate) struct Ways {
    /// Packets from one to another are lost.
    pub cut: Vec<Vec<bool>>,
    lost_in_a_row: Vec<Vec<usize>>,
}

impl Ways {
    pub(crate) fn among(machines: usize) -> Self {
        Self {
            cut: vec![vec![false; machines]; machines],
            lost_in_a_row: vec![vec![0; machines]; machines],
        }
    }

    pub(crate) fn are_open(&self, a: usize, b: usize) -> bool {
        !self.cut[a][b] && !self.cut[b][a]
    }

    /// When a packet that is sent now arrives: not at all, once or twice.
    pub(crate) fn arrivals(
        &mut self,
        (from, to): (usize, usize),
        now: Duration,
        network: &Network,
        random: &mut Random,
    ) -> Vec<Duration> {
        if self.cut[from][to] {
            return vec![];
        }
        let lost = &mut self.lost_in_a_row[from][to];
        if *lost < network.in_a_row && random.percent(network.loss) {
            *lost += 1;
            return vec![];
        }
        *lost = 0;
        let copies = 1 + usize::from(random.percent(network.twice));
        (0..copies)
            .map(|_| {
                let jitter = random.upto(network.most_delay - network.least_delay);
                now + network.least_delay + jitter
            })
            .collect()
    }
}
