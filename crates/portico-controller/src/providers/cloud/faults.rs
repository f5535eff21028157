//! For tests and benchmarks: a transport that notes each request, and has something go wrong before or after one of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

use super::client::Pace;
use super::retry::Policy;
use super::transport::{Sent, Transport, TransportError};
use super::wait::Poll;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server never sees the request.
    NoConnection,
    TimeoutBefore,
    /// The server refuses.
    Status(u16),
    /// The server does what is asked, and its answer never arrives.
    AnswerLost,
    TimeoutAfter,
    /// The server does what is asked, and says this.
    StatusAfter(u16),
}

impl Fault {
    pub const ALL: [Fault; 8] = [
        Fault::NoConnection,
        Fault::TimeoutBefore,
        Fault::Status(429),
        Fault::Status(500),
        Fault::Status(503),
        Fault::AnswerLost,
        Fault::TimeoutAfter,
        Fault::StatusAfter(502),
    ];

    fn delivers(self) -> bool {
        matches!(self, Fault::AnswerLost | Fault::TimeoutAfter | Fault::StatusAfter(_))
    }

    fn answer(self) -> Result<Response<Bytes>, TransportError> {
        match self {
            Fault::NoConnection => Err(TransportError::Connect("refused by a test".to_owned())),
            Fault::TimeoutBefore | Fault::TimeoutAfter => Err(TransportError::Timeout(Duration::from_secs(30))),
            Fault::AnswerLost => Err(TransportError::Lost("reset by a test".to_owned())),
            Fault::Status(code) | Fault::StatusAfter(code) => {
                let mut answer = Response::new(Bytes::from_static(b"a test says no"));
                *answer.status_mut() = code.try_into().unwrap_or_default();
                Ok(answer)
            }
        }
    }
}

/// How long it stays wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The client's next try works, if it makes one.
    Once,
    /// From then on nothing works: as if the program had been killed there.
    On,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Of the requests since it was made, from 0.
    at: usize,
    fault: Fault,
    span: Span,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    /// Since the plan was made.
    requests: usize,
    log: Vec<String>,
}

pub struct Faults {
    inner: Arc<dyn Transport>,
    state: Mutex<State>,
}

impl Faults {
    pub fn over(inner: Arc<dyn Transport>) -> Arc<Faults> {
        Arc::new(Faults { inner, state: Mutex::default() })
    }

    /// Request number `at` from now, counted from 0, meets this fault.
    pub fn arm(&self, at: usize, fault: Fault, span: Span) {
        let mut state = self.lock();
        (state.plan, state.requests) = (Some(Plan { at, fault, span }), 0);
    }

    /// Nothing goes wrong any more. Says whether anything did.
    pub fn disarm(&self) -> bool {
        let mut state = self.lock();
        let requests = state.requests;
        state.plan.take().is_some_and(|plan| requests > plan.at)
    }

    /// Requests since the last look: method and path.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }

    fn meet(&self, request: &Request<Bytes>) -> Option<Fault> {
        let mut state = self.lock();
        state.log.push(format!("{} {}", request.method(), request.uri().path()));
        let number = state.requests;
        state.requests += 1;
        let plan = state.plan?;
        let hit = number == plan.at || (plan.span == Span::On && number > plan.at);
        // Killed after the request that was under way: those after it are never sent.
        let fault = if number > plan.at { Fault::NoConnection } else { plan.fault };
        hit.then_some(fault)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Faults {
    fn send(&self, request: Request<Bytes>) -> Sent<'_> {
        let fault = self.meet(&request);
        Box::pin(async move {
            match fault {
                None => self.inner.send(request).await,
                Some(fault) => {
                    if fault.delivers() {
                        self.inner.send(request).await?;
                    }
                    fault.answer()
                }
            }
        })
    }
}

/// A pace for clouds in memory: the same tries and looks as with the real ones, without the waits between.
pub fn no_waits() -> (Pace, Poll) {
    let (pace, poll, soon) = (Pace::default(), Poll::default(), Duration::from_micros(10));
    let retry = Policy { first: soon, last: soon, ..pace.retry };
    (Pace { retry, rate: 1e6, burst: 1_000_000, ..pace }, Poll { first: soon, last: soon, ..poll })
}
