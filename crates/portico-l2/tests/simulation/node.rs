//! One machine: a process with a speaker in it, a link and a clock.

use crate::machine::{Clock, Process};
use portico_l2::{NodeId, Speaker, Time, Timing};
use std::time::Duration;

pub(crate) struct Node {
    pub id: NodeId,
    pub speaker: Speaker,
    pub process: Process,
    pub link: bool,
    pub leaves: bool,
    /// Of the tick that was ordered last; earlier ones are void.
    pub tick: u64,
    pub clock: Clock,
    pub paused_at: Time,
    pub pauses: u64,
    pub clock_goes_on: bool,
    incarnation: u64,
    /// What waits for a process that is stopped.
    pub inbox: Vec<super::world::Event>,
}

impl Node {
    pub(crate) fn new(name: char) -> Self {
        let id = NodeId::of(&name.to_string());
        Self {
            id,
            speaker: Speaker::new(id, 0, Timing::default()),
            process: Process::Dead,
            link: true,
            leaves: false,
            tick: 0,
            clock: Clock::default(),
            paused_at: Duration::ZERO,
            pauses: 0,
            clock_goes_on: true,
            incarnation: 1000,
            inbox: vec![],
        }
    }

    /// A new process. The clock on the wall, which incarnations come from, is wrong sometimes.
    pub(crate) fn restart(&mut self, clock_is_wrong: bool) {
        self.incarnation = if clock_is_wrong {
            self.incarnation - 10
        } else {
            self.incarnation + 1
        };
        self.speaker = Speaker::new(self.id, self.incarnation, Timing::default());
        self.process = Process::Running;
        self.leaves = false;
        self.inbox.clear();
    }

    pub(crate) fn runs(&self) -> bool {
        self.process == Process::Running
    }

    /// Whoever asks for the addresses it holds is answered.
    pub(crate) fn answers(&self) -> bool {
        self.runs() && self.link
    }

    pub(crate) fn takes_part(&self) -> bool {
        self.runs() && self.link && !self.leaves
    }
}
