//! Two masters, a worker with a pod, and a host outside, on one switch; etcd behind them;
//! everything that runs there.

use crate::common::tls;
use portico_testbed::uml::is_inside;
use portico_testbed::{Host, Process, Route, Testbed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// As in the document that this comes from.
pub(crate) const VIP: &str = "172.16.64.58:6443";
pub(crate) const CLUSTER_IP: &str = "10.244.255.1:443";
pub(crate) const MASTERS: [&str; 2] = ["master0", "master1"];
/// Where requests come from. Who is outside knows no cluster IP, so it is the first.
pub(crate) const PLACES: [&str; 5] = ["outside", "master0", "master1", "worker", "pod"];
const NODES: [(&str, &str); 3] = [
    ("master0", "172.16.64.35"),
    ("master1", "172.16.64.48"),
    ("worker", "172.16.64.60"),
];
const OUTSIDE: &str = "172.16.64.125";
const ETCD: &str = "172.16.64.90";
const POD: &str = "10.244.3.2";
const CLUSTER_CIDR: &str = "10.244.0.0/17";
const SERVICE_CIDR: &str = "10.244.255.0/24";
const STATUS: &str = "127.0.0.1:10246";
const TOKENS: &str = "admin-token,admin,admin,\"system:masters\"\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// How fast things can be expected to go: a kernel that is a program has one slow CPU for all of
/// them.
pub(crate) struct Pace {
    /// Between two requests of one place.
    pub gap: Duration,
    /// For an answer.
    pub answer: Duration,
    /// For the answer to a probe. A server that is dead does not need it: its connections are
    /// refused.
    pub probe: &'static str,
    /// From the death of an API server until nobody is sent to it any more: a second, where
    /// starting iptables does not take that long by itself.
    pub dead_server: Duration,
    /// From the death of the owner until the address answers.
    pub dead_owner: Duration,
}

pub(crate) fn pace() -> Pace {
    match is_inside() {
        true => Pace {
            gap: Duration::from_secs(1),
            answer: Duration::from_secs(10),
            probe: "5s",
            dead_server: Duration::from_secs(12),
            dead_owner: Duration::from_secs(12),
        },
        false => Pace {
            gap: Duration::from_millis(50),
            answer: Duration::from_millis(900),
            probe: "400ms",
            dead_server: Duration::from_secs(1),
            dead_owner: Duration::from_secs(2),
        },
    }
}

/// What forwards Services on the nodes.
#[derive(Clone, Debug)]
pub(crate) enum Proxy {
    /// `portico node` in this mode.
    Node(&'static str),
    KubeProxy(PathBuf, &'static str),
}

impl Proxy {
    /// The real one if there is one, otherwise ours, which uses the same names.
    pub(crate) fn beside(mode: &'static str) -> Self {
        match std::env::var_os("KUBE_PROXY") {
            Some(path) => Self::KubeProxy(path.into(), mode),
            None => Self::Node(mode),
        }
    }
}

pub(crate) struct Rig {
    pub forward: &'static str,
    hosts: BTreeMap<&'static str, Host>,
    servers: BTreeMap<&'static str, Process>,
    vips: BTreeMap<&'static str, Process>,
    others: Vec<Process>,
    tls: Arc<ClientConfig>,
    /// Whose certificate is whose.
    certificates: BTreeMap<&'static str, CertificateDer<'static>>,
    dir: TempDir,
    _bed: Testbed,
}

impl Rig {
    pub(crate) fn start(forward: &'static str, proxy: Proxy) -> Self {
        let mut dir = TempDir::with_prefix("portico-vip-").unwrap();
        if std::env::var_os("PORTICO_KEEP").is_some() {
            dir.disable_cleanup(true);
            println!("logs of {forward} are in {}", dir.path().display());
        }
        let (bed, hosts) = network();
        let tls = tls::config(None, "http/1.1");
        let mut rig = Self {
            forward,
            hosts,
            servers: BTreeMap::new(),
            vips: BTreeMap::new(),
            others: Vec::new(),
            tls,
            certificates: BTreeMap::new(),
            dir,
            _bed: bed,
        };
        rig.start_etcd();
        MASTERS.iter().for_each(|master| rig.start_server(master));
        rig.learn_certificates();
        rig.write_kubeconfig();
        for (node, _) in NODES {
            rig.start_proxy(node, &proxy);
        }
        MASTERS.iter().for_each(|master| rig.start_vip(master));
        rig.wait_until("everything runs", Self::is_ready);
        rig
    }

    fn host(&self, name: &str) -> &Host {
        self.hosts
            .get(name)
            .unwrap_or_else(|| panic!("no host {name}"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a program in a host, with a log of its own.
    fn spawn(&self, host: &str, what: &str, mut command: Command) -> Process {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("{what}-{host}.log")))
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command.env("XTABLES_LOCKFILE", self.path(&format!("{host}.lock")));
        self.host(host).spawn(command).unwrap()
    }

    fn start_etcd(&mut self) {
        let mut command = Command::new(std::env::var("ETCD").unwrap_or("etcd".to_owned()));
        let (client, peer) = (format!("http://{ETCD}:2379"), format!("http://{ETCD}:2380"));
        command
            .arg("--data-dir")
            .arg(self.path("etcd"))
            .args(["--initial-cluster", &format!("default={peer}")]);
        command.args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ]);
        command.args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        let etcd = self.spawn("etcd", "etcd", command);
        self.others.push(etcd);
        let at: SocketAddr = format!("{ETCD}:2379").parse().unwrap();
        self.wait_until("etcd answers", |rig| {
            rig.host("etcd").enter(|| TcpStream::connect(at)).is_ok()
        });
    }

    pub(crate) fn start_server(&mut self, master: &'static str) {
        let own = address(master);
        let pki = self.path(&format!("pki-{master}"));
        let first = self.path("pki-master0");
        if pki != first && !pki.exists() {
            // One authority for all of them.
            self.wait_until("the first server has made the authority", |_| {
                first.join("admin.kubeconfig").exists()
            });
            fs::create_dir(&pki).unwrap();
            for file in ["ca.crt", "ca.key", "sa.key"] {
                fs::copy(first.join(file), pki.join(file)).unwrap();
            }
        }
        fs::write(self.path("tokens.csv"), TOKENS).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "apiserver",
            "--etcd-servers",
            &format!("http://{ETCD}:2379"),
            "--secure-port",
            "6443",
        ]);
        command.args([
            "--bind-address",
            "0.0.0.0",
            "--advertise-address",
            own,
            "--tls-san",
            VIP.split(':').next().unwrap(),
        ]);
        command
            .args(["--service-cluster-ip-range", SERVICE_CIDR])
            .arg("--cert-dir")
            .arg(&pki);
        command
            .arg("--token-auth-file")
            .arg(self.path("tokens.csv"));
        let server = self.spawn(master, "apiserver", command);
        self.servers.insert(master, server);
        self.wait_until("the API server answers", |rig| {
            rig.ask(master, SocketAddr::new(own.parse().unwrap(), 6443))
                .is_ok()
        });
    }

    /// From now on certificates are verified, and tell who answered.
    fn learn_certificates(&mut self) {
        for master in MASTERS {
            let file = self.path(&format!("pki-{master}/apiserver.crt"));
            self.certificates
                .insert(master, CertificateDer::from_pem_file(file).unwrap());
        }
        self.tls = tls::config(Some(&self.path("pki-master0/ca.crt")), "http/1.1");
    }

    fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    fn write_kubeconfig(&self) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
             clusters: [{{name: test, cluster: {{server: 'https://{}:6443', certificate-authority: '{}'}}}}]\n\
             users: [{{name: admin, user: {{token: admin-token}}}}]\n\
             contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]\n",
            address(MASTERS[0]),
            self.path("pki-master0/ca.crt").display()
        );
        fs::write(self.kubeconfig(), text).unwrap();
    }

    fn start_proxy(&mut self, node: &'static str, proxy: &Proxy) {
        let own = address(node);
        let mut command = match proxy {
            Proxy::Node(mode) => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
                command
                    .args(["node", "--proxy-mode", mode])
                    .arg("--data-dir")
                    .arg(self.path(&format!("node-{node}")));
                command
                    .arg("--static-services")
                    .arg(self.static_services(node));
                command
            }
            Proxy::KubeProxy(path, mode) => {
                let mut command = Command::new(path);
                command.args([
                    "--proxy-mode",
                    mode,
                    "--conntrack-max-per-core=0",
                    "--conntrack-min=0",
                ]);
                command.args([
                    "--conntrack-tcp-timeout-established=0",
                    "--conntrack-tcp-timeout-close-wait=0",
                ]);
                command
            }
        };
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(["--hostname-override", node]);
        command.args(["--cluster-cidr", CLUSTER_CIDR]);
        let body =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}).to_string();
        self.call(MASTERS[0], "POST", "/api/v1/nodes", &body)
            .unwrap();
        let status =
            json!({"status": {"addresses": [{"type": "InternalIP", "address": own}]}}).to_string();
        self.call(
            MASTERS[0],
            "PATCH",
            &format!("/api/v1/nodes/{node}/status"),
            &status,
        )
        .unwrap();
        let process = self.spawn(node, "proxy", command);
        self.others.push(process);
    }

    fn static_services(&self, node: &str) -> PathBuf {
        let path = self.path(&format!("services-{node}"));
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn start_vip(&mut self, master: &'static str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "vip",
            "--address",
            VIP.split(':').next().unwrap(),
            "--forward",
            self.forward,
        ]);
        command.args([
            "--interval",
            "100ms",
            "--status-address",
            STATUS,
            "--check-every",
            "1s",
        ]);
        command.args(["--probe-timeout", pace().probe]);
        command.args([
            "--priority",
            if master == MASTERS[0] { "200" } else { "150" },
        ]);
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .arg("--data-dir")
            .arg(self.path(&format!("vip-{master}")));
        command
            .arg("--static-services")
            .arg(self.static_services(master));
        command
            .arg("--haproxy-dir")
            .arg(self.path(&format!("haproxy-{master}")));
        let vip = self.spawn(master, "vip", command);
        self.vips.insert(master, vip);
    }

    fn is_ready(&self) -> bool {
        let to = |place: &str, to: &str| self.ask(place, to.parse().unwrap()).is_ok();
        self.owners() == [MASTERS[0]]
            && MASTERS
                .iter()
                .all(|master| self.healthy_servers(master) == MASTERS.len())
            && MASTERS.iter().all(|master| self.forwards(master))
            && PLACES.iter().all(|place| to(place, VIP))
            && PLACES.iter().skip(1).all(|place| to(place, CLUSTER_IP))
    }

    /// Who has the virtual address.
    pub(crate) fn owners(&self) -> Vec<&'static str> {
        let vip = VIP.split(':').next().unwrap();
        MASTERS
            .into_iter()
            .filter(|master| {
                self.program(master, "ip addr show dev eth0")
                    .contains(&format!(" {vip}/"))
            })
            .collect()
    }

    pub(crate) fn owner_and_other(&self) -> (&'static str, &'static str) {
        let owners = self.owners();
        let [owner] = owners[..] else {
            panic!("owners: {owners:?}\n{}", self.logs())
        };
        (
            owner,
            MASTERS.into_iter().find(|master| *master != owner).unwrap(),
        )
    }

    fn status(&self, master: &str) -> Option<Value> {
        self.host(master).enter(|| {
            let mut stream = TcpStream::connect(STATUS).ok()?;
            stream.set_read_timeout(Some(PATIENCE)).ok()?;
            stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
        })
    }

    pub(crate) fn healthy_servers(&self, master: &str) -> usize {
        let status = self.status(master).unwrap_or_default();
        let servers = status["servers"].as_array().cloned().unwrap_or_default();
        servers
            .iter()
            .filter(|server| server["healthy"] == true)
            .count()
    }

    /// In the way that was asked for, with rules to show.
    fn forwards(&self, master: &str) -> bool {
        let forwarding = &self.status(master).unwrap_or_default()["forwarding"];
        forwarding["mode"] == self.forward
            && forwarding["rules"]
                .as_array()
                .is_some_and(|rules| !rules.is_empty())
    }

    /// It knows an owner whose connections it would send on.
    pub(crate) fn is_ready_to_relay(&self, master: &str) -> bool {
        self.program(master, "nft list table ip portico-vip-handover")
            .contains("dup to")
    }

    pub(crate) fn cannot_relay(&self, master: &str) -> bool {
        self.status(master).unwrap_or_default()["routers"][0]["relayTrouble"].is_string()
    }

    /// One master sends connections that it does not know to the other.
    pub(crate) fn relays(&self, master: &str, to: &str) -> bool {
        self.status(master).unwrap_or_default()["routers"][0]["relay"]["to"] == address(to)
    }

    /// What of `portico vip` is in the kernel or on disk.
    pub(crate) fn traces(&self, master: &str) -> Vec<String> {
        let mut found = Vec::new();
        for command in [
            "nft list ruleset",
            "iptables-legacy-save",
            "iptables-nft-save",
        ] {
            let text = self.program(master, command);
            let ours = |line: &&str| {
                line.to_lowercase().contains("portico-vip") || line.contains(" 172.16.64.58")
            };
            found.extend(text.lines().filter(ours).map(str::to_owned));
        }
        let files = fs::read_dir(self.static_services(master))
            .unwrap()
            .flatten();
        // Hidden ones are the node daemon's own.
        let visible = files.filter(|file| !file.file_name().to_string_lossy().starts_with('.'));
        found.extend(visible.map(|file| file.path().display().to_string()));
        found
    }

    /// Runs a program that may not be there.
    fn program(&self, host: &str, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        self.host(host).run(command, "").unwrap_or_default()
    }

    pub(crate) fn kill_server(&mut self, master: &str) {
        self.servers.remove(master).unwrap().kill();
    }

    pub(crate) fn kill_vip(&mut self, master: &str) {
        self.vips.remove(master).unwrap().kill();
    }

    pub(crate) fn stop_vip(&mut self, master: &str) {
        let status = self.vips.remove(master).unwrap().terminate(PATIENCE);
        assert_eq!(
            status.and_then(|status| status.code()),
            Some(0),
            "{}",
            self.logs()
        );
    }

    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(
                Instant::now() < deadline,
                "waited {PATIENCE:?} in vain until {what}\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for file in fs::read_dir(self.dir.path()).unwrap().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with(".log") && !name.starts_with("etcd") {
                text += &format!("--- {name}\n{}\n", tail(&file.path()));
            }
        }
        text
    }

    pub(crate) fn asker(&self, place: &str) -> Asker {
        Asker {
            host: self.host(place).clone(),
            tls: Arc::clone(&self.tls),
            certificates: self.certificates.clone(),
        }
    }

    /// One request on a new connection: which API server answered.
    pub(crate) fn ask(&self, place: &str, to: SocketAddr) -> Result<String, String> {
        self.asker(place).ask(to)
    }

    fn call(&self, master: &str, method: &str, path: &str, body: &str) -> Result<String, String> {
        let to = SocketAddr::new(address(master).parse().unwrap(), 6443);
        let kind = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let head = format!(
            "Authorization: Bearer admin-token\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n",
            body.len()
        );
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{head}\r\n{body}"
        );
        self.asker(master)
            .exchange(to, &request)
            .map(|(_, answer)| answer)
    }
}

