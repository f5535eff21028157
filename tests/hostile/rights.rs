//! Who may do what: nodes write what is theirs and no more, controllers make no tokens, rules that
//! name objects name them in lists too; and the whole matrix of identities, verbs and resources.

use crate::SERVICES;
use crate::common::client::{APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC};
use crate::common::{Client, Server, Store, at, eventually, text};
use bytes::Bytes;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const NODE: &str = "/api/v1/nodes/node-a";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// Make a ClusterRole and bind it to this user.
pub(crate) async fn grant(admin: &Client, role: &Value, user: &str) {
    let name = text(role, "metadata.name");
    admin
        .post(&format!("{RBAC}/clusterroles"), role)
        .await
        .expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]});
    admin
        .post(&format!("{RBAC}/clusterrolebindings"), &binding)
        .await
        .expect(201);
}

pub(crate) async fn until_allowed(client: &Client, path: &str) {
    eventually("the role counts", || async {
        (client.get(path).await.status != 403).then_some(())
    })
    .await;
}

fn role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules})
}

#[tokio::test]
async fn lists_of_one_name_need_the_right_to_that_name() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, nobody) = (server.admin(), server.with_token("nobody-token"));
    for name in ["mine", "other"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        admin.post(SECRETS, &secret).await.expect(201);
    }
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"],
        "verbs": ["get", "list", "watch", "deletecollection"]}]);
    grant(&admin, &role("one-secret", rules), "nobody").await;
    until_allowed(&nobody, &format!("{SECRETS}/mine")).await;
    let list = |selector: &str| format!("{SECRETS}?fieldSelector={selector}");
    let found = nobody.get(&list("metadata.name%3Dmine")).await.expect(200);
    let items = found["items"].as_array().unwrap();
    assert!(items.len() == 1 && text(&items[0], "metadata.name") == "mine");
    let watched = nobody
        .watch(&format!("{}&watch=1", list("metadata.name=mine")))
        .await
        .next()
        .await;
    assert_eq!(at(&watched, "object.metadata.name"), "mine");
    // Two names leave none.
    let both = nobody
        .get(&list("metadata.name=mine,metadata.name=other"))
        .await;
    assert_eq!(both.expect(200)["items"], json!([]));
    for selector in [
        "metadata.name=other",
        "metadata.name!=other",
        "metadata.name!=mine",
        "metadata.namespace=kube-system",
        "type=Opaque",
        "",
    ] {
        nobody.get(&list(selector)).await.expect(403);
        nobody
            .get(&format!("{}&watch=1", list(selector)))
            .await
            .expect(403);
    }
    nobody.get(SECRETS).await.expect(403);
    // What deletes has no such right, as in Kubernetes.
    nobody.delete(&list("metadata.name=mine")).await.expect(403);
}

