//! The pages for people and machines: `/metrics`, `/readyz`, `/healthz`, and `/nodes`, which says
//! why a node is given or not.

use crate::metrics::Metrics;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use portico_client::pages;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// Connections at a time.
const MOST_CONNECTIONS: usize = 32;

/// A request for the state of nodes: the answer is sent through it.
pub(crate) type Curious = oneshot::Sender<String>;

/// Where the answers come from.
pub(crate) struct Pages {
    metrics: Arc<Metrics>,
    pub ready: AtomicBool,
    nodes: mpsc::Sender<Curious>,
}

impl Pages {
    pub(crate) fn new(metrics: Arc<Metrics>, nodes: mpsc::Sender<Curious>) -> Self {
        Self {
            metrics,
            ready: AtomicBool::new(false),
            nodes,
        }
    }

    async fn nodes(&self) -> Option<String> {
        let (tell, told) = oneshot::channel();
        self.nodes.send(tell).await.ok()?;
        told.await.ok()
    }

    async fn answer(&self, path: &str) -> (StatusCode, &'static str, String) {
        let text = "text/plain; charset=utf-8";
        match path {
            "/metrics" => (
                StatusCode::OK,
                portico_client::metrics::CONTENT_TYPE,
                self.metrics.text(),
            ),
            "/healthz" | "/livez" => (StatusCode::OK, text, "ok\n".to_owned()),
            "/readyz" if self.ready.load(Ordering::Relaxed) => {
                (StatusCode::OK, text, "ok\n".to_owned())
            }
            "/readyz" => (
                StatusCode::SERVICE_UNAVAILABLE,
                text,
                "the zone is not complete yet\n".to_owned(),
            ),
            "/nodes" => (StatusCode::OK, text, self.nodes().await.unwrap_or_default()),
            _ => (
                StatusCode::NOT_FOUND,
                text,
                "there are /metrics, /readyz, /healthz and /nodes\n".to_owned(),
            ),
        }
    }
}

/// Serve until dropped.
pub(crate) async fn serve(listener: TcpListener, pages: Arc<Pages>) -> Infallible {
    pages::serve(listener, MOST_CONNECTIONS, move |request| {
        answer(Arc::clone(&pages), request)
    })
    .await
}

async fn answer(pages: Arc<Pages>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (code, kind, body) = pages.answer(request.uri().path()).await;
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
