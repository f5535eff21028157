//! Programs of Portico that are started again when they end.

use super::programs::Programs;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time limit for a program to end in order.
const FAREWELL: Duration = Duration::from_secs(15);
/// How long a program that ended waits, at first and at most; one that ran for longer than that
/// starts from the first again.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

pub(crate) struct Keeper {
    pub programs: Programs,
    /// What each is started with.
    arguments: BTreeMap<&'static str, Vec<String>>,
    /// When each may start again, and how long it waited before.
    waiting: BTreeMap<&'static str, (Instant, Duration)>,
    /// Since when each runs.
    started: BTreeMap<&'static str, Instant>,
}

impl Keeper {
    pub(crate) fn new(arguments: BTreeMap<&'static str, Vec<String>>) -> anyhow::Result<Self> {
        let (waiting, started) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self {
            programs: Programs::new(None)?,
            arguments,
            waiting,
            started,
        })
    }

    pub(crate) fn start(&mut self, name: &'static str) -> anyhow::Result<()> {
        self.started.insert(name, Instant::now());
        self.programs.start(name, None, &self.arguments[name])
    }

    /// To be called now and then.
    pub(crate) fn restart_what_ended(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let names: Vec<&'static str> = self.arguments.keys().copied().collect();
        for (name, status) in self.programs.ended() {
            let Some(name) = names.iter().copied().find(|known| *known == name) else {
                continue;
            };
            let ran = self
                .started
                .get(name)
                .map_or(Duration::ZERO, |since| now - *since);
            let delay = match self.waiting.get(name) {
                Some((_, before)) if ran < RETRY.1 => (*before * 2).min(RETRY.1),
                _ => RETRY.0,
            };
            tracing::error!(program = name, %status, "ended, will be started again in {delay:?}");
            self.waiting.insert(name, (now + delay, delay));
        }
        for name in names {
            let due = self.waiting.get(name).is_some_and(|(at, _)| *at <= now);
            if due && !self.programs.is_running(name) {
                self.start(name)?;
            }
        }
        Ok(())
    }

    /// In this order.
    pub(crate) fn stop(&mut self, order: &[&str]) {
        tracing::info!("stopping; the rules stay");
        order
            .iter()
            .for_each(|name| self.programs.stop(name, FAREWELL));
    }
}
