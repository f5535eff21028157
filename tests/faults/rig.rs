//! One node with two endpoints and a client behind it, the API server and `portico node` on it, and
//! a watchman who opens connections all the time to tell whether forwarding ever blinked.

use crate::balancer::Balancer;
use crate::common::{Client, Etcd, Server, Store, rival};
use portico_testbed::{Ask as _, Echo as _};
use portico_testbed::{Flow, Host, Process, Protocol, Route, Testbed};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
pub(crate) const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
pub(crate) const NODE: &str = "node1";
/// Pods of the node, by number.
pub(crate) const PODS: [&str; 3] = ["10.244.1.11", "10.244.1.12", "10.244.1.13"];
/// The Service that nobody touches.
pub(crate) const STEADY: &str = "10.96.9.9:80";
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Rig {
    pub server: Server,
    pub node: Host,
    pub pods: Vec<Host>,
    pub mode: &'static str,
    /// Where the daemon finds its API server.
    kubeconfig: PathBuf,
    daemon: Option<Process>,
    dir: TempDir,
    _bed: Testbed,
}

/// Runs a test on the node: everything that it starts or connects is in the node's network.
pub(crate) fn on_a_node(mode: &'static str, test: impl AsyncFnOnce(&mut Rig)) {
    on_a_node_with(Store::Embedded, mode, test);
}

/// The same, with its API server's objects in such a store.
pub(crate) fn on_a_node_with(store: Store, mode: &'static str, test: impl AsyncFnOnce(&mut Rig)) {
    let bed = Testbed::new().unwrap();
    let node = bed.host(NODE).unwrap();
    node.sysctl("net/ipv4/ip_forward", "1").unwrap();
    node.bridge("cni0").unwrap();
    node.address("cni0", "10.244.1.1/24").unwrap();
    let pods = PODS
        .iter()
        .enumerate()
        .map(|(n, address)| pod(&bed, &node, n, address))
        .collect();
    let uplink = bed.host("uplink").unwrap();
    node.cable("eth0", &uplink, "eth0").unwrap();
    node.address("eth0", "172.30.0.11/24").unwrap();
    uplink.address("eth0", "172.30.0.1/24").unwrap();
    node.route(Route::to("default").via("172.30.0.1")).unwrap();
    let inside = node.clone();
    inside.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = Server::start(store, flags()).await;
            let dir = TempDir::with_prefix("portico-node-").unwrap();
            let mut rig = Rig {
                node,
                pods,
                mode,
                kubeconfig: server.kubeconfig(),
                server,
                daemon: None,
                dir,
                _bed: bed,
            };
            rig.set_the_stage().await;
            rig.start();
            rig.reaches(STEADY, &["pod0"]).await;
            test(&mut rig).await;
        });
    });
}

/// Flags of the API server: the tests write the slices themselves.
fn flags() -> &'static [&'static str] {
    match rival() {
        Some(_) => &[],
        None => &["--endpoint-slice-controller=false"],
    }
}

/// Another API server of the same store.
pub(crate) async fn second_server(etcd: &Etcd) -> Server {
    Server::start_on(Some(etcd.clone()), flags()).await
}

fn pod(bed: &Testbed, node: &Host, n: usize, address: &str) -> Host {
    let pod = bed.host(&format!("pod{n}")).unwrap();
    pod.cable_to_switch("eth0", node, &format!("veth{n}"), "cni0")
        .unwrap();
    // Alone in its network: answers go back through the node, also to another pod.
    pod.address("eth0", address).unwrap();
    pod.route(Route::to("10.244.1.1").link("eth0")).unwrap();
    pod.route(Route::to("default").via("10.244.1.1").link("eth0"))
        .unwrap();
    pod.serve(8080).unwrap();
    pod
}

impl Rig {
    pub(crate) fn api(&self) -> Client {
        self.server.admin()
    }

