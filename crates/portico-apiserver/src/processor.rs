//! Turns for long reads, so that they do not take the processor from other requests.
//!
//! A read that looks through many objects, or writes a long answer, does so in short turns on a few
//! places. The user that has used the processor least of late has the next one.

mod line;

use crate::metrics::{Metrics, Refused};
use crate::shares::Flow;
use line::{Line, Ticket};
use portico_api::status::ApiError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// How long one turn should take.
pub(crate) const TURN: Duration = Duration::from_millis(5);
/// What takes no longer needs no turn.
pub(crate) const SHORT: Duration = Duration::from_micros(500);
/// A request that has waited this long for a turn is refused (429).
const MOST_WAIT: Duration = Duration::from_secs(20);

type Waiters = Arc<Mutex<Line<oneshot::Sender<Turn>>>>;

/// The places on which long reads run.
pub(crate) struct Processor {
    line: Waiters,
    metrics: Arc<Metrics>,
}

impl Processor {
    /// All processors but one, so that short requests always find one.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        let line = Line::new(all.saturating_sub(1).max(1));
        Self {
            line: Arc::new(Mutex::new(line)),
            metrics,
        }
    }

    /// Do something long when it is this user's turn, on a thread that others do not wait for.
    pub(crate) async fn run<T>(
        &self,
        flow: &Flow,
        work: impl FnOnce() -> T,
    ) -> Result<T, ApiError> {
        self.go_on(flow, Instant::now(), work).await
    }

    /// The same for a step of what began then.
    pub(crate) async fn go_on<T>(
        &self,
        flow: &Flow,
        since: Instant,
        work: impl FnOnce() -> T,
    ) -> Result<T, ApiError> {
        let turn = tokio::time::timeout(MOST_WAIT, self.turn(flow, since))
            .await
            .map_err(|_| {
                self.metrics.refused(Refused {
                    priority_level: flow.level.name(),
                    reason: "processor",
                });
                ApiError::too_many_requests(
                    "the server has more long reads to do than it can, please try again or ask \
                     for less at a time with limit=",
                    1,
                )
            })?;
        let result = match Handle::current().runtime_flavor() {
            RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
            _ => work(),
        };
        drop(turn);
        Ok(result)
    }

    async fn turn(&self, flow: &Flow, since: Instant) -> Turn {
        let (call, called) = oneshot::channel();
        let ticket = match lock(&self.line).ask(flow, since, call) {
            // There is a place.
            None => return self.begun(flow.clone()),
            Some(ticket) => ticket,
        };
        let _waiting = Waiting {
            line: Arc::clone(&self.line),
            ticket,
        };
        match called.await {
            Ok(mut turn) => {
                turn.started = Instant::now();
                turn
            }
            // Not reached: a waiter is called or leaves.
            Err(_) => self.begun(flow.clone()),
        }
    }

    fn begun(&self, flow: Flow) -> Turn {
        Turn {
            line: Arc::clone(&self.line),
            flow,
            started: Instant::now(),
        }
    }
}

fn lock<C>(line: &Mutex<Line<C>>) -> MutexGuard<'_, Line<C>> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the line, given up when the request is.
struct Waiting {
    line: Waiters,
    ticket: Ticket,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let left = lock(&self.line).leave(self.ticket);
        drop(left);
    }
}

/// One turn; the next begins when it is dropped.
struct Turn {
    line: Waiters,
    flow: Flow,
    started: Instant,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (now, took) = (Instant::now(), self.started.elapsed());
        let next = lock(&self.line).done(&self.flow, took, now);
        if let Some((flow, call)) = next {
            // One that has just gone away drops its turn, which calls the next.
            let turn = Self {
                line: Arc::clone(&self.line),
                flow,
                started: now,
            };
            let _ = call.send(turn);
        }
    }
}
