//! What the dashboard answers: its files, the few lists and watches that the page needs, and
//! explanations.

use super::door::{Door, Visitor};
use crate::client::Reader;
use crate::explain::{self, Question, Settings};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use std::collections::BTreeMap;

type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;
type Answer = Response<Body>;

/// The page and what belongs to it.
const FILES: [(&str, &str, &str); 6] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    ("/style.css", "text/css", include_str!("page/style.css")),
    ("/main.js", "text/javascript", include_str!("page/main.js")),
    ("/api.js", "text/javascript", include_str!("page/api.js")),
    (
        "/model.js",
        "text/javascript",
        include_str!("page/model.js"),
    ),
    (
        "/picture.js",
        "text/javascript",
        include_str!("page/picture.js"),
    ),
];

/// What may be read through here, and nothing else: no Secret, no ConfigMap.
const LISTS: [&str; 4] = [
    "/api/v1/nodes",
    "/api/v1/services",
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
    "/apis/discovery.k8s.io/v1/endpointslices",
];

/// Nothing from elsewhere, nothing to elsewhere, in nobody's frame.
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

pub struct Site {
    pub client: Client,
    pub door: Door,
    pub settings: Settings,
}

impl Site {
    pub async fn answer(&self, request: &Request<Incoming>) -> Answer {
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
        let authorization = match self
            .door
            .visitor(request.headers().get(header::AUTHORIZATION))
        {
            Visitor::Owner => None,
            Visitor::Bearer(value) => Some(value),
            Visitor::Unknown => return text(StatusCode::UNAUTHORIZED, self.door.advice()),
        };
        let reader = Reader {
            client: self.client.clone(),
            authorization,
        };
        match path {
            "/explain" => {
                self.explain(&reader, request.uri().query().unwrap_or_default())
                    .await
            }
            _ if LISTS.contains(&path) => {
                pass(
                    &reader,
                    request
                        .uri()
                        .path_and_query()
                        .map_or(path, |all| all.as_str()),
                )
                .await
            }
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

/// The API server's own answer, as it arrives.
async fn pass(reader: &Reader, path: &str) -> Answer {
    match reader.get(path).await {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let mut passed = Response::new(body.map_err(Into::into).boxed_unsync());
            *passed.status_mut() = head.status;
            if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
                passed
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, kind.clone());
            }
            passed
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
