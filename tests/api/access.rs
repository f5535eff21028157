//! Who may do what: tokens, roles, nodes, service accounts, and what is written down about it.

use serde_json::{Value, json};

use crate::SERVICES;
use crate::common::client::{MERGE, service};
use crate::common::{Client, Server, Store, at, eventually, text};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn simple(name: &str) -> Value {
    service(name, json!({"ports": [{"port": 80}]}))
}

async fn bind(admin: &Client, name: &str, role: &str, subject: Value) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    });
    admin
        .post(&format!("{RBAC}/clusterrolebindings"), &binding)
        .await
        .expect(201);
}

#[tokio::test]
async fn a_viewer_reads_and_does_not_write() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, viewer) = (server.admin(), server.with_token("viewer-token"));
    viewer.get(SERVICES).await.expect(403);
    bind(
        &admin,
        "viewers",
        "view",
        json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "viewers"}),
    )
    .await;
    eventually("the binding holds", || async {
        (viewer.get(SERVICES).await.status == 200).then_some(())
    })
    .await;
    admin.post(SERVICES, &simple("a")).await.expect(201);
    viewer.get(&format!("{SERVICES}/a")).await.expect(200);
    viewer
        .watch(&format!("{SERVICES}?watch=1&resourceVersion=0"))
        .await
        .next()
        .await;
    let path = format!("{SERVICES}/a");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    for answer in [
        viewer.post(SERVICES, &simple("b")).await,
        viewer.put(&path, &simple("a")).await,
        viewer.patch(&path, MERGE, &patch).await,
        viewer.delete(&path).await,
        viewer.delete(SERVICES).await,
        viewer
            .patch(&format!("{path}/status"), MERGE, &json!({"status": {}}))
            .await,
        viewer
            .post(&format!("{RBAC}/clusterrolebindings"), &json!({}))
            .await,
        viewer
            .call("GET", SERVICES, &[("impersonate-user", "admin")], None)
            .await,
    ] {
        let error = answer.expect(403);
        assert_eq!(error["reason"], "Forbidden");
        assert!(
            text(&error, "message").contains(r#"User "viewer" cannot"#),
            "{error}"
        );
    }
    admin
        .delete(&format!("{RBAC}/clusterrolebindings/viewers"))
        .await
        .expect(200);
    eventually("the binding is gone", || async {
        (viewer.get(SERVICES).await.status == 403).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_node_does_what_nodes_do() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, node) = (server.admin(), server.with_token("node-token"));
    admin.post(SERVICES, &simple("a")).await.expect(201);
    node.get(SERVICES).await.expect(200);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    node.patch(&format!("{SERVICES}/a/status"), MERGE, &status)
        .await
        .expect(403);
    node.delete(&format!("{SERVICES}/a")).await.expect(403);
    node.get("/api/v1/namespaces/default/secrets")
        .await
        .expect(403);
}

#[tokio::test]
async fn anonymous_sees_health_and_version_only() {
    let server = Server::start(Store::Embedded, &[]).await;
    let anonymous = server.with_token("");
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(anonymous.get(path).await.status, 200, "{path}");
    }
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        SERVICES,
        "/openapi/v3",
        "/metrics",
        "/nothing",
    ] {
        let error = anonymous.get(path).await.expect(403);
        assert!(
            text(&error, "message").contains("system:anonymous"),
            "{error}"
        );
    }
    anonymous.post(SERVICES, &simple("a")).await.expect(403);
    for token in ["wrong", "admin-token-and-more", "a.b.c", ""] {
        let header = format!("Bearer {token}");
        let answer = anonymous
            .call("GET", SERVICES, &[("authorization", &header)], None)
            .await;
        assert!(
            matches!(answer.status, 401 | 403),
            "{token}: {}",
            answer.status
        );
        assert!(
            answer.status == 401 || token.is_empty(),
            "{token}: {}",
            answer.text()
        );
    }
    let basic = anonymous
        .call(
            "GET",
            SERVICES,
            &[("authorization", "Basic YWRtaW46YWRtaW4=")],
            None,
        )
        .await;
    assert!(matches!(basic.status, 401 | 403));
}

#[tokio::test]
async fn anonymous_can_be_kept_out() {
    let server = Server::start(Store::Embedded, &["--anonymous-auth=false"]).await;
    let anonymous = server.with_token("");
    for path in [SERVICES, "/version", "/apis"] {
        assert_eq!(anonymous.get(path).await.status, 401, "{path}");
    }
    server.admin().get(SERVICES).await.expect(200);
}

