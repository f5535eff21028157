//! An API server, a controller inside the test, and what people do.

use crate::cloud::Cloud;
use crate::common::client::MERGE;
use crate::common::{Client, Server, Store, at, eventually, rival, text, text as text_of};
use crate::{SERVICES, SLICES};
use portico_controller::balancers::{self, Options};
use portico_controller::cluster::Cluster;
use portico_providers::Abilities;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) struct Rig {
    pub server: Server,
    pub api: Client,
}

/// A controller that runs until it is dropped, as if it were killed.
pub(crate) struct Running {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Running {
    pub(crate) fn new<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(watch::Receiver<bool>) -> F,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self {
            task: tokio::spawn(run(stopped)),
            stop,
        }
    }

    /// In order.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        let task = &mut self.task;
        tokio::time::timeout(Duration::from_secs(10), task)
            .await
            .expect("it stops")
            .unwrap();
    }

    /// Without notice.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Retries in milliseconds.
pub(crate) fn options() -> Options {
    Options {
        retry: (Duration::from_millis(20), Duration::from_millis(200)),
        ..Options::default()
    }
}

impl Rig {
    /// With a real kube-apiserver in place of Portico's, the definitions of `deploy/` are installed
    /// first.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With more flags, which a real kube-apiserver does not get.
    pub(crate) async fn start_with(more: &[&str]) -> Self {
        let mut flags = Vec::new();
        if rival().is_none() {
            flags.push("--endpoint-slice-controller=false");
            flags.extend(more);
        }
        let server = Server::start(Store::Embedded, &flags).await;
        let api = server.admin();
        let rig = Self { server, api };
        if rig.server.is_rival() {
            rig.define().await;
        }
        rig
    }

    async fn define(&self) {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let files =
            std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds")).unwrap();
        for file in files {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let definition: Value = serde_saphyr::from_str(&text).unwrap();
            self.api.post(definitions, &definition).await.expect(201);
            let resource = text_of(&definition, "spec.names.plural");
            eventually(&format!("{resource} are served"), || async {
                (self
                    .api
                    .get(&format!("/apis/portico.dev/v1/{resource}"))
                    .await
                    .status
                    == 200)
                    .then_some(())
            })
            .await;
        }
        eventually("there is a namespace for Services", || async {
            (self.api.get("/api/v1/namespaces/default").await.status == 200).then_some(())
        })
        .await;
    }

    /// A client with the kubeconfig of the administrator.
    pub(crate) async fn kube(&self) -> kube::Client {
        let config = kube::config::Kubeconfig::read_from(self.server.kubeconfig()).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options)
            .await
            .unwrap();
        kube::Client::try_from(config).unwrap()
    }

    pub(crate) async fn cloud(&self, abilities: Abilities) -> Cloud {
        Cloud::new(self.kube().await, abilities)
    }

    pub(crate) async fn control(&self, cloud: &Cloud) -> Running {
        run(self.kube().await, cloud, options())
    }

    pub(crate) async fn node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.api.post("/api/v1/nodes", &node).await.expect(201);
    }

    pub(crate) async fn create(&self, name: &str) -> Value {
        self.create_with(name, json!({})).await
    }

    pub(crate) async fn create_with(&self, name: &str, more: Value) -> Value {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.api.create_service(name, spec).await.expect(201)
    }

    pub(crate) async fn change(&self, name: &str, patch: Value) {
        self.api.patch(&path(name), MERGE, &patch).await.expect(200);
    }

    pub(crate) async fn delete(&self, name: &str) {
        let answer = self.api.delete(&path(name)).await;
        assert!([200, 202].contains(&answer.status), "{}", answer.text());
    }

    pub(crate) async fn get(&self, name: &str) -> Option<Value> {
        let answer = self.api.get(&path(name)).await;
        (answer.status == 200).then(|| answer.json())
    }

    pub(crate) async fn endpoint(&self, service: &str, node: &str) {
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": node}], "ports": [{"name": "http", "port": 8080}]});
        self.api.post(SLICES, &slice).await.expect(201);
    }

    pub(crate) async fn address(&self, name: &str) -> String {
        eventually(&format!("{name} has an address"), || async {
            let service = self.get(name).await?;
            Some(text(&service, "status.loadBalancer.ingress.0.ip").to_owned())
                .filter(|address| !address.is_empty())
        })
        .await
    }

    pub(crate) async fn is_gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), || async {
            self.get(name).await.is_none().then_some(())
        })
        .await;
    }

    /// The addresses in the status.
    pub(crate) async fn addresses(&self, name: &str) -> Vec<String> {
        let service = self.get(name).await.unwrap_or_default();
        let ingress = at(&service, "status.loadBalancer.ingress")
            .as_array()
            .cloned()
            .unwrap_or_default();
        ingress
            .iter()
            .map(|ingress| text(ingress, "ip").to_owned())
            .collect()
    }

    /// Waits for a condition with this reason; the condition.
    pub(crate) async fn condition(&self, name: &str, kind: &str, reason: &str) -> Value {
        eventually(&format!("{name} is {kind} because of {reason}"), || async {
            let service = self.get(name).await?;
            condition(&service, kind).filter(|condition| text(condition, "reason") == reason)
        })
        .await
    }
}

pub(crate) fn run(client: kube::Client, cloud: &Cloud, options: Options) -> Running {
    let cloud = Arc::new(cloud.clone());
    Running::new(move |stop| balancers::run(Cluster::new(client), cloud, options, stop))
}

pub(crate) fn path(name: &str) -> String {
    format!("{SERVICES}/{name}")
}

pub(crate) fn condition(service: &Value, kind: &str) -> Option<Value> {
    let conditions = at(service, "status.conditions").as_array()?;
    conditions
        .iter()
        .find(|condition| text(condition, "type") == kind)
        .cloned()
}

pub(crate) fn finalizers(service: &Value) -> Vec<String> {
    serde_json::from_value(at(service, "metadata.finalizers").clone()).unwrap_or_default()
}
