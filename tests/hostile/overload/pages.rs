//! Pages of other daemons under connections that say nothing.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::common::{PATIENCE, Server, Store, eventually, ports};

struct Daemon(Child);

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_portico"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The status of an answer, if there is one.
async fn get(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await.ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split(' ').nth(1)?.parse().ok()
}

/// Ten times as many silent connections as there may be, and the page is still there; those that
/// are left end in seconds.
async fn stands(what: &str, address: SocketAddr, path: &str, most: usize) {
    eventually(what, || async {
        (get(address, path).await? == 200).then_some(())
    })
    .await;
    let started = Instant::now();
    let mut held = vec![];
    for _ in 0..10 * most {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    let asked = Instant::now();
    let status = timeout(Duration::from_secs(5), get(address, path)).await;
    assert_eq!(status.expect("an answer at once"), Some(200), "{what}");
    let took = asked.elapsed();
    for mut stream in held {
        let mut rest = vec![];
        let end = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "{what}: a silent connection stays");
    }
    println!(
        "{what}: an answer after {took:.1?} beside {} silent connections, all of which ended after {:.1?}",
        10 * most,
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_daemons_stand_silence() {
    let server = Server::start(Store::Embedded, &[]).await;
    let kubeconfig = server.kubeconfig();
    let kubeconfig = Path::new(&kubeconfig).display().to_string();
    let address = || SocketAddr::from(([127, 0, 0, 1], ports::free()));
    let (page, zone, metrics) = (address(), address(), address());
    let texts = (page.to_string(), zone.to_string(), metrics.to_string());
    let _dashboard = Daemon::start(&[
        "dashboard",
        "--kubeconfig",
        &kubeconfig,
        "--listen",
        &texts.0,
    ]);
    let _dns = Daemon::start(&[
        "dns",
        "--zone=k8s.example.com",
        "--kubeconfig",
        &kubeconfig,
        "--listen",
        &texts.1,
        "--metrics-bind-address",
        &texts.2,
    ]);
    tokio::join!(
        stands("dashboard", page, "/", 256),
        stands("metrics of portico dns", metrics, "/metrics", 32),
    );
}