#[tokio::test]
async fn a_service_account_token_works() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    admin.post(accounts, &account).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}});
    let answer = admin
        .post(&format!("{accounts}/robot/token"), &request)
        .await
        .expect(201);
    let robot = server.with_token(text(&answer, "status.token"));
    let error = robot.get(SERVICES).await.expect(403);
    assert!(
        text(&error, "message").contains("system:serviceaccount:default:robot"),
        "{error}"
    );
    bind(
        &admin,
        "robots",
        "view",
        json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"}),
    )
    .await;
    eventually("the binding holds", || async {
        (robot.get(SERVICES).await.status == 200).then_some(())
    })
    .await;

    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": text(&answer, "status.token")}});
    let reviewed = admin
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await
        .expect(201);
    assert_eq!(at(&reviewed, "status.authenticated"), true);
    assert_eq!(
        at(&reviewed, "status.user.username"),
        "system:serviceaccount:default:robot"
    );

    // Any changed byte makes it worthless, and it dies with its account.
    let mut forged = text(&answer, "status.token").to_owned();
    let last = forged.pop().unwrap();
    forged.insert(forged.len() / 2, last);
    assert_eq!(server.with_token(&forged).get(SERVICES).await.status, 401);
    admin.delete(&format!("{accounts}/robot")).await.expect(200);
    eventually("the token is dead", || async {
        (robot.get(SERVICES).await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn tokens_survive_a_restart() {
    let mut server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    admin
        .post("/api/v1/namespaces/default/serviceaccounts", &account)
        .await
        .expect(201);
    let answer = admin
        .post(
            "/api/v1/namespaces/default/serviceaccounts/robot/token",
            &json!({}),
        )
        .await
        .expect(201);
    server.restart(None).await;
    server
        .with_token(text(&answer, "status.token"))
        .get(SERVICES)
        .await
        .expect(403);
}

#[tokio::test]
async fn reviews_say_what_the_authorizer_does() {
    let server = Server::start(Store::Embedded, &[]).await;
    let allowed = |user: &'static str, groups: Value| {
        let admin = server.admin();
        async move {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": user, "groups": groups,
                    "resourceAttributes": {"verb": "create", "resource": "services", "namespace": "default"}},
            });
            let answer = admin
                .post(
                    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                    &review,
                )
                .await
                .expect(201);
            at(&answer, "status.allowed").clone()
        }
    };
    assert_eq!(allowed("x", json!(["system:masters"])).await, true);
    assert_ne!(allowed("x", json!([])).await, true);
}

#[tokio::test]
async fn impersonation_needs_permission_and_changes_the_user() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let as_nobody = admin
        .call("GET", SERVICES, &[("impersonate-user", "nobody")], None)
        .await
        .expect(403);
    assert!(
        text(&as_nobody, "message").contains(r#"User "nobody" cannot list"#),
        "{as_nobody}"
    );
    let masters = [
        ("impersonate-user", "nobody"),
        ("impersonate-group", "system:masters"),
    ];
    admin
        .call("GET", SERVICES, &masters, None)
        .await
        .expect(200);
    let alone = admin
        .call(
            "GET",
            SERVICES,
            &[("impersonate-group", "system:masters")],
            None,
        )
        .await;
    assert!(
        (400..500).contains(&alone.status),
        "{} {}",
        alone.status,
        alone.text()
    );
}

#[tokio::test]
async fn the_audit_log_has_a_line_for_each_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let flag = format!("--audit-log-path={}", path.display());
    let server = Server::start(Store::Embedded, &[&flag]).await;
    let admin = server.admin();
    let answer = admin.post(SERVICES, &simple("audited")).await;
    answer.expect(201);
    server
        .with_token("nobody-token")
        .get(&format!("{SERVICES}/audited"))
        .await
        .expect(403);
    let find = |verb: &'static str, user: &'static str| {
        let path = path.clone();
        eventually("the line in the audit log", move || {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            async move {
                log.lines()
                    .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                    .find(|event| {
                        event["verb"] == verb
                            && at(event, "user.username") == user
                            && at(event, "objectRef.resource") == "services"
                    })
            }
        })
    };
    let created = find("create", "admin").await;
    assert_eq!(at(&created, "responseStatus.code"), 201);
    assert_eq!(at(&created, "objectRef.namespace"), "default");
    assert_eq!(
        created["auditID"].as_str(),
        answer
            .headers
            .get("audit-id")
            .and_then(|id| id.to_str().ok())
    );
    let refused = find("get", "nobody").await;
    assert_eq!(at(&refused, "responseStatus.code"), 403);
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(!log.contains("admin-token"), "no credentials in the log");
}
