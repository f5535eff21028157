//! A cluster with everything that runs in it: API server, load-balancer controller and three nodes,
//! as programs of their own; a client on the same link; and `kubectl`, by which everything is done
//! and seen.
//!
//! Knows no test: benchmarks and the tests of a cloud use it too.
#![allow(dead_code, reason = "each target uses its own part of this module")]

use portico_testbed::Ask as _;
use portico_testbed::cluster::{POD_RANGES, SERVICE_RANGES};
use portico_testbed::{Cluster, Flow, Host, Process, Protocol, Seen};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const NODES: [&str; 3] = ["node1", "node2", "node3"];
/// In the nodes' network, so that layer 2 reaches them.
pub(crate) const NEAR: [&str; 2] = ["172.30.0.128/26", "fd00:30::1000/120"];
/// Nowhere, so that a route is needed.
pub(crate) const FAR: [&str; 2] = ["203.0.113.0/24", "2001:db8:5::/112"];
/// Of Services; pods answer on 8080.
pub(crate) const PORT: u16 = 80;
const API_PORT: u16 = 6443;
const TOKEN: &str = "admin-token";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub cluster: Cluster,
    nodes: BTreeMap<&'static str, Process>,
    _programs: Vec<Process>,
    runtime: tokio::runtime::Runtime,
    pub dir: TempDir,
}

impl Rig {
    /// Everything runs, and there are Nodes, but no pool and no Service.
    pub(crate) fn start() -> Self {
        let mut rig = Self::with_apiserver();
        let controller = rig.controller("metal");
        rig.run("cp", controller, "controller");
        NODES.iter().for_each(|name| rig.start_node(name));
        rig
    }

