//! The pages beside health: `/metrics`, `/healthz`, `/proxyMode`, `/configz`.

use super::Metrics;
use crate::blocking::run_blocking;
use crate::health::listen::{self, Answer};
use http::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, body::Incoming};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const RETRY: Duration = Duration::from_secs(5);
const METRICS: HeaderValue = HeaderValue::from_static(portico_client::metrics::CONTENT_TYPE);
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) struct Pages {
    pub metrics: Arc<Metrics>,
    pub mode: &'static str,
    /// The configuration with its defaults.
    pub config: Value,
}

/// Serve until dropped. A port that is taken is tried again and again, unless that is `fatal`.
pub(crate) async fn serve(
    address: SocketAddr,
    pages: Pages,
    fatal: bool,
) -> io::Result<Infallible> {
    let listener = loop {
        match listen::bind_everywhere(address) {
            Ok(listener) => break listener,
            Err(error) if fatal => return Err(error),
            Err(error) => tracing::error!(%address, %error, "cannot serve metrics, will try again"),
        }
        tokio::time::sleep(RETRY).await;
    };
    tracing::info!(%address, "serving metrics");
    Ok(listen::serve(listener, move |request| pages.answer(request)).await)
}

impl Pages {
    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let (content_type, body) = match request.uri().path() {
            // It may count all connections of the node.
            "/metrics" => (METRICS, run_blocking(|| self.metrics.text())),
            "/healthz" => (TEXT, "ok".to_owned()),
            "/proxyMode" => (TEXT, self.mode.to_owned()),
            "/configz" => (
                JSON,
                json!({ "kubeproxy.config.k8s.io": self.config }).to_string(),
            ),
            _ => return listen::not_found(),
        };
        let mut answer = listen::json(true, body);
        answer.headers_mut().insert(CONTENT_TYPE, content_type);
        answer
    }
}
