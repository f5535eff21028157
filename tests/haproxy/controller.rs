//! The whole way: a Service in the API, the controller as people run it, HAProxy, a client.

use crate::common::client::MERGE;
use crate::common::{Client, Server, Store, at, eventually, text};
use crate::endpoint::Endpoint;
use crate::rig::{Rig, get};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

const SERVICE: &str = "/api/v1/namespaces/default/services/web";
const NODES: &str = "/api/v1/nodes";
const NODE_PORT: u16 = 30080;

/// `portico controller`; killed when dropped.
struct Controller(Child);

impl Controller {
    fn start(server: &Server, rig: &Rig) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args([
            "controller",
            "--controllers=service-lb",
            "--leader-elect=false",
            "--metrics-bind-address=0",
        ]);
        command
            .arg("--cloud-provider=haproxy")
            .arg("--cloud-config")
            .arg(rig.config());
        command
            .arg("--kubeconfig")
            .arg(server.kubeconfig())
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node with an endpoint behind its node port, and its healthz.
async fn node(api: &Client, rig: &Rig, number: u8) -> [Endpoint; 2] {
    let address = rig.endpoint_address(number).ip();
    let name = format!("node-{number}");
    api.post(
        NODES,
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}),
    )
    .await
    .expect(201);
    let status =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": address.to_string()}]}});
    api.patch(&format!("{NODES}/{name}/status"), MERGE, &status)
        .await
        .expect(200);
    let serve = async |port| Endpoint::start(SocketAddr::new(address, port)).await;
    [serve(NODE_PORT).await, serve(10256).await]
}

async fn answers_from(rig: &Rig, numbers: &[u8]) {
    let expected: Vec<String> = numbers
        .iter()
        .map(|number| format!("{}_{NODE_PORT}", rig.endpoint_address(*number).ip()))
        .collect();
    eventually(&format!("{expected:?} serve"), || async {
        (rig.servers().await == expected).then_some(())
    })
    .await;
    assert!(get(rig.address(2), rig.frontend(80)).await.is_some());
}

async fn service(api: &Client, is: impl Fn(&Value) -> bool) -> Value {
    eventually("the Service is so", || async {
        Some(api.get(SERVICE).await.json()).filter(&is)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_the_api_is_served() {
    let rig = Rig::new("");
    let server = Server::start(Store::Embedded, &["--endpoint-slice-controller=false"]).await;
    let api = server.admin();
    let controller = Controller::start(&server, &rig);
    let mut nodes = vec![node(&api, &rig, 0).await, node(&api, &rig, 1).await];
    let ports = json!([{"port": 80, "nodePort": NODE_PORT}]);
    api.create_service("web", json!({"type": "LoadBalancer", "ports": ports}))
        .await
        .expect(201);
    let made = service(&api, |service| {
        !at(service, "status.loadBalancer.ingress.0").is_null()
    })
    .await;
    let ingress = at(&made, "status.loadBalancer.ingress.0");
    assert_eq!(
        (text(ingress, "ip"), text(ingress, "ipMode")),
        (rig.address(1).to_string().as_str(), "Proxy")
    );
    answers_from(&rig, &[0, 1]).await;
    // Nobody is there when nodes change: HAProxy serves on, and the next controller finds out.
    drop(controller);
    nodes.push(node(&api, &rig, 2).await);
    nodes.push(node(&api, &rig, 3).await);
    api.delete(&format!("{NODES}/node-0")).await.expect(200);
    assert!(get(rig.address(2), rig.frontend(80)).await.is_some());
    let _controller = Controller::start(&server, &rig);
    answers_from(&rig, &[1, 2, 3]).await;
    // What HAProxy cannot do is told where people look, and the Service goes on as it was.
    let udp = json!({"spec": {"ports": [{"port": 80, "protocol": "UDP", "nodePort": NODE_PORT}]}});
    api.patch(SERVICE, MERGE, &udp).await.expect(200);
    service(&api, |service| {
        service.to_string().contains("ProtocolNotSupported")
    })
    .await;
    assert!(get(rig.address(2), rig.frontend(80)).await.is_some());
    let answer = api.delete(SERVICE).await;
    assert!([200, 202].contains(&answer.status), "{}", answer.text());
    eventually("it is gone", || async {
        (api.get(SERVICE).await.status == 404).then_some(())
    })
    .await;
    assert_eq!(get(rig.address(2), rig.frontend(80)).await, None);
}
