//! How much the server takes on at once; beyond that it says so instead of queueing without end.

use portico_api::status::ApiError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest request body.
pub const MOST_BODY: usize = 3 * 1024 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Reads under way.
    pub reads: usize,
    /// Writes under way.
    pub writes: usize,
    /// Open watches.
    pub watches: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            watches: 20_000,
        }
    }
}

pub struct Limits {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

/// What a request does with the server's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Read,
    Write,
    Watch,
}

impl Limits {
    pub fn new(sizes: Sizes) -> Self {
        let semaphore = |size: usize| Arc::new(Semaphore::new(size.min(Semaphore::MAX_PERMITS)));
        Self {
            reads: semaphore(sizes.reads),
            writes: semaphore(sizes.writes),
            watches: semaphore(sizes.watches),
        }
    }

    /// A place for this request, kept until it is dropped; or 429.
    pub fn enter(&self, load: Load) -> Result<OwnedSemaphorePermit, ApiError> {
        let (semaphore, what) = match load {
            Load::Read => (&self.reads, "reads"),
            Load::Write => (&self.writes, "writes"),
            Load::Watch => (&self.watches, "watches"),
        };
        Arc::clone(semaphore).try_acquire_owned().map_err(|_| {
            ApiError::too_many_requests(
                format!("the server has as many {what} under way as it takes, please try again"),
                1,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_server_says_when_to_come_back() {
        let limits = Limits::new(Sizes {
            reads: 1,
            writes: 1,
            watches: 0,
        });
        let first = limits.enter(Load::Read);
        assert!(first.is_ok());
        let error = limits.enter(Load::Read).map(|_| ()).unwrap_err();
        assert_eq!(
            (error.code, error.details.get("retryAfterSeconds")),
            (429, Some(&1.into()))
        );
        drop(first);
        assert!(limits.enter(Load::Read).is_ok());
        assert!(limits.enter(Load::Watch).is_err());
    }
}
