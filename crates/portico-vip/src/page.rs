//! The pages for people and machines: `/status`, `/metrics`, `/healthz`; and the way to read a
//! status from another process.

use crate::status::Status;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use portico_client::error::chain;
use portico_client::pages;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections at a time.
const MOST_CONNECTIONS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 4 << 20;

/// Where the answers come from.
pub trait Source: Send + Sync + 'static {
    /// The answer of `/status`.
    fn status(&self) -> impl Future<Output = Status> + Send;
    /// The answer of `/metrics`, in the text format of Prometheus.
    fn metrics(&self) -> impl Future<Output = String> + Send;
}

/// Serve until dropped.
pub async fn serve(listener: TcpListener, source: Arc<impl Source>) -> Infallible {
    pages::serve(listener, MOST_CONNECTIONS, move |request| {
        answer(Arc::clone(&source), request)
    })
    .await
}

async fn answer(source: Arc<impl Source>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (code, kind, body) = match request.uri().path() {
        "/status" => {
            let body = serde_json::to_string_pretty(&source.status().await).unwrap_or_default();
            (StatusCode::OK, "application/json", body)
        }
        "/metrics" => (
            StatusCode::OK,
            portico_client::metrics::CONTENT_TYPE,
            source.metrics().await,
        ),
        "/healthz" | "/livez" => (StatusCode::OK, "text/plain", "ok".to_owned()),
        _ => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "there are /status, /metrics and /healthz\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The status of the daemon that serves it at this address.
pub async fn fetch(address: SocketAddr) -> anyhow::Result<Status> {
    let hint = || {
        format!(
            "cannot read the status at {address}: does `portico vip` run here, with this \
             --status-address?"
        )
    };
    let asked = tokio::time::timeout(PATIENCE, ask(address)).await;
    let asked =
        asked.map_err(|_| anyhow::anyhow!("no answer within {PATIENCE:?}").context(hint()))?;
    asked.map_err(|error| anyhow::anyhow!("{}", chain(&*error)).context(hint()))
}

async fn ask(address: SocketAddr) -> Result<Status, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/status").header(http::header::HOST, address.to_string());
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    let body = Limited::new(answer.into_body(), MOST_BYTES)
        .collect()
        .await?
        .to_bytes();
    Ok(serde_json::from_slice(&body)?)
}
