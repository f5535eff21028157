//! The words of the design that came before `core/v1`: `visibility`, `hostPort`, `portalIP`.

use serde_json::{Value, json};

use crate::SERVICES;
use crate::common::client::MERGE;
use crate::common::{Server, Store, at, text};

const OWN: &str = "/apis/portico.dev/v1/namespaces/default/services";

fn own(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "portico.dev/v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn either_spelling_makes_the_same_service() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let ports = json!([{"port": 80, "hostPort": 30080}]);
    let through_core = client
        .create_service("core", json!({"visibility": "public", "ports": ports}))
        .await
        .expect(201);
    assert_eq!(at(&through_core, "spec.type"), "NodePort");
    assert_eq!(at(&through_core, "spec.ports.0.nodePort"), 30080);
    assert!(
        at(&through_core, "spec.visibility").is_null(),
        "core answers in its own words: {through_core}"
    );

    let through_own = client
        .post(
            OWN,
            &own(
                "own",
                json!({"visibility": "loadbalancer", "ports": [{"port": 80}]}),
            ),
        )
        .await;
    let through_own = through_own.expect(201);
    assert_eq!(at(&through_own, "apiVersion"), "portico.dev/v1");
    assert_eq!(at(&through_own, "spec.visibility"), "loadbalancer");
    let port = at(&through_own, "spec.ports.0.hostPort").as_u64().unwrap();
    let address = text(&through_own, "spec.portalIP").to_owned();
    let as_core = client.get(&format!("{SERVICES}/own")).await.expect(200);
    assert_eq!(at(&as_core, "spec.type"), "LoadBalancer");
    assert_eq!(at(&as_core, "spec.ports.0.nodePort"), port);
    assert_eq!(at(&as_core, "spec.clusterIP"), address.as_str());
    assert_eq!(
        at(&as_core, "metadata.resourceVersion"),
        at(&through_own, "metadata.resourceVersion")
    );

    let as_own = client.get(&format!("{OWN}/core")).await.expect(200);
    assert_eq!(at(&as_own, "spec.visibility"), "public");
    assert_eq!(at(&as_own, "spec.ports.0.hostPort"), 30080);
    let cluster = client
        .create_service("cluster", json!({"ports": [{"port": 80}]}))
        .await
        .expect(201);
    assert_eq!(at(&cluster, "spec.type"), "ClusterIP");
    assert_eq!(
        at(
            &client.get(&format!("{OWN}/cluster")).await.expect(200),
            "spec.visibility"
        ),
        "cluster"
    );
    let list = client.get(OWN).await.expect(200);
    assert_eq!(crate::common::items(&list).len(), 4, "{list}");
}

#[tokio::test]
async fn a_read_in_one_spelling_can_be_written_back() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    client
        .create_service(
            "a",
            json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
        )
        .await
        .expect(201);
    let before = client.get(&format!("{SERVICES}/a")).await.expect(200);
    let view = client.get(&format!("{OWN}/a")).await.expect(200);
    client.put(&format!("{OWN}/a"), &view).await.expect(200);
    let after = client.get(&format!("{SERVICES}/a")).await.expect(200);
    assert_eq!(before["spec"], after["spec"]);
    assert_eq!(
        at(&before, "metadata.resourceVersion"),
        at(&after, "metadata.resourceVersion"),
        "nothing was written"
    );

    let patch = json!({"spec": {"visibility": "cluster"}});
    let changed = client
        .patch(&format!("{OWN}/a"), MERGE, &patch)
        .await
        .expect(200);
    assert_eq!(at(&changed, "spec.visibility"), "cluster");
    assert_eq!(
        at(
            &client.get(&format!("{SERVICES}/a")).await.expect(200),
            "spec.type"
        ),
        "ClusterIP"
    );
}

#[tokio::test]
async fn what_disagrees_is_refused() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let refused = [
        json!({"type": "NodePort", "visibility": "cluster", "ports": [{"port": 80}]}),
        json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001, "hostPort": 30002}]}),
        json!({"visibility": "cluster", "ports": [{"port": 80, "hostPort": 30080}]}),
        json!({"visibility": "everyone", "ports": [{"port": 80}]}),
        json!({"clusterIP": "10.96.0.20", "portalIP": "10.96.0.21", "ports": [{"port": 80}]}),
        json!({"visibility": "cluster", "createExternalLoadBalancer": true, "ports": [{"port": 80}]}),
    ];
    for spec in refused {
        let answer = client.create_service("a", spec.clone()).await;
        assert!(
            matches!(answer.status, 400 | 422),
            "{spec}: {} {}",
            answer.status,
            answer.text()
        );
    }
    let old = json!({"createExternalLoadBalancer": true, "ports": [{"port": 80}]});
    assert_eq!(
        at(
            &client.create_service("old", old).await.expect(201),
            "spec.type"
        ),
        "LoadBalancer"
    );
}

#[tokio::test]
async fn public_addresses_are_the_status() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    client
        .create_service(
            "a",
            json!({"visibility": "loadbalancer", "ports": [{"port": 80}]}),
        )
        .await
        .expect(201);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    client
        .patch(&format!("{SERVICES}/a/status"), MERGE, &status)
        .await
        .expect(200);
    let view = client.get(&format!("{OWN}/a")).await.expect(200);
    assert_eq!(at(&view, "status.publicIPs"), &json!(["192.0.2.1"]));
    let status = json!({"status": {"publicIPs": ["192.0.2.2"]}});
    client
        .patch(&format!("{OWN}/a/status"), MERGE, &status)
        .await
        .expect(200);
    let core = client.get(&format!("{SERVICES}/a")).await.expect(200);
    assert_eq!(at(&core, "status.loadBalancer.ingress.0.ip"), "192.0.2.2");
}

#[tokio::test]
async fn a_watch_speaks_the_spelling_of_its_path() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let mut watch = client
        .watch(&format!(
            "{OWN}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Da"
        ))
        .await;
    client
        .create_service("a", json!({"type": "NodePort", "ports": [{"port": 80}]}))
        .await
        .expect(201);
    let event = watch.next_change().await;
    assert_eq!(at(&event, "object.apiVersion"), "portico.dev/v1");
    assert_eq!(at(&event, "object.spec.visibility"), "public");
}
