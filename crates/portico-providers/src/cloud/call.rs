//! One call of a cloud's API: what is asked, whether it may be repeated, and the answer.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{CallError, Problem};
use super::retry::Repeat;

/// What RFC 3986 lets stand.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A text as it may stand in one part of a path, or in a query.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A call as it is built up. Calls that read may be repeated; those that write only if the server
/// has surely not acted, unless [`Call::repeatable`] says that a second time does no harm.
#[derive(Clone, Debug)]
pub struct Call {
    /// For metrics, logs and errors: one of a few names.
    pub operation: &'static str,
    pub(super) repeat: Repeat,
    pub(super) deadline: Option<Duration>,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Result<Bytes, String>,
}

impl Call {
    /// A call; `operation` names it in metrics and errors.
    pub fn new(operation: &'static str, method: Method, url: impl Into<String>) -> Self {
        let repeat = if method.is_safe() {
            Repeat::Always
        } else {
            Repeat::IfRefused
        };
        let (headers, body) = (HeaderMap::new(), Ok(Bytes::new()));
        Self {
            operation,
            repeat,
            deadline: None,
            method,
            url: url.into(),
            headers,
            body,
        }
    }

    /// A GET of this address.
    pub fn get(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::GET, url)
    }

    /// A POST to this address.
    pub fn post(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::POST, url)
    }

    /// A PUT to this address.
    pub fn put(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::PUT, url)
    }

    /// A PATCH of this address.
    pub fn patch(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::PATCH, url)
    }

    /// A DELETE of this address.
    pub fn delete(operation: &'static str, url: impl Into<String>) -> Self {
        Self::new(operation, Method::DELETE, url)
    }

    /// A second time does what the first did.
    pub fn repeatable(mut self) -> Self {
        self.repeat = Repeat::Always;
        self
    }

    /// Sets how long one try may take, for a call that is slow by nature.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Adds a parameter to the query.
    pub fn query(mut self, name: &str, value: &str) -> Self {
        let mark = if self.url.contains('?') { '&' } else { '?' };
        self.url.push(mark);
        self.url
            .push_str(&format!("{}={}", encode(name), encode(value)));
        self
    }

    /// Headers with secrets are marked: `HeaderValue::set_sensitive`.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets the body.
    pub fn json(mut self, body: &impl Serialize) -> Self {
        self.body = serde_json::to_vec(body)
            .map(Bytes::from)
            .map_err(|error| error.to_string());
        self.header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    /// `application/x-www-form-urlencoded`
    pub fn form<'a>(mut self, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let fields = fields
            .into_iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        // Forms have always had their own way with spaces, and not every server knows the other.
        self.body = Ok(Bytes::from(
            fields.collect::<Vec<_>>().join("&").replace("%20", "+"),
        ));
        self.header(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8"),
        )
    }

    /// The request as it is sent, but for its authentication.
    pub(super) fn request(&self) -> Result<Request<Bytes>, CallError> {
        let failed = |problem: String| CallError::new(self.operation, Problem::Request(problem));
        let body = self.body.clone().map_err(failed)?;
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&self.url)
            .body(body);
        let mut request = request.map_err(|error| failed(format!("{error}: {}", self.url)))?;
        *request.headers_mut() = self.headers.clone();
        Ok(request)
    }
}

/// A good answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The operation of the call.
    pub operation: &'static str,
    /// The status of the answer.
    pub status: StatusCode,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The whole body of the answer.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| CallError::new(self.operation, Problem::Decode(error)))
    }

    /// The value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// `Retry-After`, where it is in seconds: clouds do not send dates.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}
