//! A client for tests: sends bytes, reads to the end.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(super) struct Got {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("the body is JSON")
    }
}

pub(super) async fn get(address: SocketAddr, path: &str) -> Got {
    request(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    )
    .await
}

/// Sends a request as soon as the server listens.
pub(super) async fn request(address: SocketAddr, text: &str) -> Got {
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    stream
        .write_all(text.as_bytes())
        .await
        .expect("the server reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("the server answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    Got {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

pub(super) async fn listens(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Closed, or so in a moment: a process that another test just started may still hold the socket.
pub(super) async fn refused(address: SocketAddr) -> bool {
    for _ in 0..1_000 {
        if !listens(address).await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}
