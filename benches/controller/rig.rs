//! The API server, its objects, `portico controller` as a process, and what can be seen of it from
//! outside.

use crate::common::client::MERGE;
use crate::common::{Client, Server, Store, eventually, ports};
use crate::nodes::Node;
use crate::raw::{self, Connection};
use portico_testbed::Testbed;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WRITERS: usize = 8;

pub(crate) struct Rig {
    server: Server,
    pub client: Client,
    pub nodes: Vec<Node>,
    controller: Option<Child>,
    metrics: u16,
    _bed: Testbed,
}

/// What the controller has done.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub calls: f64,
    pub writes: f64,
}

impl std::ops::Sub for Work {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            writes: self.writes - before.writes,
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop_controller();
    }
}

impl Rig {
    pub(crate) async fn start(nodes: usize) -> Self {
        let server = Server::start(Store::Embedded, &["--endpoint-slice-controller=false"]).await;
        let (client, bed) = (server.admin(), Testbed::new().unwrap());
        let node = |number| {
            Node::new(
                &bed,
                number,
                server.port,
                &server.kubeconfig(),
                server.dir(),
            )
        };
        let nodes = (0..nodes).map(node).collect();
        let pool = json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": "public"},
            "spec": {"addresses": ["198.18.0.0/15"]}});
        client
            .post("/apis/portico.dev/v1/addresspools", &pool)
            .await
            .expect(201);
        let mut rig = Self {
            server,
            client,
            nodes,
            controller: None,
            metrics: ports::free(),
            _bed: bed,
        };
        for number in 0..rig.nodes.len() {
            rig.join(number).await;
        }
        rig
    }

    /// Its object and its daemon, until it reports.
    pub(crate) async fn join(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}});
        self.client.post("/api/v1/nodes", &object).await.expect(201);
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": format!("172.30.{number}.11")}]}});
        self.client
            .patch(
                &format!("/api/v1/nodes/{}/status", node.name),
                MERGE,
                &status,
            )
            .await
            .expect(200);
        node.start();
        let lease = lease(&node.name);
        eventually(&format!("{} reports", node.name), || async {
            (self.client.get(&lease).await.status == 200).then_some(())
        })
        .await;
    }

    /// The daemon is killed, and the node is removed from the cluster.
    pub(crate) async fn leave(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.stop();
        self.client
            .delete(&format!("/api/v1/nodes/{}", node.name))
            .await
            .expect(200);
        self.client.delete(&lease(&node.name)).await.expect(200);
    }

    /// Services with an endpoint each, forwarded inside the cluster by all nodes when this returns.
    pub(crate) async fn load(&mut self, count: usize) {
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        let slice = |n: usize| {
            let (high, low, node) = (n >> 8, n & 255, n % self.nodes.len());
            format!(
                r#"{{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{{"name":"web-{n:05}-s","labels":{{"kubernetes.io/service-name":"web-{n:05}"}}}},"addressType":"IPv4","endpoints":[{{"addresses":["10.244.{high}.{low}"],"nodeName":"node-{node}"}}],"ports":[{{"name":"http","port":8080,"protocol":"TCP"}}]}}"#
            )
        };
        let service = |n: usize| {
            format!(
                r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"web-{n:05}"}},"spec":{{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{{"name":"http","port":80,"targetPort":8080}}]}}}}"#
            )
        };
        self.write((0..count).map(|n| raw::post(slices, &slice(n))).collect())
            .await;
        let services = "/api/v1/namespaces/default/services";
        self.write(
            (0..count)
                .map(|n| raw::post(services, &service(n)))
                .collect(),
        )
        .await;
        let list = self
            .client
            .get(&format!("{services}?limit=1"))
            .await
            .expect(200);
        let version: u64 = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        for node in &self.nodes {
            eventually(&format!("{} has installed all", node.name), || async {
                let lease = self.client.get(&lease(&node.name)).await.expect(200);
                let report = lease["metadata"]["annotations"]["portico.dev/report"]
                    .as_str()
                    .unwrap_or("{}");
                let report: serde_json::Value = serde_json::from_str(report).unwrap();
                let installed: u64 = report["services"]
                    .as_str()
                    .unwrap_or("0")
                    .parse()
                    .unwrap_or(0);
                (installed + 1 >= version).then_some(())
            })
            .await;
        }
    }

    async fn write(&self, requests: Vec<Vec<u8>>) {
        let writes = requests
            .chunks(requests.len().div_ceil(WRITERS))
            .map(|chunk| async move {
                let mut connection = Connection::open(&self.client).await;
                for request in chunk {
                    assert_eq!(connection.exchange(request).await, 201);
                }
            });
        futures_util::future::join_all(writes).await;
    }

    pub(crate) fn start_controller(&mut self) {
        let log = std::fs::File::create(self.server.dir().join("controller.log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "controller",
            "--controllers=service-lb",
            "--cloud-provider=metal",
            "--leader-elect=false",
        ]);
        command.arg(format!("--metrics-bind-address=127.0.0.1:{}", self.metrics));
        command.arg("--kubeconfig").arg(self.server.kubeconfig());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.controller = Some(command.spawn().unwrap());
    }

    pub(crate) fn stop_controller(&mut self) {
        if let Some(mut controller) = self.controller.take() {
            controller.kill().unwrap();
            controller.wait().unwrap();
        }
    }

    /// Waits until it has done something and uses no processor any more.
    pub(crate) async fn settled(&self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut before = self.cpu();
        while Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = self.cpu();
            if now - before < Duration::from_millis(20) && now > Duration::from_millis(50) {
                return;
            }
            before = now;
        }
        panic!("the controller never rests");
    }

    pub(crate) fn cpu(&self) -> Duration {
        cpu(self.controller.as_ref().unwrap().id())
    }

    pub(crate) fn cpu_of_nodes(&self) -> Duration {
        self.nodes
            .iter()
            .filter_map(|node| node.daemon.as_ref())
            .map(|daemon| cpu(daemon.id()))
            .sum()
    }

    pub(crate) fn memory(&self, line: &str) -> f64 {
        let status = std::fs::read_to_string(format!(
            "/proc/{}/status",
            self.controller.as_ref().unwrap().id()
        ))
        .unwrap();
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

    /// By the controller's own count.
    pub(crate) fn work(&self) -> Work {
        let text = page(self.metrics);
        let sum = |name: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines
                .filter_map(|line| line.split_whitespace().last()?.parse::<f64>().ok())
                .fold(0.0, |sum, value| sum + value)
        };
        Work {
            calls: sum("portico_balancer_provider_calls_total"),
            writes: sum("portico_balancer_writes_total"),
        }
    }
}

fn lease(node: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/portico-node-{node}")
}

fn page(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.0\r\nHost: controller\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn cpu(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}
