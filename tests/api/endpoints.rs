//! EndpointSlices for Services with a selector.

use serde_json::{Value, json};

use crate::common::client::{MERGE, STRATEGIC};
use crate::common::{Client, Server, Store, at, eventually, items};
use crate::{SERVICES, SLICES};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Endpoints on a node that does not exist are left out.
async fn create_node(client: &Client) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}});
    client.post("/api/v1/nodes", &node).await.expect(201);
}

async fn run(client: &Client, name: &str, address: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "web", "ports": [{"name": "http", "containerPort": 8080}]}]},
    });
    client.post(PODS, &pod).await.expect(201);
    let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    client
        .patch(&format!("{PODS}/{name}/status"), MERGE, &status)
        .await
        .expect(200);
}

/// The endpoints of a Service as (address, ready), sorted.
async fn endpoints(client: &Client, service: &str) -> Vec<(String, bool)> {
    let list = client
        .get(&format!(
            "{SLICES}?labelSelector=kubernetes.io/service-name%3D{service}"
        ))
        .await
        .expect(200);
    let mut found: Vec<_> = items(&list)
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default())
        .map(|endpoint| {
            (
                crate::common::text(&endpoint, "addresses.0").to_owned(),
                at(&endpoint, "conditions.ready") == true,
            )
        })
        .collect();
    found.sort();
    found
}

async fn become_(client: &Client, service: &str, expected: &[(&str, bool)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(address, ready)| ((*address).to_owned(), *ready))
        .collect();
    eventually(&format!("{service} has {expected:?}"), || async {
        (endpoints(client, service).await == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn slices_follow_the_pods() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    create_node(&client).await;
    run(&client, "one", "10.1.0.1").await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]});
    client.create_service("web", spec).await.expect(201);
    become_(&client, "web", &[("10.1.0.1", true)]).await;
    let list = client
        .get(&format!(
            "{SLICES}?labelSelector=kubernetes.io/service-name%3Dweb"
        ))
        .await
        .expect(200);
    let slice = &items(&list)[0];
    assert_eq!(
        at(slice, "ports.0.port"),
        8080,
        "the named port of the pod: {slice}"
    );
    assert_eq!(at(slice, "addressType"), "IPv4");
    assert_eq!(at(slice, "endpoints.0.nodeName"), "node-a");
    assert_eq!(at(slice, "endpoints.0.targetRef.name"), "one");
    assert_eq!(at(slice, "metadata.ownerReferences.0.kind"), "Service");

    run(&client, "two", "10.1.0.2").await;
    become_(&client, "web", &[("10.1.0.1", true), ("10.1.0.2", true)]).await;
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    client
        .patch(&format!("{PODS}/one/status"), STRATEGIC, &not_ready)
        .await
        .expect(200);
    become_(&client, "web", &[("10.1.0.1", false), ("10.1.0.2", true)]).await;
    client
        .patch(
            &format!("{PODS}/two"),
            MERGE,
            &json!({"metadata": {"labels": {"app": "other"}}}),
        )
        .await
        .expect(200);
    become_(&client, "web", &[("10.1.0.1", false)]).await;
    client
        .delete(&format!("{PODS}/one?gracePeriodSeconds=0"))
        .await
        .expect(200);
    become_(&client, "web", &[]).await;

    client
        .patch(
            &format!("{SERVICES}/web"),
            MERGE,
            &json!({"spec": {"selector": {"app": "other"}}}),
        )
        .await
        .expect(200);
    become_(&client, "web", &[("10.1.0.2", true)]).await;
    client.delete(&format!("{SERVICES}/web")).await.expect(200);
    eventually("the slices are gone", || async {
        let list = client
            .get(&format!(
                "{SLICES}?labelSelector=kubernetes.io/service-name%3Dweb"
            ))
            .await
            .expect(200);
        items(&list).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn endpoints_follow_too_and_slices_of_others_stay() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let own = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "own", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["10.9.9.9"]}], "ports": [{"port": 1}],
    });
    client.post(SLICES, &own).await.expect(201);
    create_node(&client).await;
    run(&client, "one", "10.1.0.1").await;
    client
        .create_service(
            "web",
            json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}),
        )
        .await
        .expect(201);
    let found: Value = eventually("Endpoints of the Service", || async {
        let answer = client
            .get("/api/v1/namespaces/default/endpoints/web")
            .await
            .json();
        at(&answer, "subsets.0.addresses.0.ip")
            .is_string()
            .then_some(answer)
    })
    .await;
    assert_eq!(at(&found, "subsets.0.addresses.0.ip"), "10.1.0.1");
    assert_eq!(
        at(
            &client.get(&format!("{SLICES}/own")).await.expect(200),
            "endpoints.0.addresses.0"
        ),
        "10.9.9.9"
    );
}

#[tokio::test]
async fn a_dual_stack_service_has_slices_of_both_families() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    create_node(&client).await;
    run(&client, "one", "10.1.0.1").await;
    let status = json!({"status": {"podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00:1::1"}]}});
    client
        .patch(&format!("{PODS}/one/status"), MERGE, &status)
        .await
        .expect(200);
    let spec = json!({"selector": {"app": "web"}, "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
    client.create_service("web", spec).await.expect(201);
    become_(&client, "web", &[("10.1.0.1", true), ("fd00:1::1", true)]).await;
}
