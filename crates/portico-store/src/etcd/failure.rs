//! What a failed call to etcd means: whether another member may be asked, and what the caller is
//! told.

use std::error::Error as StdError;

use tonic::{Code, Status};

use crate::Outage;

/// A call that did not succeed.
#[derive(Debug)]
pub(super) struct Failure(pub Status);

impl Failure {
    /// Another member, or the same one later, may answer.
    pub(super) fn is_outage(&self) -> bool {
        use Code::{Aborted, Cancelled, DeadlineExceeded, Internal, Unavailable, Unknown};
        matches!(
            self.0.code(),
            Aborted | Cancelled | DeadlineExceeded | Internal | Unavailable | Unknown
        )
    }

    /// The connection was never made, or the member refused before looking because it sees no
    /// leader.
    pub(super) fn was_not_sent(&self) -> bool {
        if self.causes().any(|cause| cause.is::<tonic::ConnectError>()) {
            return true;
        }
        self.0.code() == Code::Unavailable && self.0.message().ends_with("no leader")
    }

    pub(super) fn is_compacted(&self) -> bool {
        self.0.code() == Code::OutOfRange && self.0.message().contains("compacted")
    }

    /// Whether etcd is out of space: it takes no writes until it is compacted and defragmented.
    pub(super) fn is_full(&self) -> bool {
        self.0.code() == Code::ResourceExhausted && self.0.message().contains("space exceeded")
    }

    /// Why etcd will never take the request as it is, if so.
    pub(super) fn refusal(&self) -> Option<String> {
        (self.0.code() == Code::InvalidArgument)
            .then(|| format!("etcd says {:?}", self.0.message()))
    }

    pub(super) fn outage(self, what: &str) -> Outage {
        Outage::new(format!("etcd failed {what}: {}", self.reason()))
    }

    /// The same for a write, which may have happened nevertheless.
    pub(super) fn write_outage(self) -> Outage {
        if self.was_not_sent() || !self.is_outage() {
            return self.outage("a write");
        }
        Outage::unknown(format!("etcd did not answer a write: {}", self.reason()))
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        std::iter::successors(StdError::source(&self.0), |&error| error.source())
    }

    /// What the operating system or the certificate check said, or else what etcd said.
    fn reason(&self) -> String {
        self.causes()
            .last()
            .map_or_else(|| self.0.message().to_owned(), |cause| cause.to_string())
    }
}
