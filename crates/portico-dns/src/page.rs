//! The pages for people and machines: `/metrics`, `/readyz`, `/healthz`, and `/nodes`, which says
//! why a node is given or not.

use crate::metrics::Metrics;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Connections at a time.
const MOST_CONNECTIONS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(5);

/// Whoever wants to know the state of nodes leaves word of where to tell it.
pub type Curious = oneshot::Sender<String>;

/// Where the answers come from.
pub struct Pages {
    metrics: Arc<Metrics>,
    pub ready: AtomicBool,
    nodes: mpsc::Sender<Curious>,
}

impl Pages {
    pub fn new(metrics: Arc<Metrics>, nodes: mpsc::Sender<Curious>) -> Pages {
        Pages {
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
pub async fn serve(listener: TcpListener, pages: Arc<Pages>) -> Infallible {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            continue;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let pages = Arc::clone(&pages);
        tokio::spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&pages), request));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // Whoever asked is gone; there is nobody to tell.
            let _ = tokio::time::timeout(2 * PATIENCE, connection).await;
            drop(place);
        });
    }
}

async fn answer(
    pages: Arc<Pages>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (code, kind, body) = pages.answer(request.uri().path()).await;
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}
