//! Makes calls: in turn, authenticated, each within its time, again where that is safe, counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Response, StatusCode};
use tracing::debug;

use super::auth::Authorize;
use super::call::{Call, Reply, retry_after};
use super::error::{CallError, Problem, StatusError};
use super::metrics::CallMetrics;
use super::rate::TokenBucket;
use super::retry::{Budget, Policy};
use super::transport::{Transport, TransportError};
use super::wait::pause;

/// How a vendor says that something is wrong.
#[derive(Clone, Copy)]
pub struct Dialect {
    /// The vendor's word for it (or nothing), and its message.
    pub read: fn(&[u8]) -> Option<(String, String)>,
    /// Beside 429.
    pub is_throttled: fn(StatusCode, &str) -> bool,
}

/// How fast, how long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// For one try.
    pub deadline: Duration,
    /// When a try is repeated.
    pub retry: Policy,
    /// Calls a second, and how many at once after a rest.
    pub rate: f64,
    /// The most calls at once after a rest.
    pub burst: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            retry: Policy::default(),
            rate: 20.0,
            burst: 100,
        }
    }
}

/// What a client is made of.
pub struct Setup {
    /// The name of the provider in metrics.
    pub provider: &'static str,
    /// Sends requests.
    pub transport: Arc<dyn Transport>,
    /// Adds credentials to them.
    pub authorize: Arc<dyn Authorize>,
    /// How errors are written.
    pub dialect: Dialect,
    /// How often calls are made and repeated.
    pub pace: Pace,
    /// Where calls are counted.
    pub metrics: CallMetrics,
}

/// Makes the calls to one cloud.
pub struct Client {
    setup: Setup,
    turns: Mutex<TokenBucket>,
    budget: Mutex<Budget>,
}

impl Client {
    /// A client that has made no call yet.
    pub fn new(setup: Setup) -> Self {
        let turns = Mutex::new(TokenBucket::new(setup.pace.rate, setup.pace.burst));
        Self {
            setup,
            turns,
            budget: Mutex::default(),
        }
    }

    /// An answer other than 2xx is a [`StatusError`].
    pub async fn send(&self, call: Call) -> Result<Reply, CallError> {
        let began = Instant::now();
        let (mut tries, mut renewed) = (0, false);
        loop {
            let error = match self.attempt(&call).await {
                Ok(reply) => {
                    lock(&self.budget).succeeded();
                    return Ok(reply);
                }
                Err(error) => error,
            };
            // A token that ended early is no failure: once, another one is fetched.
            if error.is(401) && !renewed && self.setup.authorize.renew() {
                renewed = true;
                continue;
            }
            tries += 1;
            let policy = &self.setup.pace.retry;
            let wait = policy.wait(
                call.repeat,
                error.failure(),
                tries,
                began.elapsed(),
                fastrand::f64(),
            );
            match wait {
                Some(wait) if lock(&self.budget).take() => {
                    debug!(operation = call.operation, ?wait, %error, "again");
                    pause(wait).await;
                }
                _ => return Err(error),
            }
        }
    }

    async fn attempt(&self, call: &Call) -> Result<Reply, CallError> {
        let turn = lock(&self.turns).take(Instant::now());
        pause(turn).await;
        let mut request = call.request()?;
        self.setup.authorize.authorize(&mut request).await?;
        let (began, deadline) = (
            Instant::now(),
            call.deadline.unwrap_or(self.setup.pace.deadline),
        );
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = tokio::time::timeout(deadline, self.setup.transport.send(request)).await;
        let answer = answer.unwrap_or(Err(TransportError::Timeout(deadline)));
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.setup
            .metrics
            .called(self.setup.provider, call.operation, code, began.elapsed());
        debug!(operation = call.operation, %method, path, code, took = ?began.elapsed(), "asked");
        self.read(
            call.operation,
            answer.map_err(|error| CallError::new(call.operation, error))?,
        )
    }

    fn read(&self, operation: &'static str, answer: Response<Bytes>) -> Result<Reply, CallError> {
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            return Ok(Reply {
                operation,
                status: head.status,
                headers: head.headers,
                body,
            });
        }
        let (code, message) = (self.setup.dialect.read)(&body)
            .unwrap_or_else(|| (String::new(), text(&body, head.status)));
        let throttled = head.status == StatusCode::TOO_MANY_REQUESTS
            || (self.setup.dialect.is_throttled)(head.status, &code);
        let retry_after = retry_after(&head.headers);
        let error = StatusError {
            status: head.status,
            code,
            message,
            retry_after,
            throttled,
        };
        Err(CallError::new(operation, Problem::Status(error)))
    }
}

/// What stands in an answer that the vendor's API did not write.
fn text(body: &[u8], status: StatusCode) -> String {
    let text: String = String::from_utf8_lossy(body)
        .trim()
        .chars()
        .take(300)
        .collect();
    if text.is_empty() {
        status.canonical_reason().unwrap_or("refused").to_owned()
    } else {
        text
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
