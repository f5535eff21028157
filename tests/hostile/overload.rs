//! One client does not take what others need: connections that say nothing, answers that nobody
//! reads, bodies that never end, and expensive selectors.
//!
//! Numbers are scaled down where a server of the test build on two processors would take too long;
//! each test says so.

#[path = "overload/busy.rs"]
mod busy;
#[path = "overload/pages.rs"]
mod pages;
#[path = "overload/silence.rs"]
mod silence;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::common::client::service;
use crate::common::{Client, PATIENCE, Server, Store, eventually, tls};

/// Let users of the token file see and write Services and ConfigMaps.
async fn grant(client: &Client, user: &str, role: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{user}-{role}").replace(':', "-")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    client.post(path, &binding).await.expect(201);
}

/// A line of `/proc/PID/status` in MiB.
fn memory(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find(|text| text.starts_with(line)).unwrap();
    let kilobytes: u64 = found.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes >> 10
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// 300 lists of 10 MB on one HTTP/2 connection whose client opens its windows no further.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_cost_little_memory() {
    const LISTS: usize = 300;
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    grant(&admin, "viewer", "portico:viewer").await;
    for n in 0..40 {
        let data = json!({"text": "x".repeat(256 << 10)});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}")}, "data": data});
        let path = "/api/v1/namespaces/default/configmaps";
        admin.post(path, &body).await.expect(201);
    }
    let before = memory(server.pid(), "VmRSS");

    let viewer = server.with_token("viewer-token");
    let (mut sender, connection) = unread(&viewer).await;
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..LISTS {
        let request = Request::get(format!("https://{}/api/v1/configmaps", viewer.authority))
            .header("authorization", "Bearer viewer-token")
            .body(Full::new(Bytes::new()))
            .unwrap();
        sender.ready().await.unwrap();
        answers.spawn(sender.send_request(request));
    }
    let (mut given, mut refused, mut kept) = (0, 0, vec![]);
    while let Some(answer) = timeout(PATIENCE, answers.join_next()).await.unwrap() {
        let answer = answer.unwrap().unwrap();
        match answer.status().as_u16() {
            200 => given += 1,
            429 => {
                assert_eq!(answer.headers().get("retry-after").unwrap(), "1");
                refused += 1;
            }
            other => panic!("{other}"),
        }
        kept.push(answer);
    }
    let more = memory(server.pid(), "VmHWM") - before;
    println!("{given} of {LISTS} unread lists of 10 MB were given, {refused} refused: {more} MiB");
    assert!(more < 400, "{more} MiB");
    assert!(given >= 5, "{given}");

    // Others do not notice, and neither does the viewer once that connection is gone.
    let list = admin.get("/api/v1/configmaps").await;
    assert_eq!(list.status, 200);
    drop((kept, sender));
    connection.abort();
    eventually("the viewer can read again", || async {
        let list = viewer.get("/api/v1/configmaps").await;
        (list.status == 200 && list.body.len() > 10 << 20).then_some(())
    })
    .await;
    let metrics = admin.get("/metrics").await.text();
    let counted = metrics.lines().any(|line| {
        line.starts_with("apiserver_flowcontrol_rejected_requests_total{")
            && line.contains("priority_level=\"people\"")
            && line.contains("reason=\"bytes\"")
    });
    assert!(counted, "{metrics}");
}

type Sender = http2::SendRequest<Full<Bytes>>;

/// An HTTP/2 connection with the smallest windows that are usual.
async fn unread(client: &Client) -> (Sender, tokio::task::JoinHandle<()>) {
    let tcp = tokio::net::TcpStream::connect(&client.authority)
        .await
        .unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let config = tls::config(client.ca.as_deref(), "h2");
    let stream = TlsConnector::from(config).connect(name, tcp).await.unwrap();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    (sender, connection)
}

/// 400 bodies that never end, of somebody who may do no more than ask what he may do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_never_end_refuse_nobody_elses_write() {
    const BODIES: usize = 400;
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, nobody) = (server.admin(), server.with_token("nobody-token"));
    grant(&admin, "viewer", "portico:admin").await;
    let mut opening = tokio::task::JoinSet::new();
    let handshakes = Arc::new(tokio::sync::Semaphore::new(16));
    for _ in 0..BODIES {
        let (client, handshakes) = (nobody.clone(), handshakes.clone());
        opening.spawn(async move {
            let _one = handshakes.acquire().await.unwrap();
            let mut stream = client.tls_stream().await.unwrap();
            let head = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\n\
                        Host: x\r\nAuthorization: Bearer nobody-token\r\n\
                        Content-Type: application/json\r\nContent-Length: 1000\r\n\
                        Expect: 100-continue\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            // The server reads the body.
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 100");
            stream.write_all(b"{\"kind\":").await.unwrap();
            stream
        });
    }
    let held = opening.join_all().await;
    let (mut times, writer) = (vec![], server.with_token("viewer-token"));
    for n in 0..50 {
        let started = Instant::now();
        let answer = writer
            .create_service(&format!("s{n}"), json!({"ports": [{"port": 80}]}))
            .await;
        answer.expect(201);
        times.push(started.elapsed());
    }
    let slowest = percentile(&mut times, 100);
    println!("{BODIES} bodies that never end: 50 of 50 writes of another, slowest {slowest:?}");
    drop(held);
}

