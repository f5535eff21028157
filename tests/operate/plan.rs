//! `portico plan` at a server: what it tells is what then happens, and to tell it changes nothing.

use crate::common::client::{APPLY, MERGE};
use crate::common::{Client, Server, Store, eventually, text};
use crate::rig::{at, at_with};
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn cluster(admin: &Client) {
    for (node, address, pod) in [
        ("n1", "172.30.0.11", "10.244.1.5"),
        ("n2", "172.30.0.12", "10.244.2.5"),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
        admin.post("/api/v1/nodes", &object).await.expect(201);
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        admin
            .patch(&format!("/api/v1/nodes/{node}/status"), MERGE, &status)
            .await
            .expect(200);
        let pods = "/api/v1/namespaces/default/pods";
        let name = format!("web-{node}");
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web"}]}});
        admin.post(pods, &object).await.expect(201);
        let status = json!({"status": {"phase": "Running", "podIP": pod, "podIPs": [{"ip": pod}],
            "conditions": [{"type": "Ready", "status": "True"}]}});
        admin
            .patch(&format!("{pods}/{name}/status"), MERGE, &status)
            .await
            .expect(200);
    }
}

const CHANGE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30123}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
";

#[tokio::test]
async fn a_plan_tells_what_then_happens() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    cluster(&admin).await;

    let plan = at_with(&server, &["plan", "-f", "-"], CHANGE).await;
    let shown = plan.expect(2);
    for line in [
        "  + Service default/web",
        "  + ConfigMap default/settings",
        "  + default/web: node port 30123/tcp answers: to 2 endpoints (on every node)",
        "  + default/web: endpoint 10.244.1.5:8080 gets connections (on every node)",
        "  + default/web: node port 30123/tcp",
    ] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    admin.get(&format!("{SERVICES}/web")).await.expect(404);

    // Done, and then there is nothing left to do.
    let change: Vec<Value> = serde_saphyr::from_multiple(CHANGE).unwrap();
    let force = "fieldManager=kubectl&force=true";
    admin
        .patch(&format!("{SERVICES}/web?{force}"), APPLY, &change[0])
        .await
        .expect(201);
    admin
        .patch(
            &format!("/api/v1/namespaces/default/configmaps/settings?{force}"),
            APPLY,
            &change[1],
        )
        .await
        .expect(201);
    eventually("the endpoints are there", || async {
        let endpoints = at(&server, &["get", "endpoints", "web", "-o", "json"]).await;
        (endpoints.code == 0 && endpoints.json(0).as_array().unwrap().len() == 2).then_some(())
    })
    .await;
    let plan = at_with(&server, &["plan", "-f", "-"], CHANGE).await;
    assert_eq!(plan.expect(0), "Nothing would change.\n");

    // Another policy is told node by node, and a selector that no Pod has by the connections that
    // it costs.
    let local = CHANGE
        .replace(
            "  type: NodePort",
            "  type: NodePort\n  externalTrafficPolicy: Local",
        )
        .replace("app: web", "app: other");
    let file = server.dir().join("change.yaml");
    std::fs::write(&file, &local).unwrap();
    let plan = at(
        &server,
        &["plan", "--filename", file.to_str().unwrap(), "-o", "json"],
    )
    .await
    .json(2);
    assert_eq!(text(&plan, "objects.0.what"), "changed");
    let fields = plan["objects"][0]["fields"].to_string();
    assert!(
        fields.contains("spec.externalTrafficPolicy: Cluster → Local"),
        "{fields}"
    );
    let flows = plan["flows"].to_string();
    assert!(
        flows.contains("TCP connections to 10.244.1.5:8080 last only while it answers"),
        "{flows}"
    );

    let plan = at(&server, &["plan", "-f", file.to_str().unwrap(), "--delete"]).await;
    let shown = plan.expect(2);
    for line in [
        "  - Service default/web",
        "cluster IP",
        "  - default/web: node port 30123/tcp",
    ] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    admin.get(&format!("{SERVICES}/web")).await.expect(200);
}

#[tokio::test]
async fn what_would_be_refused_is_an_error() {
    let server = Server::start(Store::Embedded, &[]).await;
    for (change, says) in [
        (
            CHANGE.replace("port: 80,", "port: 800000,"),
            "Service default/web would be refused",
        ),
        (
            CHANGE.replace("ConfigMap", "Gadget"),
            "Gadget settings: the API server has no Gadget in v1",
        ),
        (CHANGE.replace("kind: Service", ""), "object 1 has no kind"),
        ("a: [".to_owned(), "-: "),
    ] {
        let plan = at_with(&server, &["plan", "-f", "-"], &change).await;
        assert_eq!(plan.code, 1, "{}", plan.out);
        assert!(plan.err.contains(says), "{says}: {}", plan.err);
    }
    let missing = at(&server, &["plan", "-f", "/nonexistent.yaml"]).await;
    assert!(
        missing.err.contains("cannot read /nonexistent.yaml"),
        "{}",
        missing.err
    );
}

#[tokio::test]
async fn objects_of_a_namespace_that_the_change_makes() {
    let server = Server::start(Store::Embedded, &[]).await;
    let change = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
                  apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n";
    let plan = at_with(&server, &["plan", "-f", "-"], change).await;
    let shown = plan.expect(2);
    assert!(
        shown.contains("+ Service shop/web (not tried, since its namespace is not there yet)"),
        "{shown}"
    );
    assert!(
        shown.contains(
            "! shop/web: a load balancer is made by the provider of Services without a class"
        ),
        "{shown}"
    );
}
