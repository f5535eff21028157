//! Servers on loopback that answer HTTP with who they are, and remember who came.

use crate::rig::get;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Answers every request with its address, also on kept connections, until it is dropped.
pub(crate) struct Endpoint {
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    retired: AtomicBool,
    strays: AtomicU64,
    /// Answers 503.
    sick: AtomicBool,
}

impl Endpoint {
    pub(crate) async fn start(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                if shared.retired.load(Ordering::Relaxed) {
                    shared.strays.fetch_add(1, Ordering::Relaxed);
                }
                tokio::spawn(serve(stream, address, Arc::clone(&shared)));
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    /// From now on, or no longer, nobody should come. Those who wait at the door were here before.
    pub(crate) async fn retire(&self, retired: bool) {
        if retired && !self.state.retired.load(Ordering::Relaxed) {
            assert!(
                get(self.address.ip(), self.address).await.is_some(),
                "an endpoint answers"
            );
        }
        self.state.retired.store(retired, Ordering::Relaxed);
    }

    /// Who came though nobody should.
    pub(crate) fn strays(&self) -> u64 {
        self.state.strays.load(Ordering::Relaxed)
    }

    pub(crate) fn fall_sick(&self, sick: bool) {
        self.state.sick.store(sick, Ordering::Relaxed);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, address: SocketAddr, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let mut seen = Vec::new();
    loop {
        while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&seen[..end]).to_ascii_lowercase();
            seen.drain(..end + 4);
            let close = head.contains("connection: close");
            let status = if state.sick.load(Ordering::Relaxed) {
                "503 Sick"
            } else {
                "200 OK"
            };
            let connection = if close { "close" } else { "keep-alive" };
            let body = address.to_string();
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: \
                 {connection}\r\n\r\n{body}"
            );
            if stream.write_all(answer.as_bytes()).await.is_err() || close {
                let _ = stream.shutdown().await;
                return;
            }
        }
        match stream.read_buf(&mut seen).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Takes one connection after another and tells what came first on each.
pub(crate) async fn listen_raw(address: SocketAddr) -> tokio::sync::mpsc::Receiver<Vec<u8>> {
    let listener = TcpListener::bind(address).await.unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut first = vec![0; 512];
                let length = stream.read(&mut first).await.unwrap_or(0);
                first.truncate(length);
                let _ = sender.send(first).await;
                let _ = stream.write_all(b"ok").await;
            });
        }
    });
    receiver
}
