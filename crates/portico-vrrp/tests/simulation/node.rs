//! One machine: a process with a router in it, a kernel that has the address for a time, a link and
//! a clock.

use crate::machine::{Clock, Process};
use portico_vrrp::{Config, Role, Router, Time};
use std::time::Duration;

/// The address on the link, until the kernel removes it.
pub(crate) struct Held {
    pub until: Time,
    pub generation: u64,
}

pub(crate) struct Node {
    pub router: Router,
    pub process: Process,
    pub link: bool,
    /// As the world knows it.
    pub priority: u8,
    pub address: Option<Held>,
    /// Asked to stop, and not gone yet.
    pub leaves: bool,
    /// Of the tick that was ordered last; earlier ones are void.
    pub tick: u64,
    pub clock: Clock,
    pub paused_at: Time,
    pub pauses: u64,
    pub clock_goes_on: bool,
    /// What waits for a process that is stopped.
    pub inbox: Vec<super::world::Event>,
    /// When it last announced without having become the owner, on its own clock.
    pub announced: Option<Time>,
    pub conflict_told: Option<Time>,
}

impl Node {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            priority: config.priority,
            router: Router::new(config),
            process: Process::Dead,
            link: true,
            address: None,
            leaves: false,
            tick: 0,
            clock: Clock::default(),
            paused_at: Duration::ZERO,
            pauses: 0,
            clock_goes_on: true,
            inbox: vec![],
            announced: None,
            conflict_told: None,
        }
    }

    /// A process that was started anew, by the same command.
    pub(crate) fn restart(&mut self) {
        self.router = Router::new(self.router.config().clone());
        self.process = Process::Running;
        (self.announced, self.conflict_told) = (None, None);
        self.leaves = false;
        self.inbox.clear();
    }

    pub(crate) fn runs(&self) -> bool {
        self.process == Process::Running
    }

    /// Answers for the address on the link.
    pub(crate) fn holds(&self) -> bool {
        self.address.is_some() && self.link && self.process != Process::Frozen
    }

    /// Holds the address and keeps it.
    pub(crate) fn owns(&self) -> bool {
        self.runs() && self.link && self.router.role() == Role::Owner
    }

    pub(crate) fn takes_part(&self) -> bool {
        self.runs() && self.link && self.router.role() != Role::Stopped && !self.leaves
    }
}