    /// There are Nodes; of all programs only the API server runs.
    pub(crate) fn with_apiserver() -> Self {
        let mut dir = TempDir::with_prefix("portico-announce-").unwrap();
        if std::env::var_os("PORTICO_KEEP").is_some() {
            dir.disable_cleanup(true);
            println!("logs are in {}", dir.path().display());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let cluster = Cluster::new().unwrap();
        let mut rig = Self {
            cluster,
            nodes: BTreeMap::new(),
            _programs: vec![],
            runtime,
            dir,
        };
        rig.start_apiserver();
        NODES.iter().for_each(|name| rig.add_node(name));
        rig
    }

    pub(crate) fn host(&self, name: &str) -> &Host {
        self.cluster
            .host(name)
            .unwrap_or_else(|| panic!("no host {name}"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn portico(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args(arguments);
        command
    }

    fn logged(&self, mut command: Command, name: &str) -> Command {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{name}.log")))
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    /// Starts a program in a host; it runs as long as the rig.
    pub(crate) fn run(&mut self, host: &str, command: Command, log: &str) {
        let process = self.spawn(host, command, log);
        self._programs.push(process);
    }

    /// Starts a program in a host, with its output in a file of the rig.
    pub(crate) fn spawn(&self, host: &str, command: Command, log: &str) -> Process {
        self.host(host).spawn(self.logged(command, log)).unwrap()
    }

    fn start_apiserver(&mut self) {
        let address = self.cluster.addresses.of("cp", "ip").unwrap();
        fs::write(
            self.path("tokens.csv"),
            format!("{TOKEN},admin,1,system:masters\n"),
        )
        .unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "rig",
            "clusters": [{"name": "rig", "cluster": {
                "server": format!("https://{address}:{API_PORT}"), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "rig", "user": {"token": TOKEN}}],
            "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": "rig"}}],
        });
        fs::write(self.path("kubeconfig"), kubeconfig.to_string()).unwrap();
        let mut command = self.portico(&["apiserver", "--endpoint-slice-controller=false"]);
        command
            .arg(format!("--data-dir={}", self.path("data").display()))
            .arg(format!("--bind-address={address}"))
            .arg(format!("--advertise-address={address}"))
            .arg(format!("--secure-port={API_PORT}"))
            .arg(format!(
                "--token-auth-file={}",
                self.path("tokens.csv").display()
            ))
            .arg(format!("--service-cluster-ip-range={SERVICE_RANGES}"));
        self.run("cp", command, "apiserver");
        self.wait_until("the API server is ready", || {
            self.try_kubectl(&["get", "namespace", "kube-system", "-o", "name"], "")
                .map(drop)
        });
    }

    /// The load-balancer controller with a provider.
    pub(crate) fn controller(&self, provider: &str) -> Command {
        let mut command = self.portico(&[
            "controller",
            "--controllers=service-lb",
            "--leader-elect=false",
        ]);
        command.args(["--metrics-bind-address=0", "--cloud-provider", provider]);
        command.arg(format!(
            "--kubeconfig={}",
            self.path("kubeconfig").display()
        ));
        command
    }

    /// Starts the daemon of a node, which may have run before.
    pub(crate) fn start_node(&mut self, name: &'static str) {
        self.start_node_with(name, &[]);
    }

    /// The same with more flags.
    pub(crate) fn start_node_with(&mut self, name: &'static str, flags: &[&str]) {
        let mut command =
            self.portico(&["node", "--static-services=", "--conntrack-max-per-core=0"]);
        command
            .args([
                "--conntrack-min=0",
                "--conntrack-tcp-timeout-established=0",
                "--conntrack-tcp-timeout-close-wait=0",
            ])
            .arg(format!(
                "--kubeconfig={}",
                self.path("kubeconfig").display()
            ))
            .arg(format!("--hostname-override={name}"))
            .arg(format!("--cluster-cidr={POD_RANGES}"))
            .arg(format!("--data-dir={}", self.path(name).display()))
            .args(flags);
        let process = self.spawn(name, command, name);
        self.nodes.insert(name, process);
    }

    /// The daemon of a node.
    pub(crate) fn node(&mut self, name: &str) -> &mut Process {
        self.nodes
            .get_mut(name)
            .unwrap_or_else(|| panic!("{name} does not run"))
    }

    fn add_node(&self, name: &str) {
        let number = name.trim_start_matches("node");
        let pods = [
            format!("10.244.{number}.0/24"),
            format!("fd00:10:244:{number}::/64"),
        ];
        self.apply(&[
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rack": number}},
            "spec": {"podCIDR": pods[0], "podCIDRs": pods}}),
        ]);
        let address = |which| json!({"type": "InternalIP", "address": self.cluster.addresses.of(name, which).unwrap()});
        let status = json!({"status": {"addresses": [address("ip"), address("ip6")]}}).to_string();
        self.kubectl(
            &[
                "patch",
                "node",
                name,
                "--subresource=status",
                "--type=merge",
                "-p",
                &status,
            ],
            "",
        );
    }

    fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(std::env::var("KUBECTL").unwrap_or("kubectl".to_owned()));
        command
            .env("KUBECONFIG", self.path("kubeconfig"))
            .env("HOME", self.dir.path())
            .args(arguments);
        self.host("cp")
            .run(command, input)
            .map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)))
    }

    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        self.try_kubectl(arguments, input)
            .unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    pub(crate) fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl(&["apply", "-f", "-"], &list.to_string());
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", kind, name, "-o", "json"], "")).unwrap()
    }

    /// A pool of addresses that are announced in these ways.
    pub(crate) fn pool(&self, name: &str, addresses: &[&str], announce: &[&str]) {
        self.apply(&[json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": name},
            "spec": {"addresses": addresses, "announce": announce}})]);
    }

    /// The address of a Service in each family that it has, once it has all of them.
    pub(crate) fn addresses(&self, service: &str) -> Vec<IpAddr> {
        let mut found = vec![];
        self.wait_until(&format!("{service} has its addresses"), || {
            let object = self.get("service", service);
            let ingress = object["status"]["loadBalancer"]["ingress"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            found = ingress
                .iter()
                .filter_map(|one| one["ip"].as_str()?.parse().ok())
                .collect();
            let families = object["spec"]["ipFamilies"].as_array().map_or(0, Vec::len);
            if found.len() == families {
                Ok(())
            } else {
                Err(object["status"].to_string())
            }
        });
        found
    }

    /// Waits until a condition of a Service is true; its message.
    pub(crate) fn wait_for_condition(&self, service: &str, kind: &str) -> String {
        let mut message = String::new();
        self.wait_until(&format!("{service} is {kind}"), || {
            let object = self.get("service", service);
            let found = condition(&object, kind).filter(|condition| condition["status"] == "True");
            message = found
                .as_ref()
                .and_then(|found| found["message"].as_str())
                .unwrap_or_default()
                .to_owned();
            found
                .map(drop)
                .ok_or_else(|| object["status"]["conditions"].to_string())
        });
        message
    }

    /// Asks an address of a Service from a host, over TCP.
    pub(crate) fn ask(&self, from: &str, address: IpAddr) -> Result<Seen, String> {
        self.ask_within(Duration::from_millis(500), from, address)
    }

    pub(crate) fn ask_within(
        &self,
        patience: Duration,
        from: &str,
        address: IpAddr,
    ) -> Result<Seen, String> {
        self.ask_by(
            from,
            &Flow {
                patience,
                ..Flow::new(Protocol::Tcp, SocketAddr::new(address, PORT))
            },
        )
    }

    pub(crate) fn ask_by(&self, from: &str, flow: &Flow) -> Result<Seen, String> {
        let answer = self.runtime.block_on(self.host(from).ask(flow));
        answer
            .map(|answer| answer.seen)
            .map_err(|failure| format!("{failure:?}"))
    }

    /// Waits until it answers: what it saw.
    pub(crate) fn wait_for_answer(&self, from: &str, address: IpAddr) -> Seen {
        let mut seen = None;
        self.wait_until(&format!("{address} answers {from}"), || {
            seen = Some(self.ask(from, address)?);
            Ok::<(), String>(())
        });
        seen.unwrap()
    }

    /// The hosts whose addresses the server sees asking in so many tries: with the policy Cluster,
    /// the nodes that attract traffic.
    pub(crate) fn entries(&self, from: &str, address: IpAddr, tries: usize) -> BTreeSet<String> {
        let answers = (0..tries).filter_map(|_| self.ask(from, address).ok());
        answers
            .filter_map(|seen| {
                self.cluster
                    .addresses
                    .owner(seen.source.ip())
                    .map(str::to_owned)
            })
            .collect()
    }

    /// The node that the neighbour table of a host has for an address on its link, if it has one.
    pub(crate) fn owner(&self, seen_from: &str, address: IpAddr) -> Option<&'static str> {
        let mut command = Command::new("ip");
        command.args(["neigh", "show", &address.to_string()]);
        let text = self.host(seen_from).run(command, "").unwrap();
        let mac = text
            .split_whitespace()
            .skip_while(|word| *word != "lladdr")
            .nth(1)?;
        let number: usize = mac.rsplit(':').next()?.parse().ok()?;
        NODES.get(number.checked_sub(1)?).copied()
    }

    /// Waits for something to be so; what it is instead is told if it never becomes so.
    pub(crate) fn wait_until<E: std::fmt::Debug>(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> Result<(), E>,
    ) -> Duration {
        let began = Instant::now();
        loop {
            match is_so() {
                Ok(()) => {
                    println!("{:>6} ms until {what}", began.elapsed().as_millis());
                    return began.elapsed();
                }
                Err(instead) if began.elapsed() > PATIENCE => {
                    panic!("not in time: {what}; but {instead:?}\n{}", self.logs())
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// The last that everybody said.
    pub(crate) fn logs(&self) -> String {
        let tail = |name: &str| {
            let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            format!(
                "--- {name}\n{}\n",
                lines[lines.len().saturating_sub(20)..].join("\n")
            )
        };
        ["controller"]
            .iter()
            .chain(&NODES)
            .map(|name| tail(name))
            .collect()
    }
}

/// A Service of type LoadBalancer in both families, without a selector, and its EndpointSlices with
/// these pods.
pub(crate) fn service(name: &str, policy: &str, pods: &[&str]) -> Vec<Value> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy, "ipFamilyPolicy": "RequireDualStack",
            "ports": [{"name": "http", "port": PORT, "targetPort": 8080}]},
    });
    [vec![service], slices(name, pods)].concat()
}

/// The EndpointSlices of a Service with these pods (`pod1-2` is the second of `node1`).
pub(crate) fn slices(service: &str, pods: &[&str]) -> Vec<Value> {
    let addresses = portico_testbed::cluster::Addresses::default();
    [("IPv4", "ip"), ("IPv6", "ip6")].map(|(family, which)| {
        let endpoint = |pod: &&str| {
            let number = pod.trim_start_matches("pod").split('-').next().unwrap();
            json!({"addresses": [addresses.of(pod, which).unwrap()], "nodeName": format!("node{number}"), "conditions": {"ready": true}})
        };
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {"name": format!("{service}-{which}"), "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        })
    }).to_vec()
}

pub(crate) fn condition(service: &Value, kind: &str) -> Option<Value> {
    service["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)
        .cloned()
}
