//! The ServiceCIDR that the server keeps, and those that clients add.

use serde_json::json;

use crate::common::client::MERGE;
use crate::common::{Server, Store, at, causes, eventually};

const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const DEFAULT: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";

#[tokio::test]
async fn the_default_is_there_and_comes_back() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let found = client.get(DEFAULT).await.expect(200);
    assert_eq!(
        at(&found, "spec.cidrs").as_array().map(Vec::len),
        Some(2),
        "{found}"
    );
    assert_eq!(at(&found, "status.conditions.0.type"), "Ready");
    assert_eq!(at(&found, "status.conditions.0.status"), "True");

    client.delete(DEFAULT).await.expect(200);
    let again = eventually("the default comes back", || async {
        let answer = client.get(DEFAULT).await;
        (answer.status == 200 && at(&answer.json(), "status.conditions.0.status") == "True")
            .then(|| answer.json())
    })
    .await;
    assert_eq!(at(&again, "spec"), at(&found, "spec"));
    assert_ne!(at(&again, "metadata.uid"), at(&found, "metadata.uid"));
}

#[tokio::test]
async fn a_second_family_is_added_by_the_server_and_others_are_left_alone() {
    let mut server = Server::start(
        Store::Embedded,
        &["--service-cluster-ip-range=10.96.0.0/16"],
    )
    .await;
    let cidrs = |found: &serde_json::Value| at(found, "spec.cidrs").clone();
    assert_eq!(
        cidrs(&server.admin().get(DEFAULT).await.expect(200)),
        json!(["10.96.0.0/16"])
    );
    server
        .restart(Some(&[
            "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
        ]))
        .await;
    let dual = json!(["10.96.0.0/16", "fd00:10:96::/112"]);
    assert_eq!(cidrs(&server.admin().get(DEFAULT).await.expect(200)), dual);
    server
        .restart(Some(&["--service-cluster-ip-range=10.97.0.0/16"]))
        .await;
    assert_eq!(cidrs(&server.admin().get(DEFAULT).await.expect(200)), dual);
}

#[tokio::test]
async fn ranges_are_stored_and_do_not_change() {
    let server = Server::start(Store::Embedded, &[]).await;
    let client = server.admin();
    let more = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"},
        "spec": {"cidrs": ["10.200.0.0/24"]},
    });
    client.post(CIDRS, &more).await.expect(201);
    let path = format!("{CIDRS}/more");
    let refused = client
        .patch(&path, MERGE, &json!({"spec": {"cidrs": ["10.201.0.0/24"]}}))
        .await
        .expect(422);
    assert_eq!(
        causes(&refused),
        [("spec.cidrs[0]".to_owned(), "FieldValueInvalid".to_owned())]
    );
    client
        .patch(
            &path,
            MERGE,
            &json!({"spec": {"cidrs": ["10.200.0.0/24", "fd02::/112"]}}),
        )
        .await
        .expect(200);
    client.delete(&path).await.expect(200);
    client.get(&path).await.expect(404);
}