/// Pools and BGP peers choose nodes by their labels, which are for administrators.
#[tokio::test]
async fn a_node_changes_its_status_and_nothing_else_by_it() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, node) = (server.admin(), server.with_token("node-token"));
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": {"rack": "1"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    admin.post("/api/v1/nodes", &object).await.expect(201);
    let status = format!("{NODE}/status");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    node.patch(&status, MERGE, &ready).await.expect(200);
    let live = || async { admin.get(NODE).await.expect(200) };
    let before = live().await;
    let mut put = before.clone();
    put["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into();
    node.put(&status, &put).await.expect(403);
    let mut tried = 1;
    for metadata in [
        json!({"labels": {"rack": "2"}}),
        json!({"labels": {"rack": null}}),
        json!({"labels": {"node-restriction.kubernetes.io/rack": "2"}}),
        json!({"labels": {"node-role.kubernetes.io/control-plane": ""}}),
        json!({"labels": {"topology.kubernetes.io/zone": "b"}}),
        json!({"annotations": {"a": "b"}}),
        json!({"finalizers": ["a.example/b"]}),
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}),
    ] {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
        for (kind, query) in [
            (MERGE, ""),
            (STRATEGIC, ""),
            (MERGE, "?dryRun=All"),
            (APPLY, "?fieldManager=m&force=true"),
        ] {
            let mut body = body.clone();
            if kind == APPLY {
                if metadata.pointer("/labels/rack").is_some_and(Value::is_null) {
                    continue;
                }
                body["metadata"]["name"] = "node-a".into();
            }
            let answer = node.patch(&format!("{status}{query}"), kind, &body).await;
            assert_eq!(answer.status, 403, "{kind} {body}: {}", answer.text());
            tried += 1;
        }
    }
    let operation = json!([{"op": "add", "path": "/metadata/labels/rack", "value": "2"}]);
    node.patch(&status, JSON_PATCH, &operation)
        .await
        .expect(403);
    let after = live().await;
    for part in ["labels", "annotations", "finalizers", "ownerReferences"] {
        assert_eq!(before["metadata"][part], after["metadata"][part], "{part}");
    }
    println!(
        "{} ways to write metadata through nodes/status: none worked",
        tried + 1
    );

    // With the right to update its Node it has the labels that a kubelet has, and no others.
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "update", "patch", "create", "delete"]}]);
    grant(&admin, &role("kubelet", rules), "system:node:node-a").await;
    let rack = json!({"metadata": {"labels": {"rack": "2"}}});
    eventually("the role counts", || async {
        (node.patch(NODE, MERGE, &rack).await.status == 200).then_some(())
    })
    .await;
    let zone = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}});
    node.patch(&status, MERGE, &zone).await.expect(200);
    for bad in [
        json!({"metadata": {"labels": {"node-restriction.kubernetes.io/rack": "2"}}}),
        json!({"metadata": {"labels": {"x.k8s.io/y": "2"}}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}),
        json!({"spec": {"taints": null}}),
    ] {
        let answer = node.patch(NODE, MERGE, &bad).await;
        assert_eq!(answer.status, 403, "{bad}: {}", answer.text());
    }
    node.delete("/api/v1/nodes/other").await.expect(403);
}

