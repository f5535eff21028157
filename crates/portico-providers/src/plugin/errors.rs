//! Errors of providers as gRPC statuses, and back. What a status has no room for is in trailing
//! metadata, which every language's gRPC can write without further packages.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tonic::{Code, Status};

use crate::ProviderError;

const REASON: &str = "portico-reason";
const RETRY_AFTER: &str = "portico-retry-after-ms";
/// A plugin may not keep the controller waiting for longer than this.
const LONGEST: Duration = Duration::from_secs(600);
/// Words that plugins may have for their refusals, and how long one may be.
const MOST_REASONS: usize = 256;
const LONGEST_REASON: usize = 64;

pub(super) fn to_status(error: &ProviderError) -> Status {
    let message = error.to_string();
    match error {
        ProviderError::RetryAfter { after, .. } => with(
            Status::unavailable(message),
            RETRY_AFTER,
            &after.as_millis().to_string(),
        ),
        ProviderError::Elsewhere => Status::already_exists(message),
        ProviderError::Refused { reason, .. } => {
            with(Status::failed_precondition(message), REASON, reason)
        }
        ProviderError::Failed(_) => Status::unknown(message),
    }
}

fn with(mut status: Status, key: &'static str, value: &str) -> Status {
    if let Ok(value) = value.parse() {
        status.metadata_mut().insert(key, value);
    }
    status
}

pub(super) fn from_status(status: &Status) -> ProviderError {
    let message = status.message().to_owned();
    match (status.code(), retry_after(status)) {
        (Code::AlreadyExists, _) => ProviderError::Elsewhere,
        (
            Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::ResourceExhausted
            | Code::OutOfRange,
            _,
        ) => ProviderError::Refused {
            reason: reason(status),
            message,
        },
        (Code::Unavailable, Some(after)) => ProviderError::RetryAfter {
            after,
            reason: message,
        },
        (code, _) => ProviderError::Failed(format!("the plugin: {} ({code:?})", cause(status))),
    }
}

/// The connection failed, not the plugin.
pub(super) fn is_outage(status: &Status) -> bool {
    status.source().is_some()
}

/// What the operating system said, or else the plugin.
pub(super) fn cause(status: &Status) -> String {
    let causes = std::iter::successors(status.source(), |&error| error.source());
    causes
        .last()
        .map_or_else(|| status.message().to_owned(), ToString::to_string)
}

fn retry_after(status: &Status) -> Option<Duration> {
    let text = status.metadata().get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_millis(text.parse().ok()?).min(LONGEST))
}

fn reason(status: &Status) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let reason = status
        .metadata()
        .get(REASON)
        .and_then(|reason| reason.to_str().ok());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    reason
        .and_then(|reason| keep(&mut known, reason))
        .unwrap_or("Refused")
}

/// Reasons are words of the program, which live for ever. So do those of plugins, of which there
/// may not be many.
fn keep(known: &mut BTreeSet<&'static str>, reason: &str) -> Option<&'static str> {
    let is_word = reason.starts_with(|first: char| first.is_ascii_uppercase())
        && reason.chars().all(|letter| letter.is_ascii_alphanumeric());
    if !is_word || reason.len() > LONGEST_REASON {
        return None;
    }
    if let Some(reason) = known.get(reason) {
        return Some(reason);
    }
    if known.len() >= MOST_REASONS {
        return None;
    }
    let reason: &'static str = String::leak(reason.to_owned());
    known.insert(reason);
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_survive_the_way() {
        let after = Duration::from_millis(1500);
        for error in [
            ProviderError::RetryAfter {
                after,
                reason: "being built".to_owned(),
            },
            ProviderError::Elsewhere,
            ProviderError::Refused {
                reason: "QuotaExceeded",
                message: "no more than ten".to_owned(),
            },
        ] {
            assert_eq!(from_status(&to_status(&error)), error);
        }
        let failed = from_status(&to_status(&ProviderError::Failed("disk full".to_owned())));
        assert_eq!(
            failed,
            ProviderError::Failed("the plugin: disk full (Unknown)".to_owned())
        );
    }

    #[test]
    fn a_plugin_cannot_fill_the_memory_with_reasons() {
        let mut known = BTreeSet::new();
        assert_eq!(keep(&mut known, "Has Spaces"), None);
        assert_eq!(keep(&mut known, &"A".repeat(65)), None);
        let words = (0..2 * MOST_REASONS)
            .filter(|number| keep(&mut known, &format!("R{number}")).is_some());
        assert_eq!(words.count(), MOST_REASONS);
        assert_eq!(keep(&mut known, "R0"), Some("R0"));
    }

    #[test]
    fn what_is_unavailable_without_a_time_has_failed() {
        assert!(matches!(
            from_status(&Status::unavailable("later")),
            ProviderError::Failed(_)
        ));
        let never = with(Status::unavailable("later"), RETRY_AFTER, "99999999999");
        assert_eq!(
            from_status(&never),
            ProviderError::RetryAfter {
                after: LONGEST,
                reason: "later".to_owned()
            }
        );
    }
}
