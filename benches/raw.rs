//! HTTP/1.1 over TLS with as little work as possible: the client shares the cores with the server.
#![allow(dead_code, reason = "each benchmark uses its own part of this module")]

use common::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::common;

/// A prebuilt POST of a JSON body.
pub(crate) fn post(path: &str, body: &str) -> Vec<u8> {
    request(
        "POST",
        path,
        &format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        ),
        body,
    )
}

/// A prebuilt PUT of a JSON body.
pub(crate) fn put(path: &str, body: &str) -> Vec<u8> {
    request(
        "PUT",
        path,
        &format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        ),
        body,
    )
}

pub(crate) fn get(path: &str) -> Vec<u8> {
    request("GET", path, "", "")
}

/// A prebuilt merge patch.
pub(crate) fn patch(path: &str, body: &str) -> Vec<u8> {
    let headers = format!(
        "Content-Type: application/merge-patch+json\r\nContent-Length: {}\r\n",
        body.len()
    );
    request("PATCH", path, &headers, body)
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer admin-token\r\n\
         Accept: application/json\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

/// A kept connection.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    read: Vec<u8>,
    /// Of the last answer.
    pub body_bytes: usize,
}

impl Connection {
    pub(crate) async fn open(client: &Client) -> Self {
        let stream = client.tls_stream().await.unwrap();
        Self {
            stream,
            read: Vec::with_capacity(16 << 10),
            body_bytes: 0,
        }
    }

    /// Sends a request and reads the answer away; its status.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> u16 {
        self.stream.write_all(request).await.unwrap();
        self.stream.flush().await.unwrap();
        let head = self.head().await;
        let status = status(&self.read);
        let header = String::from_utf8_lossy(&self.read[..head]).to_ascii_lowercase();
        let length = header
            .split("content-length:")
            .nth(1)
            .and_then(|rest| rest.lines().next()?.trim().parse().ok());
        let seen = self.read.len() - head;
        self.body_bytes = match length {
            Some(length) => self.counted(seen, length).await,
            None => self.chunked(head).await,
        };
        status
    }

    /// Opens a watch: sends the request and reads the head of the answer.
    pub(crate) async fn watch(mut self, request: &[u8]) -> Self {
        self.stream.write_all(request).await.unwrap();
        self.stream.flush().await.unwrap();
        let head = self.head().await;
        assert_eq!(status(&self.read), 200);
        self.read.drain(..head);
        self
    }

    /// Waits until an event has arrived in whole.
    pub(crate) async fn event(&mut self) {
        while !self.read.windows(2).any(|pair| pair == b"}\n") {
            assert!(
                self.stream.read_buf(&mut self.read).await.unwrap() > 0,
                "the watch ended"
            );
        }
        self.read.clear();
    }

    async fn head(&mut self) -> usize {
        self.read.clear();
        loop {
            if let Some(end) = self.read.windows(4).position(|part| part == b"\r\n\r\n") {
                return end + 4;
            }
            assert!(
                self.stream.read_buf(&mut self.read).await.unwrap() > 0,
                "the server hung up"
            );
        }
    }

    async fn counted(&mut self, mut seen: usize, length: usize) -> usize {
        while seen < length {
            self.read.clear();
            seen += self.stream.read_buf(&mut self.read).await.unwrap();
        }
        length
    }

    /// Reads to the last chunk, which is the only place where its bytes appear at the end of a
    /// read.
    async fn chunked(&mut self, head: usize) -> usize {
        let mut bytes = self.read.len() - head;
        while !self.read.ends_with(b"\r\n0\r\n\r\n") {
            let keep = self.read.len().min(6);
            self.read.drain(..self.read.len() - keep);
            bytes += self.stream.read_buf(&mut self.read).await.unwrap();
        }
        bytes
    }
}

fn status(answer: &[u8]) -> u16 {
    std::str::from_utf8(&answer[9..12])
        .unwrap()
        .parse()
        .unwrap()
}
