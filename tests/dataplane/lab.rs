//! The cluster with everything that runs in it: the API server and the program on each node under
//! test, and waiting until the nodes have followed a change.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use portico_testbed::uml::is_inside;
use portico_testbed::{Ask as _, Echo as _};
use portico_testbed::{Cluster, Flow, Host, Process, Protocol};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::control::{Control, Refused, logged};
use crate::objects::{self, merge};

pub(crate) const WORKERS: [&str; 3] = ["node1", "node2", "node3"];
/// A Service that is changed after all others: who forwards its newest port has seen what came
/// before it.
const SENTINEL: [&str; 2] = ["10.96.255.254", "fd00:10:96::fffe"];
const SENTINEL_PORTS: std::ops::Range<u16> = 9900..9964;
/// How long a program may take to start, and to follow a change; four times as long inside
/// user-mode-linux.
const START: Duration = Duration::from_secs(60);
const FOLLOW: Duration = Duration::from_secs(15);

pub(crate) struct Lab {
    pub cluster: Cluster,
    pub control: Control,
    pub mode: &'static str,
    nodes: BTreeMap<&'static str, Process>,
    config: Option<Map<String, Value>>,
    changes: u16,
    dir: TempDir,
}

impl Lab {
    /// Whoever calls this is inside the host `cp` of the cluster.
    pub(crate) async fn start(cluster: Cluster, mode: &'static str) -> Self {
        let mut dir = TempDir::with_prefix("portico-dataplane-").unwrap();
        if std::env::var_os("PORTICO_KEEP").is_some() {
            dir.disable_cleanup(true);
            println!("logs of {mode} are in {}", dir.path().display());
        }
        let cp = cluster.host("cp").unwrap();
        SENTINEL_PORTS.for_each(|port| cp.serve(port).unwrap());
        let control = Control::start(&cluster, dir.path()).await;
        for name in WORKERS {
            control
                .apply(&objects::node(&cluster.addresses, name))
                .await
                .unwrap();
        }
        Self {
            cluster,
            control,
            mode,
            nodes: BTreeMap::new(),
            config: None,
            changes: 0,
            dir,
        }
    }

    pub(crate) fn host(&self, name: &str) -> &Host {
        self.cluster
            .host(name)
            .unwrap_or_else(|| panic!("no host {name}"))
    }

    /// All nodes run with this configuration; those that do already are left alone.
    pub(crate) async fn use_config(&mut self, config: &Map<String, Value>) {
        if self.config.as_ref() != Some(config) {
            WORKERS.iter().for_each(|name| self.stop_node(name));
            self.config = Some(config.clone());
        }
        self.start_missing().await;
    }

    /// Starts what does not run and waits for it.
    pub(crate) async fn start_missing(&mut self) {
        self.nodes.retain(|_, process| process.ended().is_none());
        let missing: Vec<_> = WORKERS
            .into_iter()
            .filter(|name| !self.nodes.contains_key(name))
            .collect();
        missing.iter().for_each(|name| self.start_node(name));
        if !missing.is_empty() {
            let late = self
                .sync_within(START)
                .await
                .unwrap_or_else(|error| panic!("sentinel: {error}"));
            assert!(late.is_empty(), "not started: {late:?}\n{}", self.logs());
        }
    }

    pub(crate) fn start_node(&mut self, name: &'static str) {
        let process = self.spawn(name, &[]);
        self.nodes.insert(name, process);
    }

    pub(crate) fn stop_node(&mut self, name: &str) {
        if let Some(mut process) = self.nodes.remove(name) {
            process.terminate(Duration::from_secs(10));
        }
    }