#[tokio::test]
async fn a_node_writes_its_own_pods_leases_and_tokens() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, node) = (server.admin(), server.with_token("node-token"));
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}});
    let made = admin.post("/api/v1/nodes", &object).await.expect(201);
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods", "pods/status", "serviceaccounts/token"], "verbs": ["*"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
    ]);
    grant(&admin, &role("kubelet", rules), "system:node:node-a").await;
    let pods = "/api/v1/namespaces/default/pods";
    until_allowed(&node, &format!("{pods}/x")).await;

    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.post(accounts, &account).await.expect(201);
    let mut uids = Vec::new();
    for (name, on) in [("own", "node-a"), ("other", "node-b")] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": "b"}},
            "spec": {"nodeName": on, "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}]}});
        let made = admin.post(pods, &pod).await.expect(201);
        uids.push(text(&made, "metadata.uid").to_owned());
    }
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": text(&made, "metadata.uid"), "controller": true});
    let mirror = |on: &str, more: Value| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "mirror", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]},
            "spec": {"nodeName": on, "containers": [{"name": "c", "image": "i"}]}});
        let spec = pod["spec"].as_object_mut().unwrap();
        spec.extend(more.as_object().unwrap().clone());
        pod
    };
    let secret = json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    let mut plain = mirror("node-a", json!({}));
    plain["metadata"]["annotations"] = json!({});
    for bad in [
        plain,
        mirror("node-b", json!({})),
        mirror("node-a", secret),
        mirror("node-a", json!({"serviceAccountName": "robot"})),
    ] {
        node.post(pods, &bad).await.expect(403);
    }
    node.post(pods, &mirror("node-a", json!({})))
        .await
        .expect(201);

    let running = json!({"status": {"phase": "Running"}});
    node.patch(&format!("{pods}/own/status"), MERGE, &running)
        .await
        .expect(200);
    node.patch(&format!("{pods}/other/status"), MERGE, &running)
        .await
        .expect(403);
    let label = json!({"metadata": {"labels": {"a": "c"}}});
    node.patch(&format!("{pods}/own/status"), MERGE, &label)
        .await
        .expect(403);
    node.patch(&format!("{pods}/own"), MERGE, &label)
        .await
        .expect(403);
    node.delete(&format!("{pods}/other")).await.expect(403);
    node.delete(pods).await.expect(403);

    let token = |kind: &str, name: &str, uid: &str, audiences: Value| json!({"spec": {"audiences": audiences, "boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}});
    let path = format!("{accounts}/robot/token");
    let vault = || json!(["vault"]);
    let uid = text(&made, "metadata.uid");
    for bad in [
        json!({"spec": {"audiences": ["vault"]}}),
        token("Pod", "own", "", vault()),
        token("Pod", "own", &uids[1], vault()),
        token("Pod", "other", &uids[1], vault()),
        token("Node", "node-a", uid, vault()),
        token("Pod", "own", &uids[0], json!([])),
        token("Pod", "own", &uids[0], json!(["bank"])),
        token("Pod", "own", &uids[0], json!(["vault", "bank"])),
    ] {
        let answer = node.post(&path, &bad).await;
        assert_eq!(answer.status, 403, "{bad}: {}", answer.text());
    }
    node.post(&path, &token("Pod", "own", &uids[0], vault()))
        .await
        .expect(201);
    node.delete(&format!("{pods}/own")).await.expect(200);

    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    for (namespace, name, status) in [
        ("kube-node-lease", "node-a", 201),
        ("kube-node-lease", "node-b", 403),
        ("kube-system", "portico-node-node-a", 201),
        ("kube-system", "portico-controller", 403),
        ("portico-system", "announce", 403),
        ("default", "node-a", 403),
    ] {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let posted = node.post(&path, &lease(name)).await.status;
        assert_eq!(posted, status, "{namespace}/{name}");
        let put = node
            .put(
                &format!("{path}/new-{name}"),
                &lease(&format!("new-{name}")),
            )
            .await;
        assert_eq!(put.status, 403, "{namespace}/{name}");
    }
}

/// A machine that joins chooses its name, and neither labels that mean rights nor another's token.
#[tokio::test]
async fn who_joins_makes_a_plain_node() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let node = |name: &str, labels: Value, with: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels,
            "annotations": {"portico.dev/joined-with": with}}})
    };
    let join = |object: Value| {
        let admin = admin.clone();
        async move {
            let headers = [
                ("impersonate-user", "system:bootstrap:abcdef"),
                ("impersonate-group", "system:bootstrappers"),
            ];
            let body = Some((JSON, Bytes::from(object.to_string())));
            admin
                .call("POST", "/api/v1/nodes", &headers, body)
                .await
                .status
        }
    };
    for (labels, with, status) in [
        (
            json!({"node-restriction.kubernetes.io/pool": "a"}),
            "abcdef",
            403,
        ),
        (
            json!({"node-role.kubernetes.io/control-plane": ""}),
            "abcdef",
            403,
        ),
        (json!({}), "fedcba", 403),
        (json!({"kubernetes.io/hostname": "n"}), "abcdef", 201),
    ] {
        assert_eq!(
            join(node("n", labels.clone(), with)).await,
            status,
            "{labels}"
        );
    }
}

