//! The life of a namespace.

use serde_json::json;

use crate::common::client::{MERGE, service};
use crate::common::{Server, Store, at, eventually};

#[tokio::test]
async fn deletion_takes_the_contents_along() {
    for store in [Store::Embedded, Store::Etcd] {
        let server = Server::start(store, &["--service-node-port-range=30000-30003"]).await;
        let client = server.admin();
        client.create_namespace("team").await;
        let services = "/api/v1/namespaces/team/services";
        for name in ["a", "b"] {
            client
                .post(
                    services,
                    &service(name, json!({"type": "NodePort", "ports": [{"port": 80}]})),
                )
                .await
                .expect(201);
        }
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
        client
            .post(
                "/apis/coordination.k8s.io/v1/namespaces/team/leases",
                &lease,
            )
            .await
            .expect(201);
        let mut watch = client
            .watch(&format!("{services}?watch=1&resourceVersion=0"))
            .await;
        for _ in 0..2 {
            assert_eq!(watch.next_change().await["type"], "ADDED");
        }
        client.delete("/api/v1/namespaces/team").await.expect(200);
        for _ in 0..2 {
            assert_eq!(watch.next_change().await["type"], "DELETED");
        }
        eventually("the namespace is gone", || async {
            (client.get("/api/v1/namespaces/team").await.status == 404).then_some(())
        })
        .await;
        assert!(
            crate::common::items(
                &client
                    .get("/apis/coordination.k8s.io/v1/leases")
                    .await
                    .expect(200)
            )
            .iter()
            .all(|lease| at(lease, "metadata.namespace") != "team")
        );
        crate::common::ports::assert_no_port_leaked(&client, 30000..=30003).await;
        client.create_namespace("team").await;
        assert!(crate::common::items(&client.get(services).await.expect(200)).is_empty());
    }
}

#[tokio::test]
async fn a_finalizer_holds_the_namespace() {
    let mut server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    client.create_namespace("team").await;
    let services = "/api/v1/namespaces/team/services";
    let mut held = service("held", json!({"ports": [{"port": 80}]}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    client.post(services, &held).await.expect(201);
    client
        .post(services, &service("free", json!({"ports": [{"port": 80}]})))
        .await
        .expect(201);
    client.delete("/api/v1/namespaces/team").await.expect(200);
    eventually("the other Service is gone", || async {
        (client.get(&format!("{services}/free")).await.status == 404).then_some(())
    })
    .await;
    let refused = client
        .post(services, &service("late", json!({"ports": [{"port": 80}]})))
        .await
        .expect(403);
    assert_eq!(
        at(&refused, "details.causes.0.reason"),
        "NamespaceTerminating"
    );

    server.restart(None).await; // it goes on where it was
    let namespace = client.get("/api/v1/namespaces/team").await.expect(200);
    assert_eq!(at(&namespace, "status.phase"), "Terminating");
    let release = json!({"metadata": {"finalizers": null}});
    client
        .patch(&format!("{services}/held"), MERGE, &release)
        .await
        .expect(200);
    eventually("the namespace is gone", || async {
        (client.get("/api/v1/namespaces/team").await.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_the_system_needs_stays() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    for name in ["default", "kube-system"] {
        client
            .get(&format!("/api/v1/namespaces/{name}"))
            .await
            .expect(200);
        client
            .delete(&format!("/api/v1/namespaces/{name}"))
            .await
            .expect(403);
    }
    let path = "/api/v1/namespaces/default/services/kubernetes";
    let old = client.get(path).await.expect(200);
    assert_eq!(at(&old, "spec.clusterIP"), "10.96.0.1");
    client.delete(path).await.expect(200);
    let new = eventually("the kubernetes Service is back", || async {
        let answer = client.get(path).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    assert_eq!(at(&new, "spec.clusterIP"), "10.96.0.1");
    assert_ne!(at(&new, "metadata.uid"), at(&old, "metadata.uid"));
}
