//! Objects in the API, and those of the demo: nodes, pods, a Service of each visibility, and a pool
//! of addresses.

use anyhow::Context;
use kube::Client;
use portico_netns::lab::{PLACES, POD_PORT, POOL, Place};
use serde_json::{Value, json};

/// The field manager of the objects that `up` applies.
const MANAGER: &str = "portico-up";

pub(crate) const BALANCED: &str = "web";
pub(crate) const PUBLIC: &str = "web-public";
pub(crate) const INTERNAL: &str = "web-internal";
pub(crate) const NODE_PORT: u16 = 30080;

/// Makes all objects what they should be. May be repeated.
pub(crate) async fn apply_all(client: &Client) -> anyhow::Result<()> {
    for place in PLACES {
        let node = format!("/api/v1/nodes/{}", place.node);
        apply(client, &node, &self::node(place)).await?;
        apply(client, &format!("{node}/status"), &node_status(place)).await?;
        let pod = format!("/api/v1/namespaces/default/pods/{}", place.pod);
        apply(client, &pod, &self::pod(place)).await?;
        apply(client, &format!("{pod}/status"), &pod_status(place)).await?;
    }
    apply(client, "/apis/portico.dev/v1/addresspools/demo", &pool()).await?;
    for (name, more) in [
        (BALANCED, json!({"type": "LoadBalancer"})),
        (
            PUBLIC,
            json!({"type": "NodePort", "ports": [{"port": 80, "targetPort": POD_PORT, "nodePort": NODE_PORT}]}),
        ),
        (INTERNAL, json!({"type": "ClusterIP"})),
    ] {
        apply(client, &service_path(name), &service(name, &more)).await?;
    }
    Ok(())
}

pub(crate) fn service_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/services/{name}")
}

pub(crate) async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    client.request(request("GET", path, Vec::new())?).await
}

/// Makes an object what it should be, by server-side apply.
pub(crate) async fn apply(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    let target = format!("{path}?fieldManager={MANAGER}&force=true");
    let request = request("PATCH", &target, serde_json::to_vec(object)?)?;
    client
        .request::<Value>(request)
        .await
        .map(drop)
        .with_context(|| format!("cannot apply {path}"))
}

fn request(method: &str, path: &str, body: Vec<u8>) -> kube::Result<http::Request<Vec<u8>>> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/apply-patch+yaml");
    request.body(body).map_err(kube::Error::HttpError)
}

fn node(place: Place) -> Value {
    let labels = json!({"kubernetes.io/hostname": place.node});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": place.node, "labels": labels}})
}

fn node_status(place: Place) -> Value {
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": place.address}, {"type": "Hostname", "address": place.node}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "Lab", "message": "a network namespace"}],
    });
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": place.node}, "status": status})
}

fn pod(place: Place) -> Value {
    let container =
        json!({"name": "echo", "image": "echo", "ports": [{"containerPort": POD_PORT}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": place.pod, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": place.node, "containers": [container]}})
}

fn pod_status(place: Place) -> Value {
    let status = json!({"phase": "Running", "podIP": place.pod_address, "podIPs": [{"ip": place.pod_address}],
        "conditions": [{"type": "Ready", "status": "True"}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": place.pod, "namespace": "default"}, "status": status})
}

fn pool() -> Value {
    json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": "demo"},
        "spec": {"addresses": [POOL], "announce": ["Layer2"]}})
}

fn service(name: &str, more: &Value) -> Value {
    let mut spec =
        json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": POD_PORT}]});
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}