/// Eight viewers ask for one object with selectors of 6,000 terms that nothing matches, while
/// somebody writes. 1,000 Services instead of 30,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_selectors_do_not_hold_up_writes() {
    const SERVICES: usize = 1_000;
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    grant(&admin, "viewer", "portico:viewer").await;
    let mut writers = tokio::task::JoinSet::new();
    for part in 0..16 {
        let client = admin.clone();
        writers.spawn(async move {
            for n in (part..SERVICES).step_by(16) {
                let mut body = service(&format!("s{n}"), json!({"ports": [{"port": 80}]}));
                body["metadata"]["labels"] = json!({"app": "web", "tier": "front"});
                let path = "/api/v1/namespaces/default/services";
                client.post(path, &body).await.expect(201);
            }
        });
    }
    writers.join_all().await;

    let usual = percentile(&mut writes(&admin, "u").await, 99);
    let terms: Vec<String> = (0..6_000).map(|n| format!("k{n}!=v")).collect();
    let path = format!(
        "/api/v1/services?limit=1&labelSelector={},app=none",
        terms.join(",")
    );
    let (over, mut viewers) = (Arc::new(AtomicBool::new(false)), vec![]);
    for _ in 0..8 {
        let (client, path, over) = (
            server.with_token("viewer-token"),
            path.clone(),
            over.clone(),
        );
        viewers.push(tokio::spawn(async move {
            let mut lists = 0;
            while !over.load(Ordering::Relaxed) {
                let answer = client.get(&path).await;
                assert!(matches!(answer.status, 200 | 429), "{}", answer.text());
                lists += 1;
            }
            lists
        }));
    }
    let mut times = writes(&admin, "w").await;
    over.store(true, Ordering::Relaxed);
    let mut lists = 0;
    for viewer in viewers {
        lists += viewer.await.unwrap();
    }
    let count = times.len();
    let p99 = percentile(&mut times, 99);
    println!(
        "{lists} lists with 6,000 terms over {SERVICES} Services; meanwhile {count} writes, p99 {p99:.1?}, without them {usual:.1?}"
    );
    // On a machine that is busy with other things the usual time is the measure.
    let most = Duration::from_secs(1).max(4 * usual);
    assert!(count >= 20 && p99 < most, "{count} {p99:?} {usual:?}");

    let terms: Vec<String> = (0..10_001).map(|n| format!("k{n}")).collect();
    let many = admin
        .get(&format!(
            "/api/v1/services?labelSelector={}",
            terms.join(",")
        ))
        .await;
    assert!(many.status == 400 || many.status == 414, "{}", many.text());
}

/// How long the writes of some seconds take, one after the other.
async fn writes(client: &Client, prefix: &str) -> Vec<Duration> {
    let (mut times, begun) = (vec![], Instant::now());
    while begun.elapsed() < Duration::from_secs(4) {
        let started = Instant::now();
        let name = format!("{prefix}{}", times.len());
        let answer = client
            .create_service(&name, json!({"ports": [{"port": 80}]}))
            .await;
        answer.expect(201);
        times.push(started.elapsed());
    }
    times
}

/// A body that is announced as too large is refused before any of it has come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_announced_as_too_large_is_refused_at_once() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    for length in [3 * (1 << 20) + 1, 4_usize << 30] {
        let mut stream = client.tls_stream().await.unwrap();
        let head = format!(
            "POST /api/v1/namespaces/default/services HTTP/1.1\r\nHost: x\r\n\
             Authorization: Bearer admin-token\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        let started = Instant::now();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        timeout(Duration::from_secs(2), stream.read_exact(&mut answer))
            .await
            .expect("an answer at once")
            .unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413");
        println!(
            "{length} bytes announced: 413 after {:?}",
            started.elapsed()
        );
    }
    // Who sends it all the same hears the answer.
    for _ in 0..5 {
        let mut stream = client.tls_stream().await.unwrap();
        let head = "POST /api/v1/namespaces/default/services HTTP/1.1\r\nHost: x\r\n\
                    Authorization: Bearer admin-token\r\nContent-Type: application/json\r\n\
                    Content-Length: 5000000\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&vec![b'x'; 5_000_000]).await;
        let mut answer = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut answer))
            .await
            .unwrap()
            .expect("an answer instead of a reset");
        assert_eq!(&answer, b"HTTP/1.1 413");
    }
    let mut two = client.http2().await;
    assert_eq!(two.get("/livez").await.status, 200);
}
