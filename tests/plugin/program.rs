//! Plugins as programs: started, killed, looked at.

use crate::common::Server;
use portico_providers::{
    Endpoint, Family, HealthCheck, Host, Ingress, IpMode, Node, Port, Protocol, Request, ServiceRef,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

pub(crate) struct Plugin {
    folder: TempDir,
    pub socket: PathBuf,
    command: Vec<String>,
    child: Option<Child>,
    owned: String,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Beside the build directory of the binary.
fn target() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_portico"))
        .ancestors()
        .nth(2)
        .unwrap()
}

impl Plugin {
    pub(crate) fn python(flaw: &str) -> Self {
        let python = target().join("python/bin/python");
        assert!(
            python.exists(),
            "{} is missing: run `make deps`",
            python.display()
        );
        let (folder, root) = (
            TempDir::with_prefix("portico-plugin-").unwrap(),
            workspace(),
        );
        let (socket, kept) = (
            folder.path().join("plugin.sock"),
            folder.path().join("balancers"),
        );
        let command = [
            python.display().to_string(),
            root.join("tests/plugin/plugin.py").display().to_string(),
            format!(
                "--proto={}",
                root.join("crates/portico-providers/proto/plugin.proto")
                    .display()
            ),
            format!("--socket={}", socket.display()),
            format!("--folder={}", kept.display()),
            format!("--log={}", folder.path().join("calls").display()),
            format!("--flaw={flaw}"),
        ];
        let owned = format!(
            "cd {} && for file in *.json; do [ ! -e $file ] || echo balancer $file $(cat $file); \
             done",
            kept.display()
        );
        let mut plugin = Self {
            folder,
            socket,
            command: command.to_vec(),
            child: None,
            owned,
        };
        plugin.start();
        plugin
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// All that was made is lost.
    pub(crate) fn forget(&self) {
        std::fs::remove_dir_all(self.folder.path().join("balancers")).unwrap();
    }

    pub(crate) fn balancers(&self) -> Vec<Value> {
        let files = std::fs::read_dir(self.folder.path().join("balancers"))
            .into_iter()
            .flatten()
            .flatten();
        let kept = files
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "json"));
        kept.filter_map(|path| serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok())
            .collect()
    }

    pub(crate) fn calls(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        log.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn portico(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_portico"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Whether it passed, and what was printed.
pub(crate) fn check(plugin: &Plugin) -> (bool, String) {
    let socket = plugin.socket.display().to_string();
    let output = portico(&[
        "controller",
        "check-plugin",
        "--socket",
        &socket,
        "--owned-command",
        &plugin.owned,
        "--pause",
        "10ms",
    ]);
    let (report, trouble) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(!report.is_empty(), "{trouble}");
    (output.status.success(), report.into_owned())
}

/// A controller that ends with the test.
pub(crate) struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn controller(server: &Server, plugin: &Plugin) -> Controller {
    let child = Command::new(env!("CARGO_BIN_EXE_portico"))
        .args([
            "controller",
            "--controllers=service-lb",
            "--leader-elect=false",
            "--metrics-bind-address=0",
        ])
        .arg(format!("--kubeconfig={}", server.kubeconfig().display()))
        .arg(format!(
            "--cloud-provider=plugin:{}",
            plugin.socket.display()
        ))
        .stdin(Stdio::null())
        .spawn();
    Controller(child.unwrap())
}

/// Every field has a value that no other has.
pub(crate) fn full_request() -> Request {
    let map = |key: &str| {
        [(key.to_owned(), format!("{key} value"))]
            .into_iter()
            .collect()
    };
    Request {
        cluster: "cluster".to_owned(),
        service: ServiceRef {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u-1".to_owned(),
        },
        balancer_name: "au1".to_owned(),
        class: Some("example.com/class".to_owned()),
        labels: map("label"),
        annotations: map("annotation"),
        requested_ip: Some("192.0.2.9".to_owned()),
        families: vec![Family::V6, Family::V4],
        require_all_families: true,
        ports: vec![Port {
            name: "dns".to_owned(),
            protocol: Protocol::Udp,
            port: 53,
            node_port: 30053,
            app_protocol: Some("example.com/dns".to_owned()),
        }],
        local: true,
        selector: map("selector"),
        affinity: Some(600),
        source_ranges: vec!["198.51.100.0/24".parse().unwrap()],
        health_check: Some(HealthCheck {
            port: 32000,
            path: "/healthz".to_owned(),
        }),
        nodes: vec![Node {
            name: "node-1".to_owned(),
            provider_id: "cloud://one".to_owned(),
            zone: "a".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            version: "v1.36.4".to_owned(),
        }],
        endpoints: vec![Endpoint {
            address: "10.244.0.2".parse().unwrap(),
            port_name: "metrics".to_owned(),
            protocol: Protocol::Sctp,
            port: 5353,
            node: Some("node-2".to_owned()),
        }],
        ingress: vec![
            Ingress {
                host: Host::Name("lb.example".to_owned()),
                mode: IpMode::Vip,
            },
            Ingress {
                host: Host::Ip("192.0.2.8".parse().unwrap()),
                mode: IpMode::Proxy,
            },
        ],
    }
}

/// The same by the names of plugin.proto.
pub(crate) fn full_request_as_json() -> Value {
    json!({
        "cluster": "cluster",
        "service": {"namespace": "shop", "name": "web", "uid": "u-1"},
        "balancerName": "au1",
        "class": "example.com/class",
        "labels": {"label": "label value"},
        "annotations": {"annotation": "annotation value"},
        "requestedIp": "192.0.2.9",
        "families": ["FAMILY_IPV6", "FAMILY_IPV4"],
        "requireAllFamilies": true,
        "ports": [{"name": "dns", "protocol": "PROTOCOL_UDP", "port": 53, "nodePort": 30053, "appProtocol": "example.com/dns"}],
        "local": true,
        "selector": {"selector": "selector value"},
        "affinitySeconds": 600,
        "sourceRanges": ["198.51.100.0/24"],
        "healthCheck": {"port": 32000, "path": "/healthz"},
        "nodes": [{"name": "node-1", "providerId": "cloud://one", "zone": "a", "addresses": ["10.0.0.1", "fd00::1"], "version": "v1.36.4"}],
        "endpoints": [{"address": "10.244.0.2", "portName": "metrics", "protocol": "PROTOCOL_SCTP", "port": 5353, "node": "node-2"}],
        "ingress": [{"hostname": "lb.example"}, {"ip": "192.0.2.8", "mode": "IP_MODE_PROXY"}],
    })
}
