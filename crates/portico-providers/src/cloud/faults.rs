//! For tests and benchmarks: a transport that notes each request in a [`FaultPlan`], and does to it
//! what the plan says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

use super::client::Pace;
use super::retry::Policy;
use super::transport::{Sent, Transport, TransportError};
use super::wait::Poll;
use crate::conformance::{Fault, FaultPlan};

/// A transport whose calls go wrong as a plan says.
pub struct Faulty {
    inner: Arc<dyn Transport>,
    plan: Arc<FaultPlan>,
}

impl Faulty {
    /// A transport over another one.
    pub fn over(inner: Arc<dyn Transport>, plan: Arc<FaultPlan>) -> Self {
        Self { inner, plan }
    }
}

impl Transport for Faulty {
    fn send(&self, request: Request<Bytes>) -> Sent<'_> {
        let fault = self
            .plan
            .next(&format!("{} {}", request.method(), request.uri().path()));
        Box::pin(async move {
            let Some(fault) = fault else {
                return self.inner.send(request).await;
            };
            if fault.arrives() {
                self.inner.send(request).await?;
            }
            match fault {
                Fault::Unreachable => Err(TransportError::Connect("refused by a test".to_owned())),
                Fault::Timeout => Err(TransportError::Timeout(Duration::from_secs(30))),
                Fault::TooMany => Ok(answer(429)),
                Fault::ServerError | Fault::ServerErrorAfter => Ok(answer(500)),
                Fault::LostResponse => Err(TransportError::Lost("reset by a test".to_owned())),
                Fault::CrashBefore | Fault::CrashAfter => self.plan.crash().await,
            }
        })
    }
}

fn answer(code: u16) -> Response<Bytes> {
    let mut answer = Response::new(Bytes::from_static(b"a test says no"));
    *answer.status_mut() = code.try_into().unwrap_or_default();
    answer
}

/// A pace for clouds in memory: the same tries and looks as with the real ones, without the waits
/// between.
pub fn no_waits() -> (Pace, Poll) {
    let (pace, poll, soon) = (Pace::default(), Poll::default(), Duration::ZERO);
    let retry = Policy {
        first: soon,
        last: soon,
        ..pace.retry
    };
    (
        Pace {
            retry,
            rate: 1e6,
            burst: 1_000_000,
            ..pace
        },
        Poll {
            first: soon,
            last: soon,
            ..poll
        },
    )
}
