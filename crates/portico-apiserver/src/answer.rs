//! What goes back to the client: a code, headers, and a body that is either there or streamed.

use crate::limits::Share;
use crate::negotiate::{Accept, Wire};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use hyper::header::{self, HeaderValue};
use portico_api::status::ApiError;
use serde_json::Value;
use std::convert::Infallible;
use std::io::Write;

/// Longer warnings together are cut.
const MOST_WARNING_CHARACTERS: usize = 4096;
const MOST_CHARACTERS_OF_ONE: usize = 256;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers smaller than this are not worth compressing.
const COMPRESS_FROM: usize = 128 * 1024;

pub(crate) struct Answer {
    pub code: u16,
    content_type: String,
    content: Content,
    warnings: Vec<String>,
    retry_after: Option<u64>,
    etag: Option<String>,
    packed: bool,
    /// The connection (HTTP/1) ends after this answer.
    last: bool,
    /// What the bytes of this answer were taken from.
    charged: Option<Share>,
    /// Values that are dropped once the answer has been sent or the client has gone.
    kept: Vec<Box<dyn Send>>,
}

enum Content {
    Bytes(Bytes),
    Stream(Body),
}

impl Answer {
    pub(crate) fn bytes(code: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            code,
            content_type: content_type.to_owned(),
            content: Content::Bytes(body.into()),
            warnings: Vec::new(),
            retry_after: None,
            etag: None,
            packed: false,
            last: false,
            charged: None,
            kept: Vec::new(),
        }
    }

    pub(crate) fn json(code: u16, value: &Value) -> Self {
        Self::bytes(code, "application/json", value.to_string())
    }

    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        Self::bytes(code, "text/plain; charset=utf-8", text.into())
    }

    pub(crate) fn stream(
        content_type: &str,
        pieces: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Self {
        let body = StreamBody::new(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        Self {
            content: Content::Stream(BodyExt::boxed_unsync(body)),
            ..Self::bytes(200, content_type, Bytes::new())
        }
    }

    pub(crate) fn warn(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    pub(crate) fn etag(mut self, etag: String) -> Self {
        self.etag = Some(etag);
        self
    }

    pub(crate) fn last(mut self) -> Self {
        self.last = true;
        self
    }

    /// The bytes of this answer have their share already.
    pub(crate) fn charged(mut self, share: Share) -> Self {
        self.charged = Some(share);
        self
    }

    pub(crate) fn is_charged(&self) -> bool {
        self.charged.is_some()
    }

    /// Keep something until the answer has been sent or dropped.
    pub(crate) fn holding(mut self, guard: impl Send + 'static) -> Self {
        self.kept.push(Box::new(guard));
        self
    }

    /// How many bytes there are to send; a stream has none yet.
    pub(crate) fn size(&self) -> usize {
        match &self.content {
            Content::Bytes(bytes) => bytes.len(),
            Content::Stream(_) => 0,
        }
    }

    /// Is it worth compressing for a client that accepts these encodings?
    pub(crate) fn is_packable(&self, accept_encoding: &str) -> bool {
        let accepted = accept_encoding.split(',').any(|part| {
            part.split(';')
                .next()
                .is_some_and(|coding| coding.trim() == "gzip")
        });
        accepted && self.size() >= COMPRESS_FROM
    }

    /// Compress the body.
    pub(crate) fn pack(&mut self) {
        let Content::Bytes(bytes) = &self.content else {
            return;
        };
        if let Some(packed) = compressed(bytes) {
            if let Some(share) = &mut self.charged {
                share.settle(packed.len());
            }
            self.content = Content::Bytes(packed);
            self.packed = true;
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream(_))
    }

    pub(crate) fn into_response(self, audit_id: &str) -> Response<Body> {
        let mut response = Response::new(BodyExt::boxed_unsync(Full::new(Bytes::new())));
        *response.status_mut() = hyper::StatusCode::from_u16(self.code)
            .unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        let mut set = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(name, value);
            }
        };
        set(header::CONTENT_TYPE, &self.content_type);
        set(header::CACHE_CONTROL, "no-cache, private");
        set(header::HeaderName::from_static("audit-id"), audit_id);
        for warning in shortened(&self.warnings) {
            set(header::WARNING, &format!("299 - {}", quoted(&warning)));
        }
        if let Some(seconds) = self.retry_after {
            set(header::RETRY_AFTER, &seconds.to_string());
        }
        if self.last {
            set(header::CONNECTION, "close");
        }
        if let Some(etag) = &self.etag {
            set(header::ETAG, etag);
        }
        if self.packed {
            set(header::CONTENT_ENCODING, "gzip");
            set(header::VARY, "Accept-Encoding");
        }
        let kept = (self.kept, self.charged);
        let body = match self.content {
            Content::Stream(body) => BodyExt::boxed_unsync(body.map_frame(move |frame| {
                let _kept = &kept;
                frame
            })),
            Content::Bytes(bytes) => {
                let held = Bytes::from_owner(Held { bytes, _kept: kept });
                BodyExt::boxed_unsync(Full::new(held))
            }
        };
        *response.body_mut() = body;
        response
    }
}

/// Bytes that keep something as long as any part of them is in memory, also in the buffers of a
/// connection.
struct Held {
    bytes: Bytes,
    _kept: (Vec<Box<dyn Send>>, Option<Share>),
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answer {
    /// An error, in the encoding that the client accepts, or else in JSON.
    pub(crate) fn error(error: &ApiError, accept: &str) -> Self {
        let retry_after = error
            .details
            .get("retryAfterSeconds")
            .and_then(Value::as_u64);
        let status = error.status();
        let wire = Accept::parse(accept, "", false).map_or(Wire::Json, |accept| accept.wire);
        let body = crate::render::written(
            "Status",
            status.clone(),
            Accept {
                wire,
                ..Accept::JSON
            },
        );
        let answer = match body {
            Ok(body) => Self::bytes(error.code, wire.content_type(), body),
            Err(_) => Self::json(error.code, &status),
        };
        Self {
            retry_after,
            ..answer
        }
    }
}

/// Warnings that together are too long for a header are cut, each and all, as in Kubernetes. A
/// client can make them as long as its body.
fn shortened(warnings: &[String]) -> Vec<String> {
    let length = |text: &String| text.chars().count();
    if warnings.iter().map(length).sum::<usize>() <= MOST_WARNING_CHARACTERS {
        return warnings.to_vec();
    }
    let cut = warnings
        .iter()
        .map(|text| text.chars().take(MOST_CHARACTERS_OF_ONE).collect());
    let mut told = 0;
    cut.take_while(|text: &String| {
        let before = told;
        told += length(text);
        before < MOST_WARNING_CHARACTERS
    })
    .collect()
}

/// A quoted string of an HTTP header: no control characters, quotes escaped.
fn quoted(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

fn compressed(bytes: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
