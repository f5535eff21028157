//! The thread that forwards: the kernel and programs are waited for there, so that no other part
//! waits.

use super::{Applied, ForwardError, ForwardSettings, Forwarding, Wanted};
use crate::status::Attempt;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The time limit for the rules to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time limit for everything to be removed: programs wait for each other's locks.
const REMOVAL: Duration = Duration::from_secs(20);

enum Order {
    Rules(oneshot::Sender<Vec<String>>),
    End(oneshot::Sender<Result<(), ForwardError>>),
}

pub(crate) struct Worker {
    wanted: watch::Sender<Option<Wanted>>,
    orders: mpsc::Sender<Order>,
    attempts: watch::Receiver<Attempt>,
    _thread: JoinHandle<()>,
}

impl Worker {
    /// Belongs to the network namespace of the calling thread. What an earlier process left stays
    /// until it is known what is wanted, so that forwarding does not blink.
    pub(crate) fn start(
        settings: ForwardSettings,
        check_every: Duration,
    ) -> Result<Self, ForwardError> {
        let (wanted, wanting) = watch::channel(None);
        let (orders, ordered) = mpsc::channel(4);
        let (attempt, attempts) = watch::channel(Attempt::default());
        let bad = |source| ForwardError::Io {
            doing: "cannot start the thread that forwards".to_owned(),
            source,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(bad)?;
        let work = Work {
            forwarding: Forwarding::new(settings),
            wanting,
            ordered,
            attempt,
        };
        let run = move || runtime.block_on(work.run(check_every));
        let thread = std::thread::Builder::new()
            .name("forward".to_owned())
            .spawn(run)
            .map_err(bad)?;
        Ok(Self {
            wanted,
            orders,
            attempts,
            _thread: thread,
        })
    }

    /// This is what is to be forwarded from now on.
    pub(crate) fn want(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|known| {
            let changed = known.as_ref() != Some(&wanted);
            *known = Some(wanted);
            changed
        });
    }

    /// Leaves new connections to the next owner from now on.
    pub(crate) fn close(&self) {
        self.wanted
            .send_modify(|wanted| wanted.iter_mut().for_each(|wanted| wanted.closing = true));
    }

    /// What became of it.
    pub(crate) fn attempt(&self) -> Attempt {
        self.attempts.borrow().clone()
    }

    /// Returns when something has become of it.
    pub(crate) async fn attempted(&self) {
        let happened = |attempt: &Attempt| attempt.applied.is_some() || attempt.errors > 0;
        let _ = self.attempts.clone().wait_for(happened).await;
    }

    /// The rules in force, or why they cannot be told.
    pub(crate) async fn rules(&self) -> Vec<String> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.orders.send(Order::Rules(answer)).await.ok()?;
            answered.await.ok()
        };
        let rules = tokio::time::timeout(PATIENCE, asked).await.ok().flatten();
        rules.unwrap_or_else(|| vec!["they cannot be read now".to_owned()])
    }

    /// Remove everything.
    pub(crate) async fn end(&self) -> Result<(), ForwardError> {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.orders.send(Order::End(answer)).await.ok()?;
            answered.await.ok()
        };
        let slow = || {
            Err(ForwardError::Unfit(format!(
                "the rules could not be removed within {REMOVAL:?}"
            )))
        };
        tokio::time::timeout(REMOVAL, asked)
            .await
            .ok()
            .flatten()
            .unwrap_or_else(slow)
    }

    /// Returns when the thread is gone.
    pub(crate) async fn died(&self) {
        let mut attempts = self.attempts.clone();
        while attempts.changed().await.is_ok() {}
    }
}

struct Work {
    forwarding: Forwarding,
    wanting: watch::Receiver<Option<Wanted>>,
    ordered: mpsc::Receiver<Order>,
    attempt: watch::Sender<Attempt>,
}

impl Work {
    async fn run(mut self, check_every: Duration) {
        let mut ticks = tokio::time::interval(check_every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // What changed goes before what is only looked at.
                biased;
                changed = self.wanting.changed() => match changed {
                    Ok(()) => self.apply(),
                    Err(_) => return,
                },
                order = self.ordered.recv() => match order {
                    Some(Order::Rules(answer)) => {
                        let rules = self.forwarding.rules().unwrap_or_else(|error| vec![error.to_string()]);
                        let _ = answer.send(rules);
                    }
                    Some(Order::End(answer)) => {
                        let _ = answer.send(self.forwarding.remove());
                        return;
                    }
                    None => return,
                },
                _ = ticks.tick() => self.apply(),
            }
        }
    }

    fn apply(&mut self) {
        let wanted = self.wanting.borrow_and_update().clone();
        let Some(wanted) = wanted else { return };
        let result = self.forwarding.apply(&wanted);
        self.attempt.send_modify(|attempt| match result {
            Ok(applied) => {
                tell(attempt.applied.as_ref(), &applied);
                attempt.applied = Some(applied);
                attempt.error = None;
            }
            Err(error) => {
                tracing::error!(%error, "cannot forward the address");
                attempt.error = Some(error.to_string());
                attempt.errors += 1;
            }
        });
    }
}

fn tell(before: Option<&Applied>, now: &Applied) {
    if before.map(|before| before.mode) != Some(now.mode) {
        tracing::info!(mode = ?now.mode, why = now.why, "forwarding the address");
    }
    let known = before.map_or(&[][..], |before| &before.problems);
    for problem in now
        .problems
        .iter()
        .filter(|problem| !known.contains(problem))
    {
        tracing::warn!(problem, "not all is forwarded");
    }
}
