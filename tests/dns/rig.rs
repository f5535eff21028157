//! An API server, `portico dns` beside it, and nodes: addresses of the loopback with a server for
//! their health.

use crate::common::client::MERGE;
use crate::common::{Client, PATIENCE, Server, Store, eventually, ports};
use crate::dig::Dig;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const ZONE: &str = "k8s.example.com";

pub(crate) struct Rig {
    pub dns: Dns,
    pub server: Server,
    pub dig: Dig,
    /// Nodes of this rig have addresses of their own: 127.NET.0.x.
    net: u8,
    pub healthz_port: u16,
    health: HashMap<SocketAddr, Arc<AtomicBool>>,
}

/// A running `portico dns`.
pub(crate) struct Dns {
    child: Child,
    pub port: u16,
    pub metrics: SocketAddr,
    log: std::path::PathBuf,
}

impl Rig {
    /// Two nodes that are fit, and what `flags` say.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        static NETS: AtomicU8 = AtomicU8::new(1);
        let net = NETS.fetch_add(1, Ordering::Relaxed) + (std::process::id() % 20) as u8 * 10;
        let server = Server::start(Store::Embedded, &[]).await;
        let healthz_port = ports::free();
        let dns = Dns::start(&server, healthz_port, flags);
        let dig = Dig { port: dns.port };
        let mut rig = Self {
            server,
            dns,
            dig,
            net,
            healthz_port,
            health: HashMap::new(),
        };
        for number in [1, 2] {
            rig.add_node(number).await;
        }
        rig.dns.ready().await;
        rig.admin().create_namespace("shop").await;
        rig.dig.awaits("n1.node", "A", &[&rig.ip(1)]).await;
        rig.dig.awaits("n2.node", "A", &[&rig.ip(2)]).await;
        eventually("both nodes are given", || async {
            rig.page("/nodes").await.matches("\tgiven").nth(1).map(drop)
        })
        .await;
        rig
    }

    pub(crate) fn admin(&self) -> Client {
        self.server.admin()
    }

    pub(crate) fn ip(&self, node: u8) -> String {
        format!("127.{}.0.{node}", self.net)
    }

    /// `nN`, fit.
    pub(crate) async fn add_node(&mut self, number: u8) {
        self.answer_at(number, self.healthz_port, true).await;
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number}")},
            "status": {"addresses": [{"type": "InternalIP", "address": self.ip(number)},
                {"type": "InternalIP", "address": format!("fd00:{:x}::{number}", self.net)}]}});
        self.admin().post("/api/v1/nodes", &node).await.expect(201);
    }

    /// A server on a node says whether it is healthy.
    pub(crate) async fn answer_at(&mut self, node: u8, port: u16, healthy: bool) {
        let address = SocketAddr::new(self.ip(node).parse::<IpAddr>().unwrap(), port);
        let state = Arc::new(AtomicBool::new(healthy));
        tokio::spawn(serve(
            TcpListener::bind(address).await.unwrap(),
            Arc::clone(&state),
        ));
        self.health.insert(address, state);
    }

    pub(crate) fn set_health(&self, node: u8, port: u16, healthy: bool) {
        let address = SocketAddr::new(self.ip(node).parse::<IpAddr>().unwrap(), port);
        self.health[&address].store(healthy, Ordering::SeqCst);
    }

    /// Created, or replaced in the fields that are given.
    pub(crate) async fn service(&self, name: &str, spec: Value) {
        let path = "/api/v1/namespaces/shop/services";
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        if self.admin().get(&format!("{path}/{name}")).await.status == 404 {
            self.admin().post(path, &service).await.expect(201);
        } else {
            let changed = self
                .admin()
                .patch(&format!("{path}/{name}"), MERGE, &json!({"spec": spec}))
                .await;
            changed.expect(200);
        }
    }

    pub(crate) async fn balancer(&self, name: &str, ingress: Value) {
        let path = format!("/api/v1/namespaces/shop/services/{name}/status");
        let body = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        self.admin().patch(&path, MERGE, &body).await.expect(200);
    }

    /// Ready endpoints of a Service, one for each of these nodes.
    pub(crate) async fn endpoints(&self, service: &str, nodes: &[u8]) {
        let path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
        self.admin().delete(&format!("{path}/{service}-1")).await;
        let endpoint = |node: &u8| json!({"addresses": [format!("10.0.0.{node}")], "nodeName": format!("n{node}"), "conditions": {"ready": true}});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": nodes.iter().map(endpoint).collect::<Vec<_>>()});
        self.admin().post(path, &slice).await.expect(201);
    }

    pub(crate) async fn page(&self, path: &str) -> String {
        page(self.dns.metrics, path)
            .await
            .map(|(_, body)| body)
            .unwrap_or_default()
    }

    /// The value of a metric, without labels or with these.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.page("/metrics").await;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }
}

impl Dns {
    fn start(server: &Server, healthz_port: u16, flags: &[&str]) -> Self {
        let (port, metrics) = (
            ports::free(),
            SocketAddr::from(([127, 0, 0, 1], ports::free())),
        );
        Self::start_at(server, port, metrics, healthz_port, flags)
    }

    pub(crate) fn start_at(
        server: &Server,
        port: u16,
        metrics: SocketAddr,
        healthz_port: u16,
        flags: &[&str],
    ) -> Self {
        let log = server.dir().join("dns.log");
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_portico"))
            .arg("dns")
            .arg(format!("--zone={ZONE}"))
            .arg(format!("--listen=0.0.0.0:{port}"))
            .arg(format!("--kubeconfig={}", server.kubeconfig().display()))
            .arg(format!("--node-healthz-port={healthz_port}"))
            .arg(format!("--metrics-bind-address={metrics}"))
            .args([
                &format!("--ns=ns1.{ZONE}=192.0.2.53"),
                "--probe-interval=200ms",
                // The nodes of these tests are on loopback addresses.
                "--health-check-ranges=cluster,127.0.0.0/8",
                "--ttl=30",
            ])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        Self {
            child,
            port,
            metrics,
            log,
        }
    }

    pub(crate) async fn ready(&mut self) {
        let started = Instant::now();
        while page(self.metrics, "/readyz")
            .await
            .is_none_or(|(code, _)| code != 200)
        {
            let ended = self.child.try_wait().unwrap().is_some();
            assert!(
                !ended && started.elapsed() < PATIENCE,
                "portico dns does not start:\n{}",
                self.log()
            );
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Memory in use, in KiB.
    pub(crate) fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}---", self.log.display(), self.log());
        }
    }
}

/// HTTP as a node speaks it.
async fn serve(listener: TcpListener, healthy: Arc<AtomicBool>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            return;
        };
        let good = healthy.load(Ordering::SeqCst);
        tokio::spawn(async move {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let code = if good {
                "200 OK"
            } else {
                "503 Service Unavailable"
            };
            let _ = stream
                .write_all(format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\n\r\n").as_bytes())
                .await;
        });
    }
}

async fn page(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: dns\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// The program, or the name of its package.
pub(crate) fn program(name: &str, package: &str) -> String {
    let places = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
    let found = places
        .iter()
        .map(|place| format!("{place}/{name}"))
        .find(|path| Path::new(path).exists());
    found.unwrap_or_else(|| {
        panic!("{name} is not installed: it is in Debian's package {package} (`make deps`)")
    })
}
