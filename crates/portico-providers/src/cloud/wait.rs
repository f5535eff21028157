//! Waiting for what takes a cloud a while, for a while (design/0018).

use std::time::Duration;

use tokio::time::Instant;

use super::error::CallError;
use crate::ProviderError;

/// How often something is looked at, at first and later, and for how long before the Service is put
/// aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub last: Duration,
    /// How long it is looked at in one call.
    pub within: Duration,
}

impl Default for Poll {
    fn default() -> Self {
        let second = Duration::from_secs(1);
        Self {
            first: second / 2,
            last: 5 * second,
            within: 60 * second,
        }
    }
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress<T> {
    Done(T),
    /// For people: what is waited for.
    Pending(String),
}

/// Why it is not done.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// It takes longer than one call waits.
    #[error("{reason}")]
    Slow { after: Duration, reason: String },
}

impl WaitError {
    /// What a call was answered with, if that is why.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            Self::Call(error) => Some(error),
            Self::Slow { .. } => None,
        }
    }
}

impl From<WaitError> for ProviderError {
    /// People see what is waited for, and others get their turn.
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Call(error) => error.into(),
            WaitError::Slow { after, reason } => Self::RetryAfter { after, reason },
        }
    }
}

/// A sleep; none at all if it is for no time, which a timer would round up.
pub(super) async fn pause(time: Duration) {
    match time.is_zero() {
        true => tokio::task::yield_now().await,
        false => tokio::time::sleep(time).await,
    }
}

/// Asks until it is done, or for as long as `poll` says.
pub(crate) async fn wait_for<T, F>(poll: &Poll, mut ask: impl FnMut() -> F) -> Result<T, WaitError>
where
    F: Future<Output = Result<Progress<T>, CallError>>,
{
    let (began, mut wait) = (Instant::now(), poll.first);
    loop {
        let reason = match ask().await? {
            Progress::Done(value) => return Ok(value),
            Progress::Pending(reason) => reason,
        };
        if began.elapsed() + wait > poll.within {
            return Err(WaitError::Slow {
                after: poll.last,
                reason,
            });
        }
        pause(wait).await;
        wait = (wait * 2).min(poll.last);
    }
}
