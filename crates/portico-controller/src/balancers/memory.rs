//! What the controller remembers of a Service beside its objects: what its provider made, and what
//! went wrong. A controller that starts remembers nothing, and asks the provider again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::provider::{Balancer, Endpoint, Node, ProviderError, Request};

#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// What the provider last made.
    pub made: Option<Made>,
    /// Why the last call failed.
    pub trouble: Option<Trouble>,
    /// Whatever is remembered, the provider is to be asked once more.
    pub ensure_again: bool,
    /// The provider said that another program makes what this asks for.
    pub elsewhere: Option<Arc<Request>>,
    /// The provider has deleted everything, and has made nothing since.
    pub deleted: bool,
    /// When to compare with what there is.
    pub check: Option<Instant>,
}

impl Memory {
    /// Whether what was made is not complete yet.
    pub(super) fn is_pending(&self) -> bool {
        self.made
            .as_ref()
            .is_some_and(|made| made.balancer.pending.is_some())
    }
}

/// A load balancer, with what was asked for.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub request: Arc<Request>,
    pub nodes: Arc<[Node]>,
    pub endpoints: Arc<[Endpoint]>,
    pub balancer: Balancer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub kind: Kind,
    pub reason: String,
    pub message: String,
    /// Tries that failed in a row.
    pub attempts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It takes time; when to ask again.
    Waiting(Duration),
    /// It cannot be done as things are.
    Refused,
    Failed,
}

impl Trouble {
    /// What follows from an answer; `before` is the trouble there was.
    pub(super) fn of(error: &ProviderError, before: Option<&Self>) -> Option<Self> {
        let attempts = before.map_or(0, |before| before.attempts);
        let (kind, reason) = match error {
            ProviderError::Elsewhere => return None,
            ProviderError::RetryAfter { after, .. } => (Kind::Waiting(*after), "Pending"),
            ProviderError::Refused { reason, .. } => (Kind::Refused, *reason),
            ProviderError::Failed(_) => (Kind::Failed, "EnsureFailed"),
        };
        let attempts = if matches!(kind, Kind::Waiting(_)) {
            attempts
        } else {
            attempts.saturating_add(1)
        };
        Some(Self {
            kind,
            reason: reason.to_owned(),
            message: error.to_string(),
            attempts,
        })
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.kind, Kind::Waiting(_))
    }

    pub(super) fn is_refused(&self) -> bool {
        self.kind == Kind::Refused
    }

    pub(super) fn told(&self) -> String {
        format!("{} (attempt {})", self.message, self.attempts)
    }
}
