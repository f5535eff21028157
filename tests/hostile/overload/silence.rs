//! Connections that say nothing, or next to nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{Client, PATIENCE, Server, Store};

/// Everything that is too little ends in seconds; a quiet watch and an idle client stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_end_in_seconds() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let services = "/api/v1/namespaces/default/services";
    let mut watch = client
        .watch(&format!("{services}?watch=1&fieldSelector=metadata.name=a"))
        .await;
    let mut idle = client.http2().await;
    assert_eq!(idle.get("/livez").await.status, 200);
    let mut waiting = JoinSet::new();
    let says: [(&str, bool, &[u8]); 7] = [
        ("nothing", false, b""),
        ("three bytes", false, b"\x16\x03\x01"),
        ("nothing after TLS", true, b""),
        ("three bytes after TLS", true, b"PRI"),
        ("half a head", true, b"GET /livez HTTP/1.1\r\nHost: x\r\n"),
        ("the preface of HTTP/2", true, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        (
            "a head of HTTP/2 that does not end",
            true,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x04\x01\0\0\0\0\x01\x82\x84\x86\x41",
        ),
    ];
    for (what, tls, bytes) in says {
        let client = client.clone();
        waiting.spawn(async move {
            let started = Instant::now();
            if tls {
                let mut stream = client.tls_stream().await.unwrap();
                stream.write_all(bytes).await.unwrap();
                stream.flush().await.unwrap();
                ended(stream).await;
            } else {
                let mut stream = TcpStream::connect(&client.authority).await.unwrap();
                stream.write_all(bytes).await.unwrap();
                ended(stream).await;
            }
            (what, started.elapsed())
        });
    }
    while let Some(result) = waiting.join_next().await {
        let (what, took) = result.unwrap();
        println!("{what}: ended after {took:.1?}");
        assert!(took < Duration::from_secs(15), "{what}: {took:?}");
    }
    client
        .create_service("a", json!({"ports": [{"port": 80}]}))
        .await
        .expect(201);
    assert_eq!(watch.next_change().await["type"], "ADDED");
    assert_eq!(idle.get("/livez").await.status, 200);
}

async fn ended(mut stream: impl AsyncRead + Unpin) {
    let mut rest = vec![];
    timeout(PATIENCE, stream.read_to_end(&mut rest))
        .await
        .expect("the server ends the connection")
        .ok();
}

/// A server for 1,024 connections instead of 16,384 is sent four times as many, from one address
/// and then from a hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_silent_connections_leave_room_for_others() {
    const MANY: usize = 2_048;
    let server = Server::start(Store::Embedded, &["--max-connections=1024"]).await;
    let client = server.admin();
    let to: SocketAddr = client.authority.parse().unwrap();
    let mut watch = client
        .watch("/api/v1/namespaces/default/services?watch=1&fieldSelector=metadata.name=a")
        .await;
    for addresses in [1, 100] {
        let mut held = vec![];
        for n in 0..MANY {
            let from = [127, 0, 9, u8::try_from(n % addresses).unwrap()];
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            held.push(
                timeout(PATIENCE, socket.connect(to))
                    .await
                    .unwrap()
                    .unwrap(),
            );
        }
        let mut slowest = Duration::ZERO;
        for _ in 0..6 {
            let fresh = Client::new(&client.authority, "admin-token", client.ca.clone());
            let started = Instant::now();
            fresh.get("/api/v1/namespaces/default").await.expect(200);
            slowest = slowest.max(started.elapsed());
        }
        println!(
            "{MANY} silent connections from {addresses} addresses: 6 of 6 new clients got in, slowest {slowest:.1?}"
        );
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        drop(held);
    }
    client
        .create_service("a", json!({"ports": [{"port": 80}]}))
        .await
        .expect(201);
    assert_eq!(watch.next_change().await["type"], "ADDED");
    let metrics = client.get("/metrics").await.text();
    let ended = |reason: &str| {
        let name = format!("portico_apiserver_connections_ended_total{{reason=\"{reason}\"}}");
        metrics.contains(&name)
    };
    assert!(ended("peer") && ended("strangers"), "{metrics}");
}