    pub(crate) async fn set_the_stage(&self) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"podCIDR": "10.244.1.0/24"}});
        self.api().post("/api/v1/nodes", &node).await.expect(201);
        let status =
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "172.30.0.11"}]}});
        self.api()
            .patch(
                &format!("/api/v1/nodes/{NODE}/status"),
                "application/merge-patch+json",
                &status,
            )
            .await
            .expect(200);
        self.service("steady", "10.96.9.9", &[0]).await;
    }

    /// A Service of one TCP port, 80, with these pods as its endpoints.
    pub(crate) async fn service(&self, name: &str, address: &str, pods: &[usize]) {
        self.api()
            .post(SLICES, &slice(name, &pods_of(pods)))
            .await
            .expect(201);
        self.api()
            .post(SERVICES, &service(name, address))
            .await
            .expect(201);
    }

    pub(crate) async fn endpoints(&self, name: &str, pods: &[usize]) {
        self.api()
            .put(&format!("{SLICES}/{name}-s"), &slice(name, &pods_of(pods)))
            .await
            .expect(200);
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "node",
            "--proxy-mode",
            self.mode,
            "--hostname-override",
            NODE,
            "--cluster-cidr",
            "10.244.0.0/16",
        ]);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--data-dir")
            .arg(self.dir.path().join("data"));
        // A slow timer that never fires here: what is repaired is repaired because somebody
        // noticed.
        command.args(["--iptables-sync-period", "1h", "--static-services="]);
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command.env("XTABLES_LOCKFILE", self.dir.path().join("xtables.lock"));
        self.daemon = Some(self.node.spawn(command).unwrap());
    }

    /// Starts the daemon anew, with the API server behind a balancer. It shows the certificate of its
    /// kubeconfig, or a token, with which it does not look at the server's certificate either.
    pub(crate) async fn behind(&mut self, balancer: &Balancer, by_token: bool) {
        let server = format!("https://127.0.0.1:{}", balancer.port);
        let text = match by_token {
            true => format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
                 clusters: [{{name: test, cluster: {{server: '{server}', insecure-skip-tls-verify: true}}}}]\n\
                 users: [{{name: admin, user: {{token: admin-token}}}}]\n\
                 contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]\n"
            ),
            false => std::fs::read_to_string(self.server.kubeconfig())
                .unwrap()
                .replace(&format!("https://127.0.0.1:{}", self.server.port), &server),
        };
        assert!(text.contains(&server), "{text}");
        self.stop();
        self.kubeconfig = self.dir.path().join("balanced.kubeconfig");
        std::fs::write(&self.kubeconfig, text).unwrap();
        self.start();
        // Where the first is in the kernel the lists have come, so that the second comes by the
        // watches.
        for (name, address) in [("listed", "10.96.8.1"), ("watched", "10.96.8.2")] {
            self.service(name, address, &[0]).await;
            self.reaches(&format!("{address}:80"), &["pod0"]).await;
        }
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("node.log")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Ends the daemon without notice.
    pub(crate) fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    /// Asks the daemon to end.
    pub(crate) fn stop(&mut self) {
        let status = self.daemon.take().unwrap().terminate(PATIENCE);
        assert_eq!(
            status.and_then(|status| status.code()),
            Some(0),
            "{}",
            self.log()
        );
    }

    /// The daemon does nothing until it is thawed.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let id = self.daemon.as_ref().unwrap().id();
        self.run(&format!("kill -{name} {id}"));
    }

    /// A packet came before its Service, and waits.
    pub(crate) fn somebody_waits(&self) -> bool {
        let queues = self.run("cat /proc/net/netfilter/nfnetlink_queue");
        queues.lines().any(|queue| {
            queue
                .split_whitespace()
                .nth(2)
                .is_some_and(|waiting| waiting != "0")
        })
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.daemon
            .as_mut()
            .is_some_and(|daemon| daemon.ended().is_none())
    }

    /// Runs a program on the node.
    pub(crate) fn run(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        self.node.run(command, "").unwrap()
    }

    /// Waits until connections of a pod to this address reach just these, and says how long it
    /// took.
    pub(crate) async fn reaches(&self, address: &str, hosts: &[&str]) -> Duration {
        let since = Instant::now();
        loop {
            let seen = self.seen(address).await;
            if seen == hosts {
                return since.elapsed();
            }
            assert!(
                since.elapsed() < PATIENCE,
                "{address} reaches {seen:?}, not {hosts:?}: {}",
                self.log()
            );
        }
    }

    /// Who answers at this address: enough attempts to see all of three; `-` for a failure.
    async fn seen(&self, address: &str) -> Vec<String> {
        let mut seen = std::collections::BTreeSet::new();
        let flow = Flow {
            patience: Duration::from_millis(300),
            ..Flow::new(Protocol::Tcp, address.parse().unwrap())
        };
        for _ in 0..24 {
            match self.pods[2].ask(&flow).await {
                Ok(answer) => seen.insert(answer.seen.host),
                Err(_) => return vec!["-".to_owned()],
            };
        }
        seen.into_iter().collect()
    }

    /// Waits until nothing of the dataplane that is not used is left.
    pub(crate) async fn other_dataplane_is_gone(&self) {
        match self.mode {
            "nftables" => self.is_gone("KUBE-", "iptables-save").await,
            _ => self.is_gone("portico", "nft list tables").await,
        }
    }

    /// Waits until what a program prints no longer has this.
    pub(crate) async fn is_gone(&self, sign: &str, program: &str) {
        let since = Instant::now();
        while self.run(program).contains(sign) {
            assert!(
                since.elapsed() < PATIENCE,
                "{sign} is still there: {}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Connects to the untouched Service all the time until it is asked how that went.
    pub(crate) fn watchman(&self) -> Watchman {
        let (over, pod) = (Arc::new(AtomicBool::new(false)), self.pods[2].clone());
        let told = over.clone();
        let thread = std::thread::spawn(move || {
            let address: SocketAddr = STEADY.parse().unwrap();
            let (mut asked, mut failed) = (0, vec![]);
            pod.enter(|| {
                while !told.load(Ordering::Relaxed) {
                    asked += 1;
                    // Shorter than the first retransmission: a lost first packet is a failure, not
                    // a delay.
                    if let Err(error) =
                        std::net::TcpStream::connect_timeout(&address, Duration::from_millis(800))
                    {
                        failed.push(format!("attempt {asked}: {error}"));
                    }
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            (asked, failed)
        });
        Watchman { over, thread }
    }
}

pub(crate) struct Watchman {
    over: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<String>)>,
}

impl Watchman {
    /// Every connection came about.
    pub(crate) fn saw_nothing(self) {
        self.over.store(true, Ordering::Relaxed);
        let (asked, failed) = self.thread.join().unwrap();
        assert!(asked > 10, "the watchman slept: {asked} connections");
        assert!(
            failed.is_empty(),
            "{} of {asked} connections failed: {:?}",
            failed.len(),
            failed.first()
        );
    }
}

fn pods_of(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|&n| PODS[n].to_owned()).collect()
}

pub(crate) fn service(name: &str, address: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
           "spec": {"clusterIP": address, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]}})
}

pub(crate) fn slice(service: &str, addresses: &[String]) -> Value {
    let endpoint = |address: &String| json!({"addresses": [address], "conditions": {"ready": true}, "nodeName": NODE});
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
           "metadata": {"name": format!("{service}-s"), "labels": {"kubernetes.io/service-name": service}},
           "addressType": "IPv4", "ports": [{"port": 8080, "protocol": "TCP"}],
           "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>()})
}