/// Asks from one place.
pub(crate) struct Asker {
    host: Host,
    tls: Arc<ClientConfig>,
    certificates: BTreeMap<&'static str, CertificateDer<'static>>,
}

impl Asker {
    pub(crate) fn ask(&self, to: SocketAddr) -> Result<String, String> {
        let request = "GET /readyz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        self.exchange(to, request).map(|(who, _)| who)
    }

    fn exchange(&self, to: SocketAddr, request: &str) -> Result<(String, String), String> {
        let answer_within = pace().answer;
        let connect = || TcpStream::connect_timeout(&to, answer_within);
        let stream = self
            .host
            .enter(connect)
            .map_err(|error| format!("connect: {error}"))?;
        stream.set_read_timeout(Some(answer_within)).unwrap();
        stream.set_write_timeout(Some(answer_within)).unwrap();
        let connection =
            ClientConnection::new(Arc::clone(&self.tls), ServerName::IpAddress(to.ip().into()))
                .unwrap();
        let mut tls = StreamOwned::new(connection, stream);
        tls.write_all(request.as_bytes())
            .map_err(|error| format!("write: {error}"))?;
        let mut answer = Vec::new();
        tls.read_to_end(&mut answer)
            .map_err(|error| format!("read: {error}"))?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let certificate = tls
            .conn
            .peer_certificates()
            .and_then(|all| all.first())
            .cloned();
        let who = self
            .certificates
            .iter()
            .find(|(_, known)| Some(*known) == certificate.as_ref());
        let who = who.map_or("somebody", |(name, _)| name).to_owned();
        let code = answer.split(' ').nth(1).unwrap_or_default();
        if code.starts_with('2') {
            Ok((who, answer))
        } else {
            Err(format!("{who} answered {answer}"))
        }
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

fn address(node: &str) -> &'static str {
    NODES
        .iter()
        .find(|(name, _)| *name == node)
        .map(|(_, address)| *address)
        .unwrap()
}

/// Everybody on one switch; the pod behind the worker.
fn network() -> (Testbed, BTreeMap<&'static str, Host>) {
    let bed = Testbed::new().unwrap();
    let switch = bed.host("switch").unwrap();
    switch.bridge("br0").unwrap();
    let mut hosts = BTreeMap::new();
    for (name, address) in NODES
        .into_iter()
        .chain([("outside", OUTSIDE), ("etcd", ETCD)])
    {
        let host = bed.host(name).unwrap();
        host.cable_to_switch("eth0", &switch, name, "br0").unwrap();
        host.address("eth0", &format!("{address}/24")).unwrap();
        host.sysctl("net/ipv4/ip_forward", "1").unwrap();
        hosts.insert(name, host);
    }
    // A gateway that nobody answers at: addresses of Services need a route to be sent anywhere at
    // all.
    for (name, _) in NODES {
        hosts[name]
            .route(Route::to("default").via(OUTSIDE))
            .unwrap();
    }
    let pod = bed.host("pod").unwrap();
    let worker = &hosts["worker"];
    worker.bridge("cni0").unwrap();
    worker.address("cni0", "10.244.3.1/24").unwrap();
    pod.cable_to_switch("eth0", worker, "veth0", "cni0")
        .unwrap();
    pod.address("eth0", &format!("{POD}/24")).unwrap();
    pod.route(Route::to("default").via("10.244.3.1")).unwrap();
    for (name, _) in NODES.iter().filter(|(name, _)| *name != "worker") {
        hosts[name]
            .route(Route::to("10.244.3.0/24").via(address("worker")))
            .unwrap();
    }
    hosts.insert("switch", switch);
    hosts.insert("pod", pod);
    (bed, hosts)
}
