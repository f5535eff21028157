//! What the dashboard answers: its files, the fleet as it changes, and explanations.

use super::sign_in::{Caller, SignIn};
use super::stream;
use crate::client::Reader;
use crate::explain::{self, Question, Settings};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use std::collections::BTreeMap;

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type Answer = Response<Body>;

/// The page and what belongs to it.
const FILES: [(&str, &str, &str); 5] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    ("/style.css", "text/css", include_str!("page/style.css")),
    ("/main.js", "text/javascript", include_str!("page/main.js")),
    ("/api.js", "text/javascript", include_str!("page/api.js")),
    (
        "/picture.js",
        "text/javascript",
        include_str!("page/picture.js"),
    ),
];

/// The page loads nothing from other servers, sends nothing to them, and is shown in no frame.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The most bytes of a refusal of the API server.
const MOST_REFUSAL: usize = 64 << 10;

pub(super) struct Site {
    pub client: Client,
    pub sign_in: SignIn,
    pub settings: Settings,
}

impl Site {
    pub(super) async fn answer(&self, request: &Request<Incoming>) -> Answer {
        let mut answer = self.find(request).await;
        for (name, value) in HEADERS {
            answer
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn find(&self, request: &Request<Incoming>) -> Answer {
        let path = request.uri().path();
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "this page only reads");
        }
        if let Some((_, kind, content)) = FILES.iter().find(|(name, ..)| *name == path) {
            return with_kind(text(StatusCode::OK, content), kind);
        }
        let header = request.headers().get(header::AUTHORIZATION);
        let authorization = match self.sign_in.caller(header) {
            Caller::Owner => None,
            Caller::Bearer(value) => Some(value),
            Caller::Unknown => return text(StatusCode::UNAUTHORIZED, self.sign_in.advice()),
        };
        let reader = Reader {
            client: self.client.clone(),
            authorization,
        };
        let query = request.uri().query().unwrap_or_default();
        match path {
            "/explain" => self.explain(&reader, query).await,
            "/fleet" => fleet(reader).await,
            _ => text(StatusCode::NOT_FOUND, "there is nothing here"),
        }
    }

    async fn explain(&self, reader: &Reader, query: &str) -> Answer {
        let fields: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).collect();
        let field = |name: &str| {
            fields
                .get(name)
                .map(|value| value.trim())
                .unwrap_or_default()
        };
        let (from, to) = match (field("from").parse(), field("to").parse()) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(problem), _) => return text(StatusCode::BAD_REQUEST, &format!("from: {problem}")),
            (_, Err(problem)) => return text(StatusCode::BAD_REQUEST, &format!("to: {problem}")),
        };
        let node = Some(field("node")).filter(|name| !name.is_empty());
        let question = Question {
            source_port: None,
            from,
            to,
            node: node.map(str::to_owned),
        };
        match explain::answer(reader, &self.settings, &question).await {
            Ok(told) => text(StatusCode::OK, &told.to_string()),
            Err(problem) => text(StatusCode::UNPROCESSABLE_ENTITY, &format!("{problem:#}")),
        }
    }
}

/// The fleet and its changes, for a caller that the API server lets read Services.
async fn fleet(reader: Reader) -> Answer {
    let allowed = reader.get("/api/v1/services?limit=1").await;
    match allowed {
        Ok(answer) if answer.status().is_success() => {
            let body = StreamBody::new(stream::lines(reader).map(|line| Ok(Frame::data(line))));
            with_kind(
                Response::new(body.boxed_unsync()),
                "application/x-ndjson; charset=utf-8",
            )
        }
        Ok(answer) => {
            let status = answer.status();
            let refusal = Limited::new(answer.into_body(), MOST_REFUSAL)
                .collect()
                .await;
            let reason = refusal.map(|body| body.to_bytes()).unwrap_or_default();
            text(status, &String::from_utf8_lossy(&reason))
        }
        Err(problem) => text(
            StatusCode::BAD_GATEWAY,
            &format!("the API server does not answer: {problem}"),
        ),
    }
}

fn text(status: StatusCode, content: &str) -> Answer {
    let body =
        Full::new(Bytes::copy_from_slice(content.as_bytes())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    with_kind(answer, "text/plain; charset=utf-8")
}

fn with_kind(mut answer: Answer, kind: &'static str) -> Answer {
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
