//! What can go wrong with a call, and what that means for a Service.

use std::time::Duration;

use http::StatusCode;

use super::retry::Failure;
use super::transport::TransportError;
use crate::ProviderError;

/// A cloud that throttles for longer than the tries of a call is asked again after this, or after
/// what it says itself.
const CALM: Duration = Duration::from_secs(15);

/// A call that was not answered well.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {problem}")]
pub struct CallError {
    pub operation: &'static str,
    #[source]
    pub problem: Problem,
}

#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("the answer makes no sense: {0}")]
    Decode(serde_json::Error),
    #[error("cannot be sent: {0}")]
    Request(String),
    /// The credentials are missing or could not be fetched.
    #[error("credentials: {0}")]
    Credentials(String),
}

/// The server said no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({}{}{code})", .status.as_u16(), if .code.is_empty() { "" } else { " " })]
pub struct StatusError {
    pub status: StatusCode,
    /// The vendor's word for it, if there is one.
    pub code: String,
    /// In the vendor's words.
    pub message: String,
    pub retry_after: Option<Duration>,
    /// It is about how much is asked, not what.
    pub throttled: bool,
}

impl CallError {
    pub fn new(operation: &'static str, problem: impl Into<Problem>) -> Self {
        Self {
            operation,
            problem: problem.into(),
        }
    }

    /// What the server said, if it said anything.
    pub fn status(&self) -> Option<&StatusError> {
        match &self.problem {
            Problem::Status(status) => Some(status),
            _ => None,
        }
    }

    pub fn is(&self, status: u16) -> bool {
        self.status()
            .is_some_and(|error| error.status.as_u16() == status)
    }

    /// Whether the error has this code of the vendor.
    pub fn is_code(&self, code: &str) -> bool {
        self.status().is_some_and(|error| error.code == code)
    }

    pub fn is_not_found(&self) -> bool {
        self.is(404)
    }

    pub fn is_conflict(&self) -> bool {
        self.is(409)
    }

    /// What is known of what the server did.
    pub(super) fn failure(&self) -> Failure {
        match &self.problem {
            Problem::Transport(TransportError::Connect(_)) => Failure::Refused(None),
            Problem::Transport(TransportError::Lost(_) | TransportError::Timeout(_)) => {
                Failure::Unknown
            }
            Problem::Status(error) if error.throttled => Failure::Refused(error.retry_after),
            Problem::Status(error) if error.status.is_server_error() => match error.retry_after {
                Some(after) => Failure::Refused(Some(after)),
                None => Failure::Unknown,
            },
            _ => Failure::Final,
        }
    }
}

impl From<CallError> for ProviderError {
    /// Providers catch the answers that mean something to them first.
    fn from(error: CallError) -> Self {
        match error.status() {
            Some(status) if status.throttled => {
                let after = status.retry_after.unwrap_or(CALM);
                Self::RetryAfter {
                    after,
                    reason: format!("the cloud wants fewer requests: {error}"),
                }
            }
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// What is not there is no failure.
pub(crate) fn found<T>(result: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