/// Who may create any Secret in kube-system makes itself a join token, and becomes a node.
#[tokio::test]
async fn a_controller_makes_no_join_token() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let secret = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name}, "data": {"key": "a2V5"}});
    let call = |method: &'static str, path: String, kind: &'static str, body: Value| {
        let admin = admin.clone();
        async move {
            let headers = [
                ("impersonate-user", "lb"),
                ("impersonate-group", "portico:controllers"),
            ];
            let body = Some((kind, Bytes::from(body.to_string())));
            admin.call(method, &path, &headers, body).await.status
        }
    };
    let token = secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token");
    let apply = |name: &str| format!("{SECRETS}/{name}?fieldManager=m");
    assert_eq!(call("POST", SECRETS.into(), JSON, token.clone()).await, 403);
    assert_eq!(
        call(
            "PATCH",
            apply("bootstrap-token-abcdef"),
            APPLY,
            token.clone()
        )
        .await,
        403
    );
    let put = format!("{SECRETS}/bootstrap-token-abcdef");
    assert_eq!(call("PUT", put, JSON, token).await, 403);
    let key = secret("portico-announce", "Opaque");
    assert_eq!(call("POST", SECRETS.into(), JSON, key.clone()).await, 403);
    assert_eq!(
        call("PATCH", apply("portico-announce"), APPLY, key.clone()).await,
        201
    );
    let get = call(
        "GET",
        format!("{SECRETS}/portico-announce"),
        JSON,
        json!(null),
    )
    .await;
    assert_eq!(get, 403);
    let service = format!("{SERVICES}/kubernetes");
    let selector = json!({"spec": {"selector": {"app": "mine"}}});
    assert_eq!(call("PATCH", service, MERGE, selector).await, 403);
}

/// Written down by a test of portico-apiserver from the roles.
const MATRIX: &str = include_str!("../../crates/portico-apiserver/src/auth/bootstrap/matrix.txt");

/// The requests that ask for each verb and change nothing: what is allowed fails for another
/// reason.
fn request(verb: char, collection: &str, name: &str, sub: &str) -> (&'static str, String) {
    let object = format!("{collection}/{name}{sub}");
    match verb {
        'g' => ("GET", object),
        'l' => ("GET", format!("{collection}?limit=1")),
        'w' => (
            "GET",
            format!("{collection}?watch=1&sendInitialEvents=true"),
        ),
        'c' if sub.is_empty() => ("POST", collection.to_owned()),
        'c' => ("POST", object),
        'u' => ("PUT", object),
        'p' => ("PATCH", object),
        'd' => ("DELETE", format!("{object}?dryRun=All")),
        _ => ("DELETE", format!("{collection}?dryRun=All")),
    }
}

#[tokio::test]
async fn the_matrix_is_what_the_server_answers() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let mut asked = 0;
    let mut wrong = Vec::new();
    let mut lines = MATRIX.lines().filter(|line| !line.starts_with('#'));
    let identities: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    for line in lines {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (path, verbs, cells) = (cells[0], cells[1], &cells[2..]);
        assert_eq!(cells.len(), identities.len(), "{line}");
        let (path, sub) = path
            .split_once('+')
            .map_or((path, String::new()), |(path, sub)| {
                (path, format!("/{sub}"))
            });
        let (collection, name) = path.rsplit_once('/').unwrap();
        for (identity, allowed) in identities.iter().zip(cells) {
            for verb in verbs.chars() {
                let (method, path) = match verb {
                    'r' => ("GET", path.to_owned()),
                    verb => request(verb, collection, name, &sub),
                };
                let body = (method != "GET").then(|| {
                    let kind = if method == "PATCH" { MERGE } else { JSON };
                    (
                        kind,
                        Bytes::from_static(if method == "DELETE" { b"" } else { b"[]" }),
                    )
                });
                let answer = as_identity(&admin, identity, method, &path, body).await;
                asked += 1;
                if (answer == 403) == allowed.contains(verb) {
                    wrong.push(format!("{identity}: {method} {path}: {answer}"));
                }
            }
        }
    }
    println!("{asked} requests of {} identities", identities.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn as_identity(
    admin: &Client,
    identity: &str,
    method: &str,
    path: &str,
    body: Option<(&str, Bytes)>,
) -> u16 {
    let (user, groups) = identity.split_once('@').unwrap_or((identity, ""));
    let mut headers = vec![("impersonate-user", user)];
    if !groups.is_empty() {
        headers.push(("impersonate-group", groups));
    }
    admin.call(method, path, &headers, body).await.status
}
