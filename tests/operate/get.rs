//! `portico get` and `portico status` at a server with nodes that report.

use crate::common::client::MERGE;
use crate::common::{Client, Server, Store, text};
use crate::rig::{at, portico};
use serde_json::{Value, json};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

async fn node(admin: &Client, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    admin.post("/api/v1/nodes", &node).await.expect(201);
    let status =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "172.30.0.11"}]}});
    admin
        .patch(&format!("/api/v1/nodes/{name}/status"), MERGE, &status)
        .await
        .expect(200);
}

/// The report of a node that has installed everything up to a version.
async fn report(admin: &Client, node: &str, version: &str, behind: Value) {
    let name = format!("portico-node-{node}");
    let report = json!({"services": version, "slices": "1", "mode": "nftables", "behind": behind})
        .to_string();
    let renewed = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "annotations": {"portico.dev/report": report}},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 3600, "renewTime": renewed}});
    let answer = admin
        .patch(&format!("{LEASES}/{name}"), MERGE, &lease)
        .await;
    if answer.status == 404 {
        admin.post(LEASES, &lease).await.expect(201);
    }
}

#[tokio::test]
async fn nodes_that_lag_are_named_and_all_is_well_once_they_do_not() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    at(
        &server,
        &["expose", "web", "--port=80", "--to=192.0.2.5:80"],
    )
    .await
    .expect(0);
    let service = admin
        .get("/api/v1/namespaces/default/services/web")
        .await
        .expect(200);
    let version = text(&service, "metadata.resourceVersion").to_owned();
    for name in ["n1", "n2"] {
        node(&admin, name).await;
        report(&admin, name, &version, json!([])).await;
    }
    let well = at(&server, &["status"]).await;
    assert!(
        well.expect(0).contains("Nodes        2: 2 report\n"),
        "{}",
        well.out
    );
    assert!(well.out.contains("All is well."), "{}", well.out);
    let table = at(&server, &["get", "services", "web"]).await;
    assert!(table.expect(0).contains("2 of 2"), "{}", table.out);

    report(&admin, "n2", "1", json!([])).await;
    let ill = at(&server, &["status"]).await;
    assert!(ill.expect(1).contains("node/n2: lags"), "{}", ill.out);
    assert!(
        ill.out
            .contains("service/default/web: live on 1 of 2 nodes; not on n2: lags"),
        "{}",
        ill.out
    );
    let nodes = at(&server, &["get", "nodes", "--output=yaml"]).await;
    let nodes: Value = serde_saphyr::from_str(nodes.expect(0)).unwrap();
    assert_eq!(text(&nodes, "1.report.mode"), "nftables");
    let table = at(&server, &["get", "nodes"]).await;
    assert!(
        table
            .expect(0)
            .lines()
            .any(|line| line.starts_with("n2") && line.contains("lags")),
        "{}",
        table.out
    );

    let behind = json!([{"service": "default/web", "reason": "its address is taken"}]);
    report(&admin, "n2", &version, behind).await;
    let ill = at(&server, &["status", "-o", "json"]).await.json(1);
    assert_eq!(text(&ill, "trouble.0.of"), "node/n2");
    assert_eq!(
        text(&ill, "trouble.0.what"),
        "does not forward default/web: its address is taken"
    );
}

#[tokio::test]
async fn pools_and_balancers() {
    let server = Server::start(Store::Embedded, &[]).await;
    let none = at(&server, &["get", "pools"]).await;
    assert_eq!(none.expect(0), "there are no pools\n");
    let pool = json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": "public"},
        "spec": {"addresses": ["192.0.2.10-192.0.2.11"]}});
    server
        .admin()
        .post("/apis/portico.dev/v1/addresspools", &pool)
        .await
        .expect(201);
    let pools = at(&server, &["get", "pools", "public", "-o", "json"])
        .await
        .json(0);
    assert_eq!(pools[0]["addresses"], json!(["192.0.2.10-192.0.2.11"]));
    at(
        &server,
        &[
            "expose",
            "web",
            "--port=80",
            "--to=192.0.2.5:80",
            "--load-balancer",
        ],
    )
    .await
    .expect(0);
    let balancers = at(&server, &["get", "balancers", "-A"]).await;
    assert!(
        balancers.expect(0).contains("default/web"),
        "{}",
        balancers.out
    );
    let status = at(&server, &["status"]).await;
    assert!(
        status.expect(1).contains("no controller has taken it up"),
        "{}",
        status.out
    );
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let server = Server::start(Store::Embedded, &[]).await;
    let missing = at(&server, &["get", "services", "web"]).await;
    assert_eq!(missing.code, 1);
    assert_eq!(
        missing.err,
        "portico: there is no Service web in namespace default: name another with --namespace\n"
    );
    let nowhere = portico(&["status", "--kubeconfig=/nonexistent"]).await;
    assert!(
        nowhere.err.contains("the kubeconfig /nonexistent: "),
        "{}",
        nowhere.err
    );
    assert_eq!(nowhere.code, 1);
}
