//! The seam between what a provider says and the wire. The real one is `http`; any function from
//! request to response is one too, which is how clouds in memory are asked; `faults` wraps one.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};

/// The answer to a request, whatever its status.
pub type Sent<'a> = BoxFuture<'a, Result<Response<Bytes>, TransportError>>;

/// Sends a request and reads its answer: over HTTP, or to a cloud in memory.
pub trait Transport: Send + Sync {
    /// Sends a request, once.
    fn send(&self, request: Request<Bytes>) -> Sent<'_>;
}

impl<F> Transport for F
where
    F: Fn(Request<Bytes>) -> Result<Response<Bytes>, TransportError> + Send + Sync,
{
    fn send(&self, request: Request<Bytes>) -> Sent<'_> {
        Box::pin(async move { self(request) })
    }
}

/// There is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The server has not seen the request.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The server may have done what was asked.
    #[error("no answer: {0}")]
    Lost(String),
    /// The same.
    #[error("no answer in {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The answer is larger than what is read.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
}
