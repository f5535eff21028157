//! One page over plain HTTP, as nodes show their health and their metrics.

use anyhow::Context;
use bytes::Bytes;
use http::header::HOST;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

const MOST_BYTES: usize = 64 << 20;

pub(crate) struct Answer {
    pub code: u16,
    pub body: String,
}

pub(crate) async fn get(at: SocketAddr, path: &str, patience: Duration) -> anyhow::Result<Answer> {
    let asked = async { ask(TcpStream::connect(at).await?, at, path).await };
    tokio::time::timeout(patience, asked)
        .await
        .with_context(|| format!("no answer within {patience:?}"))?
}

/// Asks over a connection that is open already.
pub(crate) async fn over(
    stream: TcpStream,
    at: SocketAddr,
    path: &str,
    patience: Duration,
) -> anyhow::Result<Answer> {
    let asked = tokio::time::timeout(patience, ask(stream, at, path)).await;
    asked.with_context(|| format!("no answer within {patience:?}"))?
}

async fn ask(stream: TcpStream, at: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = http::Request::get(path)
        .header(HOST, at.to_string())
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    let code = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
    Ok(Answer {
        code,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}
