//! The protocol itself: sizes, encodings, connections, signals.

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::SERVICES;
use crate::common::client::{JSON, service};
use crate::common::{Server, Store, eventually};

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let mut body = service("a", json!({"ports": [{"port": 80}]}));
    body["metadata"]["annotations"] = json!({"filler": "x".repeat(4 << 20)});
    // The server may hang up before it has read everything; what it must not do is store it.
    if let Ok(answer) = client
        .try_call("POST", SERVICES, &[], Some((JSON, body.to_string().into())))
        .await
    {
        assert!(
            matches!(answer.status, 400 | 413 | 422),
            "{}",
            answer.status
        );
    }
    client.get(&format!("{SERVICES}/a")).await.expect(404);
    body["metadata"]["annotations"] = json!({"filler": "x".repeat(200_000)});
    client.post(SERVICES, &body).await.expect(201);
    body["metadata"] = json!({"name": "b", "annotations": {"filler": "x".repeat(300_000)}});
    client.post(SERVICES, &body).await.expect(422); // annotations take 256 kB
}

#[tokio::test]
async fn deep_and_broken_bodies_are_the_clients_mistake() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let bombs = [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!(
            "{{\"metadata\":{}{}}}",
            "[".repeat(5_000),
            "]".repeat(5_000)
        ),
        "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n".to_owned(),
        "\u{feff}{}".to_owned(),
        String::new(),
    ];
    for bomb in bombs {
        for kind in [JSON, "application/yaml"] {
            let answer = client
                .call(
                    "POST",
                    SERVICES,
                    &[],
                    Some((kind, Bytes::from(bomb.clone()))),
                )
                .await;
            assert!(
                (400..500).contains(&answer.status),
                "{kind}: {} {}",
                answer.status,
                answer.text()
            );
        }
    }
}

/// A client may use a connection again after an answer, unless the answer says otherwise.
#[tokio::test]
async fn an_unread_body_does_not_break_the_connection() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    for (path, kind) in [
        (SERVICES, "text/plain"),
        ("/nothing", JSON),
        ("/api/v1/nothing", JSON),
    ] {
        for size in [10, 70_000, 1 << 20] {
            let mut stream = client.tls_stream().await.unwrap();
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: \
                 {kind}\r\nContent-Length: {size}\r\n\r\n",
                client.token
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let _ = stream.write_all(&vec![b'x'; size]).await;
            let answer = answer(&mut stream).await;
            assert!(answer.starts_with("http/1.1 4"), "{answer}");
            if answer.contains("connection: close") {
                continue;
            }
            stream
                .write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .await
                .unwrap();
            let mut rest = String::new();
            let _ = stream.read_to_string(&mut rest).await;
            assert!(
                rest.starts_with("HTTP/1.1 200"),
                "{path} with {size} bytes, then: {rest:?}"
            );
        }
    }
}

/// One answer with a Content-Length, in lower case.
async fn answer(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut read = vec![];
    loop {
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        assert!(
            stream.read_buf(&mut read).await.unwrap() > 0,
            "hung up after {text:?}"
        );
    }
}

#[tokio::test]
async fn large_answers_are_compressed_on_request() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    for n in 0..5 {
        let mut body = service(&format!("s{n}"), json!({"ports": [{"port": 80}]}));
        body["metadata"]["annotations"] = json!({"filler": "x".repeat(100_000)});
        client.post(SERVICES, &body).await.expect(201);
    }
    let plain = client.get(SERVICES).await;
    assert!(plain.headers.get("content-encoding").is_none());
    let packed = client
        .call("GET", SERVICES, &[("accept-encoding", "gzip")], None)
        .await;
    assert_eq!(packed.headers.get("content-encoding").unwrap(), "gzip");
    assert!(packed.body.len() * 10 < plain.body.len());
}

#[tokio::test]
async fn http2_and_http1_answer_alike() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let path = format!("{SERVICES}/kubernetes");
    let (one, two) = (
        client.get(&path).await,
        client.http2().await.get(&path).await,
    );
    assert_eq!((one.status, &one.body), (two.status, &two.body));
}

#[tokio::test]
async fn it_ends_when_asked_to_and_keeps_everything() {
    for store in [Store::Embedded, Store::Etcd] {
        let mut server = Server::start(store, &[]).await;
        let client = server.admin();
        client
            .create_service("a", json!({"ports": [{"port": 80}]}))
            .await
            .expect(201);
        let mut watch = client
            .watch(&format!("{SERVICES}?watch=1&resourceVersion=0"))
            .await;
        watch.next().await;
        assert_eq!(server.stop().await, Some(0));
        server.restart(None).await;
        client.get(&format!("{SERVICES}/a")).await.expect(200);
    }
}

#[tokio::test]
async fn two_servers_cannot_share_a_data_directory() {
    let server = Server::start(Store::Embedded, &[]).await;
    let dir = format!("--data-dir={}", server.dir().join("data").display());
    let log = Server::refuses(&[&dir]).await;
    assert!(!log.contains("panicked") && !log.is_empty(), "{log}");
    server.admin().get(SERVICES).await.expect(200);
}

#[tokio::test]
async fn metrics_count_requests() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    client.get(SERVICES).await.expect(200);
    eventually("requests in the metrics", || async {
        let metrics = client.get("/metrics").await.text();
        metrics
            .lines()
            .any(|line| line.starts_with("apiserver_request_total{") && line.contains("services"))
            .then_some(())
    })
    .await;
}
