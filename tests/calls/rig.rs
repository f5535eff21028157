//! Portico's API server, and the controller of load balancers on it with a provider on a cloud in
//! memory.

use super::cloud::{Call, Cloud, Watched};
use crate::common::client::MERGE;
use crate::common::{Client, Server, Store};
use portico_controller::balancers;
use portico_controller::cluster::Cluster;
use portico_providers::Provider;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Nothing takes longer, on the slowest machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Nothing is compared with what it should be meanwhile.
pub(crate) const NEVER: Duration = Duration::from_secs(86_400);
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

pub(crate) struct Rig {
    server: Server,
    pub client: Client,
    pub cloud: Cloud,
    pub provider: Arc<Watched>,
    resync: Duration,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Rig {
    /// With nodes 1 to `nodes`.
    pub(crate) async fn start(cloud: Cloud, nodes: usize, resync: Duration) -> Self {
        let server = Server::start(Store::Embedded, &["--endpoint-slice-controller=false"]).await;
        let client = server.admin();
        for number in 1..=nodes {
            create_node(&client, &cloud, number, json!({})).await;
        }
        let (provider, stop, running) = control(&server, &cloud, resync).await;
        Self {
            server,
            client,
            cloud,
            provider,
            resync,
            stop,
            running,
        }
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        (self.provider, self.stop, self.running) =
            control(&self.server, &self.cloud, self.resync).await;
    }

    pub(crate) async fn stop(&mut self) {
        self.stop.send_replace(true);
        (&mut self.running).await.unwrap();
    }

    /// Until the provider has been called so often since it was started.
    pub(crate) async fn called(&self, call: Call, times: usize) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let called = self.provider.called(call);
            assert!(
                called <= times,
                "{}: {call:?} was called {called} times and not {times}",
                self.cloud.name
            );
            if called == times {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{}: {call:?}: {called} of {times}",
                self.cloud.name
            );
            assert!(
                !self.running.is_finished(),
                "{}: the controller ended",
                self.cloud.name
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Until so many balancers know so many nodes. One that follows endpoints too is called more
    /// often than nodes change.
    pub(crate) async fn know_nodes(&self, balancers: usize, nodes: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.provider.with_nodes(nodes) != balancers {
            let known = self.provider.with_nodes(nodes);
            assert!(
                Instant::now() < deadline,
                "{}: {known} of {balancers} know {nodes} nodes",
                self.cloud.name
            );
            assert!(
                !self.running.is_finished(),
                "{}: the controller ended",
                self.cloud.name
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn create(&self, service: usize) {
        let (name, annotations) = (name(service), &self.cloud.annotations);
        let spec = json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]});
        let metadata = json!({"name": name, "annotations": annotations});
        let object =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        self.client
            .post("/api/v1/namespaces/default/services", &object)
            .await
            .expect(201);
        let labels = json!({"kubernetes.io/service-name": name});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.0.1"], "nodeName": "node-1"}], "ports": [{"name": "http", "port": 8080}]});
        self.client.post(SLICES, &slice).await.expect(201);
    }

    pub(crate) async fn change(&self, service: usize, patch: &Value) {
        let path = format!("/api/v1/namespaces/default/services/{}", name(service));
        self.client.patch(&path, MERGE, patch).await.expect(200);
    }

    pub(crate) async fn delete(&self, service: usize) {
        self.client
            .delete(&format!(
                "/api/v1/namespaces/default/services/{}",
                name(service)
            ))
            .await;
    }

    pub(crate) async fn move_endpoints(&self, service: usize) {
        let endpoints = json!({"endpoints": [{"addresses": ["10.244.0.2"], "nodeName": "node-2"}]});
        self.client
            .patch(&format!("{SLICES}/{}", name(service)), MERGE, &endpoints)
            .await
            .expect(200);
    }

    /// What no load balancer has to know of.
    pub(crate) async fn change_node(&self, number: usize) {
        let path = format!("/api/v1/nodes/node-{number}");
        let labels = json!({"metadata": {"labels": {"example.com/rack": "7"}, "annotations": {"example.com/note": "x"}}});
        self.client.patch(&path, MERGE, &labels).await.expect(200);
        let condition =
            json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"conditions": [condition]}});
        self.client
            .patch(&format!("{path}/status"), MERGE, &status)
            .await
            .expect(200);
    }

    /// All of it counts from one moment on.
    pub(crate) async fn join(&self, number: usize) {
        let kept_out = "node.kubernetes.io/exclude-from-external-load-balancers";
        create_node(&self.client, &self.cloud, number, json!({ kept_out: "" })).await;
        let let_in = json!({"metadata": {"labels": {kept_out: null}}});
        self.client
            .patch(&format!("/api/v1/nodes/node-{number}"), MERGE, &let_in)
            .await
            .expect(200);
    }

    pub(crate) async fn leave(&self, number: usize) {
        self.client
            .delete(&format!("/api/v1/nodes/node-{number}"))
            .await
            .expect(200);
    }
}

fn name(service: usize) -> String {
    format!("web-{service}")
}

async fn create_node(client: &Client, cloud: &Cloud, number: usize, labels: Value) {
    let (name, provider_id) = (format!("node-{number}"), (cloud.provider_id)(number));
    let metadata = json!({"name": name, "labels": labels});
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"providerID": provider_id}});
    client.post("/api/v1/nodes", &object).await.expect(201);
    let address = json!({"type": "InternalIP", "address": format!("10.20.1.{number}")});
    let status = json!({"status": {"addresses": [address], "nodeInfo": node_info()}});
    client
        .patch(&format!("/api/v1/nodes/{name}/status"), MERGE, &status)
        .await
        .expect(200);
}

/// Clouds ask nodes for their health only if all are new enough to answer.
fn node_info() -> Value {
    let names = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ];
    let mut info: Value = names
        .into_iter()
        .map(|name| (name.to_owned(), json!("")))
        .collect();
    info["kubeletVersion"] = json!("v1.36.4");
    info
}

type Running = (Arc<Watched>, watch::Sender<bool>, JoinHandle<()>);

async fn control(server: &Server, cloud: &Cloud, resync: Duration) -> Running {
    let provider = Arc::new(Watched::on(cloud));
    let config = kube::config::Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default())
            .await;
    let cluster = "conformance".to_owned();
    let options = balancers::Options {
        cluster,
        resync,
        ..balancers::Options::default()
    };
    let (stop, stopped) = watch::channel(false);
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let running = balancers::run(
        Cluster::new(client),
        Arc::clone(&provider) as Arc<dyn Provider>,
        options,
        stopped,
    );
    (provider, stop, tokio::spawn(running))
}
