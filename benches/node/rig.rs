//! The API server, its objects, a proxy as a process, and what can be seen of it from outside.

use crate::common::{Client, Server, Store};
use crate::place::ENDPOINTS;
use crate::raw::{self, Connection};
use crate::report::percentile;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NODE: &str = "bench-node";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const SENTINEL: &str = "10.96.0.100";
const METRICS: &str = "127.0.0.1:10249";
/// A connection attempt whose first packet was lost is given up after this, and another is made.
const ATTEMPT: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) struct Proxy {
    pub name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Proxy {
    pub(crate) fn portico(mode: &'static str) -> Self {
        let arguments = ["node", "--proxy-mode", mode].map(str::to_owned).to_vec();
        Self {
            name: "portico",
            program: PathBuf::from(env!("CARGO_BIN_EXE_portico")),
            arguments,
        }
    }

    pub(crate) fn kube_proxy(program: PathBuf) -> Self {
        let arguments = [
            "--proxy-mode=nftables",
            "--conntrack-max-per-core=0",
            "--conntrack-min=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ];
        Self {
            name: "kube-proxy",
            program,
            arguments: arguments.map(str::to_owned).to_vec(),
        }
    }
}

impl Proxy {
    /// Where Portico remembers what it knew.
    fn data_dir(&self, dir: &std::path::Path) -> Vec<String> {
        let own = self.name == "portico";
        let flags = [
            format!("--data-dir={}", dir.join("node").display()),
            "--static-services=".to_owned(),
        ];
        if own { flags.to_vec() } else { Vec::new() }
    }
}

pub(crate) struct Rig {
    server: Server,
    client: Client,
    loaded: usize,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let server = Server::start(Store::Embedded, &["--endpoint-slice-controller=false"]).await;
        let client = server.admin();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"podCIDR": "10.244.0.0/24"}});
        client.post("/api/v1/nodes", &node).await.expect(201);
        let status =
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}});
        client
            .patch(
                &format!("/api/v1/nodes/{NODE}/status"),
                "application/merge-patch+json",
                &status,
            )
            .await
            .expect(200);
        client
            .post(SERVICES, &service("sentinel", SENTINEL))
            .await
            .expect(201);
        client
            .post(SLICES, &slice("sentinel", &ENDPOINTS[..1]))
            .await
            .expect(201);
        Self {
            server,
            client,
            loaded: 0,
        }
    }

    /// Waits until the server has ended, so that the next one finds the processor free.
    pub(crate) async fn end(mut self) {
        self.server.stop().await;
    }

    /// Up to so many Services with so many endpoints each, none of which exists: they cost rules,
    /// not traffic.
    pub(crate) async fn load(&mut self, services: usize, endpoints: usize) {
        let mut connection = Connection::open(&self.client).await;
        for n in self.loaded..services {
            let name = format!("bulk-{n}");
            let addresses: Vec<String> = (0..endpoints)
                .map(|e| bulk_endpoint(n * endpoints + e))
                .collect();
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            let (service, slice) = (
                service(&name, &cluster_ip(1_000 + n)),
                slice(&name, &addresses),
            );
            assert_eq!(
                connection
                    .exchange(&raw::post(SERVICES, &service.to_string()))
                    .await,
                201
            );
            assert_eq!(
                connection
                    .exchange(&raw::post(SLICES, &slice.to_string()))
                    .await,
                201
            );
        }
        self.loaded = self.loaded.max(services);
    }

    pub(crate) fn run(&self, proxy: &Proxy) -> Running {
        let log = fs::File::create(self.server.dir().join("proxy.log")).unwrap();
        let child = Command::new(&proxy.program)
            .args(&proxy.arguments)
            .arg("--kubeconfig")
            .arg(self.server.kubeconfig())
            .args([
                "--hostname-override",
                NODE,
                "--cluster-cidr",
                "10.244.0.0/16",
            ])
            .args(proxy.data_dir(self.server.dir()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Running {
            child,
            log: self.server.dir().join("proxy.log"),
        }
    }

    /// The n-th new Service, its endpoint first.
    pub(crate) async fn create(&self, n: usize) -> Expectation {
        let (name, address) = (new_name(n), format!("10.96.1.{}", n + 1));
        self.client
            .post(SLICES, &slice(&name, &ENDPOINTS[..1]))
            .await
            .expect(201);
        self.client
            .post(SERVICES, &service(&name, &address))
            .await
            .expect(201);
        Expectation::new(address, ENDPOINTS[0])
    }

    pub(crate) async fn delete(&self, n: usize) {
        let name = new_name(n);
        self.client
            .delete(&format!("{SERVICES}/{name}"))
            .await
            .expect(200);
        self.client
            .delete(&format!("{SLICES}/{name}-s"))
            .await
            .expect(200);
    }

    pub(crate) async fn move_sentinel(&self, to: usize) -> Expectation {
        let slice = slice("sentinel", &ENDPOINTS[to..=to]);
        self.client
            .put(&format!("{SLICES}/sentinel-s"), &slice)
            .await
            .expect(200);
        Expectation::new(SENTINEL.to_owned(), ENDPOINTS[to])
    }

    /// So many slices get other endpoints, as fast as one client can say so.
    pub(crate) async fn burst(&self, changes: usize) {
        let mut connection = Connection::open(&self.client).await;
        for n in 0..changes {
            let name = format!("bulk-{}", n % self.loaded);
            let addresses: Vec<String> = (0..10)
                .map(|e| format!("10.250.{}.{}", (n + e) / 250 % 250, (n + e) % 250 + 1))
                .collect();
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            let body = slice(&name, &addresses).to_string();
            assert_eq!(
                connection
                    .exchange(&raw::put(&format!("{SLICES}/{name}-s"), &body))
                    .await,
                200
            );
        }
    }

    /// Microseconds of a new connection through a Service, and straight to its endpoint: medians,
    /// measured by turns.
    pub(crate) fn connection_cost(&self) -> (f64, f64) {
        let addresses = [(SENTINEL, 80), (ENDPOINTS[0], 8080)]
            .map(|(ip, port)| format!("{ip}:{port}").parse().unwrap());
        let mut times = [vec![], vec![]];
        for n in 0..4_000 {
            let started = Instant::now();
            // One in thousands meets a port whose last connection is not forgotten yet; it counts
            // as slow.
            let _ = who_answers(addresses[n % 2], Duration::from_secs(1));
            times[n % 2].push(started.elapsed().as_secs_f64() * 1e6);
        }
        let [through, direct] = &mut times;
        (percentile(through, 50.0), percentile(direct, 50.0))
    }

    /// Lets the system come to rest between two measurements.
    pub(crate) fn quiet(&self, running: &Running, pause: Duration) {
        std::thread::sleep(pause);
        running.assert_alive();
    }
}

/// Which endpoint is to answer where.
pub(crate) struct Expectation {
    address: SocketAddr,
    endpoint: &'static str,
    since: Instant,
}

impl Expectation {
    fn new(address: String, endpoint: &'static str) -> Self {
        Self {
            address: format!("{address}:80").parse().unwrap(),
            endpoint,
            since: Instant::now(),
        }
    }

    /// How long it took.
    pub(crate) fn wait(&self, running: &Running) -> Duration {
        while who_answers(self.address, ATTEMPT).as_deref() != Some(self.endpoint) {
            assert!(
                self.since.elapsed() < LIMIT,
                "{} is not reached: {}",
                self.endpoint,
                running.log()
            );
            running.assert_alive();
        }
        self.since.elapsed()
    }
}

fn who_answers(address: SocketAddr, limit: Duration) -> Option<String> {
    let mut connection = TcpStream::connect_timeout(&address, limit).ok()?;
    connection
        .set_read_timeout(Some(Duration::from_secs(1)))
        .ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    (!answer.is_empty()).then_some(answer)
}

/// A proxy process; ended and its rules removed on drop.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    pub(crate) fn serves(&self, _rig: &Rig, endpoint: &'static str) {
        Expectation::new(SENTINEL.to_owned(), endpoint).wait(self);
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn assert_alive(&self) {
        assert!(
            fs::metadata(format!("/proc/{}/task", self.child.id())).is_ok(),
            "the proxy ended: {}",
            self.log()
        );
    }

    /// Waits until it uses no processor any more.
    pub(crate) fn settled(&self) {
        let mut before = self.cpu();
        for _ in 0..600 {
            std::thread::sleep(Duration::from_millis(500));
            let now = self.cpu();
            if now - before < Duration::from_millis(10) {
                return;
            }
            before = now;
        }
    }

    /// Processor time of all its threads, also of those that ended (to the nanosecond), and of the
    /// programs it ran (to the clock tick).
    pub(crate) fn cpu(&self) -> Duration {
        let id = self.child.id();
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        let ticks: u64 = fields[13].parse::<u64>().unwrap() + fields[14].parse::<u64>().unwrap();
        cpu_of_threads(id) + Duration::from_millis(ticks * 10)
    }

    pub(crate) fn memory(&self, line: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|found| found.starts_with(line))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<f64>()
            .unwrap()
            / 1024.0
    }

    /// Time that the kernel needed for our batches until now, if the proxy tells.
    pub(crate) fn kernel(&self) -> Option<Duration> {
        let text = get(METRICS, "/metrics")?;
        let line = text
            .lines()
            .find(|line| line.starts_with("portico_kernel_duration_seconds_sum"))?;
        Some(Duration::from_secs_f64(
            line.split_whitespace().last()?.parse().ok()?,
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is ours and not yet reaped; if it ended by itself there is nothing to end. In order,
        // as the server is.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
        let _ = Command::new("nft").args(["flush", "ruleset"]).status();
    }
}

fn get(authority: &str, path: &str) -> Option<String> {
    use std::io::Write;
    let mut connection = TcpStream::connect(authority).ok()?;
    connection
        .write_all(format!("GET {path} HTTP/1.0\r\nHost: node\r\n\r\n").as_bytes())
        .ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn new_name(n: usize) -> String {
    format!("new-{n}")
}

fn cluster_ip(n: usize) -> String {
    format!("10.96.{}.{}", n / 250, n % 250 + 1)
}

fn bulk_endpoint(n: usize) -> String {
    format!("10.{}.{}.{}", 245 + n / 62_500, n / 250 % 250, n % 250 + 1)
}

fn service(name: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
           "spec": {"clusterIP": address, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]}})
}

fn slice(service: &str, addresses: &[&str]) -> Value {
    let endpoint = |address: &&str| json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": NODE});
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
           "metadata": {"name": format!("{service}-s"), "labels": {"kubernetes.io/service-name": service}},
           "addressType": "IPv4", "ports": [{"port": 8080, "protocol": "TCP"}],
           "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>()})
}

#[expect(
    unsafe_code,
    reason = "the clock of another process is only there in C"
)]
fn cpu_of_threads(process: u32) -> Duration {
    let (mut clock, mut time) = (
        0,
        libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    );
    // SAFETY: both write to the variables they are given, which live until they return.
    let result = unsafe {
        libc::clock_getcpuclockid(process as libc::pid_t, &mut clock)
            + libc::clock_gettime(clock, &mut time)
    };
    assert_eq!(result, 0, "the processor time of {process} cannot be read");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
