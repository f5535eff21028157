//! The whole way: a Service in the API, the controller as people run it, HAProxy, a client.

use crate::common::client::MERGE;
use crate::common::{Client, Server, Store, at, eventually, text};
use crate::rig::{PORT, Rig, get};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

const SERVICE: &str = "/api/v1/namespaces/default/services/web";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// `portico controller`; killed when dropped.
struct Controller(Child);

impl Controller {
    fn start(server: &Server, rig: &Rig) -> Controller {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
        command.args(["controller", "--controllers=service-lb", "--leader-elect=false", "--metrics-bind-address=0"]);
        command.arg("--cloud-provider=haproxy").arg("--cloud-config").arg(rig.config());
        command.arg("--kubeconfig").arg(server.kubeconfig()).stdout(Stdio::null());
        Controller(command.spawn().unwrap())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn slice(rig: &Rig, numbers: &[u8]) -> Value {
    let endpoint = |number: &u8| json!({"addresses": [rig.endpoint_address(*number).ip().to_string()]});
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": numbers.iter().map(endpoint).collect::<Vec<_>>(), "ports": [{"name": "", "port": PORT}]})
}

async fn answers_from(rig: &Rig, numbers: &[u8]) {
    let expected: Vec<String> =
        numbers.iter().map(|number| format!("{}_{PORT}", rig.endpoint_address(*number).ip())).collect();
    eventually(&format!("{expected:?} serve"), || async { (rig.servers().await == expected).then_some(()) }).await;
    assert!(get(rig.address(2), rig.frontend(80)).await.is_some());
}

async fn service(api: &Client, is: impl Fn(&Value) -> bool) -> Value {
    eventually("the Service is so", || async { Some(api.get(SERVICE).await.json()).filter(&is) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_the_api_is_served() {
    let rig = Rig::new("targets: endpoints");
    let _endpoints = rig.endpoints(4).await;
    let server = Server::start(Store::Embedded, &["--endpoint-slice-controller=false"]).await;
    let api = server.admin();
    let controller = Controller::start(&server, &rig);
    api.post(SLICES, &slice(&rig, &[0, 1])).await.expect(201);
    api.create_service("web", json!({"type": "LoadBalancer", "ports": [{"port": 80}]})).await.expect(201);
    let made = service(&api, |service| !at(service, "status.loadBalancer.ingress.0").is_null()).await;
    let ingress = at(&made, "status.loadBalancer.ingress.0");
    assert_eq!((text(ingress, "ip"), text(ingress, "ipMode")), (rig.address(1).to_string().as_str(), "Proxy"));
    answers_from(&rig, &[0, 1]).await;
    // Nobody is there when endpoints change: HAProxy serves on, and the next controller finds out.
    drop(controller);
    let mut changed = slice(&rig, &[1, 2, 3]);
    changed["metadata"]["resourceVersion"] = Value::Null;
    api.patch(&format!("{SLICES}/web-1"), MERGE, &changed).await.expect(200);
    assert!(get(rig.address(2), rig.frontend(80)).await.is_some());
    let _controller = Controller::start(&server, &rig);
    answers_from(&rig, &[1, 2, 3]).await;
    // What HAProxy cannot do is told where people look, and the Service goes on as it was.
    let udp = json!({"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}});
    api.patch(SERVICE, MERGE, &udp).await.expect(200);
    service(&api, |service| service.to_string().contains("ProtocolNotSupported")).await;
    assert!(get(rig.address(2), rig.frontend(80)).await.is_some());
    let answer = api.delete(SERVICE).await;
    assert!([200, 202].contains(&answer.status), "{}", answer.text());
    eventually("it is gone", || async { (api.get(SERVICE).await.status == 404).then_some(()) }).await;
    assert_eq!(get(rig.address(2), rig.frontend(80)).await, None);
}