    /// Runs the program to remove what it installed.
    pub(crate) fn clean_up_node(&mut self, name: &'static str) {
        let mut process = self.spawn(name, &["--cleanup"]);
        let deadline = Instant::now() + Duration::from_secs(30);
        while process.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// `portico node`, or the shell command in `PORTICO_NODE_COMMAND` with `{config}` for the file.
    fn spawn(&self, name: &str, flags: &[&str]) -> Process {
        let path = self.write_config(name);
        let mut command = match std::env::var("PORTICO_NODE_COMMAND") {
            Ok(text) => {
                let mut shell = Command::new("sh");
                let text = text.replace("{config}", &path.display().to_string());
                shell.args(["-c", &format!("exec {text} \"$@\""), "node"]);
                shell
            }
            Err(_) => {
                let mut portico = Command::new(env!("CARGO_BIN_EXE_portico"));
                portico.args(["node", "--config"]).arg(path);
                portico
                    .arg("--data-dir")
                    .arg(self.dir.path().join(name))
                    .arg("--static-services=");
                portico
            }
        };
        command.args(flags).env("NODE_NAME", name).env(
            "XTABLES_LOCKFILE",
            self.dir.path().join(format!("{name}.lock")),
        );
        self.host(name)
            .spawn(logged(command, &self.log_path(name)))
            .unwrap()
    }

    /// What the program of a node is told.
    pub(crate) fn config(&self, name: &str) -> Value {
        let mut config = objects::node_config(self.mode, name);
        config["clientConnection"] =
            json!({"kubeconfig": self.control.kubeconfig, "qps": 50, "burst": 100});
        if let Some(extra) = &self.config {
            merge(&mut config, &Value::from(extra.clone()));
        }
        config
    }

    /// No node's rules are left to themselves.
    pub(crate) fn all_run(&self) -> bool {
        self.nodes.len() == WORKERS.len()
    }

    fn write_config(&self, name: &str) -> PathBuf {
        let config = self.config(name);
        let (path, text) = (
            self.dir.path().join(format!("{name}.json")),
            config.to_string(),
        );
        // A running program may watch its file.
        if fs::read_to_string(&path).unwrap_or_default() != text {
            fs::write(&path, text).unwrap();
        }
        path
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    /// The last that each node said.
    pub(crate) fn logs(&self) -> String {
        let tail = |name: &str| {
            let log = fs::read_to_string(self.log_path(name)).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            format!(
                "--- {name}\n{}\n",
                lines[lines.len().saturating_sub(15)..].join("\n")
            )
        };
        WORKERS.iter().map(|name| tail(name)).collect()
    }

    /// Waits until every running node has followed; those that have not.
    pub(crate) async fn sync(&mut self) -> Result<Vec<String>, Refused> {
        self.sync_within(FOLLOW).await
    }

    async fn sync_within(&mut self, patience: Duration) -> Result<Vec<String>, Refused> {
        self.changes += 1;
        let (port, target) = (
            10_000 + self.changes,
            SENTINEL_PORTS.start + self.changes % 64,
        );
        for object in self.sentinel(port, target) {
            self.control.apply(&object).await?;
        }
        let deadline = Instant::now() + patience * if is_inside() { 4 } else { 1 };
        let cluster = &self.cluster;
        let waits = self.nodes.iter_mut().map(|(name, process)| async move {
            let host = cluster.host(name).unwrap();
            let late =
                join_all(SENTINEL.map(|address| follow(host, address, port, target, deadline)))
                    .await;
            match process.ended() {
                Some(status) => Some(format!("{name} ended: {status}")),
                None => late.contains(&true).then(|| format!("{name} is late")),
            }
        });
        Ok(join_all(waits).await.into_iter().flatten().collect())
    }

    fn sentinel(&self, port: u16, target: u16) -> Vec<Value> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "lab-sentinel"},
            "spec": {
                "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
                "clusterIP": SENTINEL[0], "clusterIPs": SENTINEL,
                "ports": [{"name": "p", "port": port, "targetPort": target, "protocol": "TCP"}],
            },
        });
        let slice = |family: &str, which: &str| {
            json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {
                    "name": format!("lab-sentinel-{}", family.to_lowercase()),
                    "labels": {"kubernetes.io/service-name": "lab-sentinel"},
                },
                "addressType": family, "ports": [{"name": "p", "port": target, "protocol": "TCP"}],
                "endpoints": [{"addresses": [self.cluster.addresses.of("cp", which)], "conditions": {"ready": true}}],
            })
        };
        vec![service, slice("IPv4", "ip"), slice("IPv6", "ip6")]
    }
}

/// Asks on this node until the sentinel answers on its new port; whether it did not in time.
async fn follow(host: &Host, address: &str, port: u16, target: u16, deadline: Instant) -> bool {
    let to = std::net::SocketAddr::new(address.parse().unwrap(), port);
    let mut flow = Flow {
        patience: Duration::from_millis(60),
        ..Flow::new(Protocol::Tcp, to)
    };
    // Asking takes time from those who are waited for.
    let mut pause = Duration::from_millis(4);
    while Instant::now() < deadline {
        match host.ask(&flow).await {
            Ok(answer) if answer.seen.host == "cp" && answer.seen.port == target => return false,
            Err(portico_testbed::Failure::Timeout) => {
                flow.patience = (flow.patience * 3 / 2).min(Duration::from_secs(1))
            }
            _ => sleep(pause).await,
        }
        pause = (pause * 5 / 4).min(Duration::from_millis(100));
    }
    true
}
