//! What changes of nodes cost at a provider that sends traffic to nodes: 500 Services, 100 nodes,
//! and calls that are counted.

use crate::common::{Client, Server, Store, eventually};
use crate::report::Report;
use futures_util::FutureExt;
use portico_controller::balancers;
use portico_controller::cluster::Cluster;
use portico_providers::{Abilities, Answer, Balancer, Host, Ingress, IpMode, Provider, Request};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const SERVICES: usize = 500;
const NODES: usize = 100;
/// By then a change of nodes has had all its consequences.
const CONSEQUENCES: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Counting {
    ensured: AtomicUsize,
    /// Of Services whose load balancers know every node, and of those that know only nodes with
    /// endpoints.
    updated: AtomicUsize,
    updated_local: AtomicUsize,
    other: AtomicUsize,
}

impl Counting {
    fn calls(&self) -> usize {
        [
            &self.ensured,
            &self.updated,
            &self.updated_local,
            &self.other,
        ]
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
        .sum()
    }

    fn made(&self) -> Balancer {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        Balancer {
            ingress: vec![Ingress {
                host: Host::Ip(address),
                mode: IpMode::Vip,
            }],
            pending: None,
        }
    }
}

impl Provider for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            uses_nodes: true,
            ..Abilities::default()
        }
    }

    fn describe<'a>(&'a self, _request: &'a Request) -> Answer<'a, Option<Balancer>> {
        self.other.fetch_add(1, Ordering::Relaxed);
        async { Ok(Some(self.made())) }.boxed()
    }

    fn ensure<'a>(&'a self, _request: &'a Request) -> Answer<'a, Balancer> {
        self.ensured.fetch_add(1, Ordering::Relaxed);
        async { Ok(self.made()) }.boxed()
    }

    fn update_nodes<'a>(&'a self, request: &'a Request) -> Answer<'a, ()> {
        let count = if request.local {
            &self.updated_local
        } else {
            &self.updated
        };
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }.boxed()
    }

    fn delete<'a>(&'a self, _request: &'a Request) -> Answer<'a, ()> {
        self.other.fetch_add(1, Ordering::Relaxed);
        async { Ok(()) }.boxed()
    }
}

pub(crate) async fn measure() -> Report {
    let mut report = Report::new("counting provider");
    let flags = ["--endpoint-slice-controller=false"];
    let server = Server::start(Store::Embedded, &flags).await;
    let client = server.admin();
    for node in 0..NODES {
        client
            .post("/api/v1/nodes", &node_object(node))
            .await
            .expect(201);
    }
    // Half of them keep traffic on nodes and have no port to be asked on: their load balancers know
    // only nodes with endpoints.
    for service in 0..SERVICES {
        create(&client, service).await;
    }
    let (provider, metrics) = (
        Arc::new(Counting::default()),
        Arc::new(balancers::Metrics::default()),
    );
    let options = balancers::Options {
        metrics: Arc::clone(&metrics),
        ..balancers::Options::default()
    };
    let config = kube::config::Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default())
            .await
            .unwrap();
    let (stop, stopped) = watch::channel(false);
    let began = Instant::now();
    let running = tokio::spawn(balancers::run(
        Cluster::new(kube::Client::try_from(config).unwrap()),
        Arc::clone(&provider) as Arc<dyn Provider>,
        options,
        stopped,
    ));
    eventually("all are made", || async {
        (provider.ensured.load(Ordering::Relaxed) >= SERVICES).then_some(())
    })
    .await;
    report.add(
        "500 Services, 100 nodes: all made after",
        began.elapsed().as_secs_f64(),
        "s",
        false,
    );
    tokio::time::sleep(CONSEQUENCES).await;
    report.add(
        "calls of the provider so far",
        provider.calls() as f64,
        "",
        false,
    );

    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let path = format!("/api/v1/nodes/{}", name(8));
    let before = provider.calls();
    client
        .patch(
            &format!("{path}/status"),
            crate::common::client::MERGE,
            &not_ready,
        )
        .await
        .expect(200);
    tokio::time::sleep(CONSEQUENCES).await;
    report.add(
        "a node is not ready, calls",
        (provider.calls() - before) as f64,
        "",
        false,
    );
    let updates =
        || [&provider.updated, &provider.updated_local].map(|count| count.load(Ordering::Relaxed));
    let (calls, before) = (provider.calls(), updates());
    client.delete(&path).await.expect(200);
    tokio::time::sleep(CONSEQUENCES).await;
    let after = updates();
    report.add(
        "a node leaves, calls",
        (provider.calls() - calls) as f64,
        "",
        false,
    );
    report.add(
        "of 250 that know every node",
        (after[0] - before[0]) as f64,
        "",
        false,
    );
    report.add(
        "of 250 that know nodes with endpoints",
        (after[1] - before[1]) as f64,
        "",
        false,
    );
    let before = provider.calls();
    for node in 10..20 {
        client
            .delete(&format!("/api/v1/nodes/{}", name(node)))
            .await
            .expect(200);
    }
    tokio::time::sleep(CONSEQUENCES).await;
    report.add(
        "ten nodes leave at once, calls",
        (provider.calls() - before) as f64,
        "",
        false,
    );
    stop.send_replace(true);
    running.await.unwrap();
    report
}

fn name(node: usize) -> String {
    format!("node-{node:03}")
}

fn node_object(node: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name(node)}, "spec": {"providerID": format!("bench://{node}")}})
}

async fn create(client: &Client, service: usize) {
    let mut spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]});
    if service.is_multiple_of(2) {
        spec["externalTrafficPolicy"] = "Local".into();
        spec["allocateLoadBalancerHCNodePort"] = false.into();
    }
    let service_name = format!("web-{service}");
    client.create_service(&service_name, spec).await.expect(201);
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service_name}-s"), "labels": {"kubernetes.io/service-name": service_name}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.244.0.1"], "nodeName": name(service % NODES)}],
        "ports": [{"port": 8080}]});
    client
        .post(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            &slice,
        )
        .await
        .expect(201);
}
