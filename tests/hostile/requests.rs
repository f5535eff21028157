//! Requests that kill or bend: values too deep to be walked, headers that nobody can read, and what
//! the log of requests must not tell.

use crate::SERVICES;
use crate::common::client::{APPLY, JSON, JSON_PATCH, MERGE, PROTOBUF, STRATEGIC, service};
use crate::common::{Answer, Client, Server, Store, at, eventually, text};
use bytes::Bytes;
use portico_api::codec::proto;
use portico_api::schema::schema;
use serde_json::{Value, json};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Deeper than any stack is long.
const DEEP: usize = 100_000;

fn simple(name: &str) -> Value {
    service(name, json!({"ports": [{"port": 80}]}))
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "{\"f:a\":".repeat(depth), "}".repeat(depth))
}

/// Each operation copies a value into its own innermost place, which doubles its depth.
fn doublings(count: u32) -> Value {
    let copy = |n: u32| {
        let path = format!("/a{}", "/b".repeat(2usize.pow(n)));
        json!({"op": "copy", "from": "/a", "path": path})
    };
    let start = json!({"op": "add", "path": "/a", "value": {"b": {}}});
    std::iter::once(start)
        .chain((1..=count).map(copy))
        .collect()
}

/// A Service with owners of fields that are this deep in all.
fn deep_service(depth: usize) -> Value {
    let fields: Value = (0..depth - 5).fold(json!({}), |inner, _| json!({"f:a": inner}));
    json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]},
        "metadata": {"name": "deep", "namespace": "default", "managedFields": [{
            "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}]}})
}

#[tokio::test]
async fn no_value_is_too_deep_to_be_refused() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, pid) = (server.admin(), server.pid());
    admin.post(SERVICES, &simple("a")).await.expect(201);
    let path = format!("{SERVICES}/a");
    let doubling = doublings(13);
    println!(
        "a JSON patch of {} bytes that makes a value 16,384 deep",
        doubling.to_string().len()
    );
    for query in ["?dryRun=All", ""] {
        let answer = admin
            .patch(&format!("{path}{query}"), JSON_PATCH, &doubling)
            .await
            .expect(422);
        assert!(text(&answer, "message").contains("64 deep"), "{answer}");
    }

    let chain: String = (1..5_000)
        .map(|n| format!("a{n}: &a{n} {{x: *a{}}}\n", n - 1))
        .collect();
    let chain = format!("apiVersion: v1\nkind: Service\na0: &a0 {{}}\n{chain}");
    let wrapped = |value: String| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"metadata\":{{\"name\":\"a\"}},\"spec\":{value}}}"
        )
    };
    let operation = format!(
        "[{{\"op\":\"add\",\"path\":\"/x\",\"value\":{}}}]",
        nested(64)
    );
    let apply = format!("{path}?fieldManager=m&force=true");
    let mut tried = 0;
    for (method, path, kind, body) in [
        ("POST", SERVICES, JSON, wrapped(nested(DEEP))),
        ("POST", SERVICES, JSON, wrapped(nested(64))),
        ("POST", SERVICES, "application/yaml", wrapped(nested(64))),
        ("POST", SERVICES, "application/yaml", chain.clone()),
        ("PUT", &path, JSON, wrapped(nested(64))),
        ("PATCH", &path, MERGE, wrapped(nested(DEEP))),
        ("PATCH", &path, MERGE, wrapped(nested(64))),
        ("PATCH", &path, STRATEGIC, wrapped(nested(DEEP))),
        ("PATCH", &path, STRATEGIC, wrapped(nested(64))),
        ("PATCH", &path, JSON_PATCH, operation),
        ("PATCH", &apply, APPLY, wrapped(nested(DEEP))),
        ("PATCH", &apply, APPLY, wrapped(nested(64))),
        ("PATCH", &apply, APPLY, chain),
        ("DELETE", &path, JSON, nested(DEEP)),
        ("DELETE", &path, JSON, nested(65)),
    ] {
        let answer = admin
            .call(method, path, &[], Some((kind, body.into())))
            .await;
        assert!(
            (400..500).contains(&answer.status),
            "{method} {kind}: {} {}",
            answer.status,
            answer.text()
        );
        tried += 1;
    }
    println!("{tried} other bodies that are too deep: all refused");
    admin.get(&path).await.expect(200);
    assert_eq!(server.pid(), pid);
    admin.get("/livez").await;
}

/// What is stored can be read again: protobuf brought in JSON that was as deep as the parser goes,
/// inside of an object.
#[tokio::test]
async fn what_is_stored_can_be_read_again() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let post = |depth: usize| {
        let body = proto::encode(schema(), "Service", &deep_service(depth));
        let admin = admin.clone();
        async move {
            let body = Some((PROTOBUF, Bytes::from(body)));
            admin.call("POST", SERVICES, &[], body).await
        }
    };
    for depth in [65, 100, 128, 131] {
        let status = post(depth).await.status;
        assert_eq!(status, 400, "{depth}");
    }
    let answer = post(64).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let path = format!("{SERVICES}/deep");
    for accept in ["application/json", "application/yaml", PROTOBUF] {
        let answer = admin.call("GET", &path, &[("accept", accept)], None).await;
        assert_eq!(answer.status, 200, "{accept}");
    }
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    admin.patch(&path, MERGE, &label).await.expect(200);
}

#[tokio::test]
async fn a_patch_cannot_keep_a_worker_busy() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    admin.post(SERVICES, &simple("a")).await.expect(201);
    let items = vec![0; 200_000];
    let insert = json!({"op": "add", "path": "/x/0", "value": 0});
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": items})];
    operations.extend(vec![insert; 9_000]);
    let started = Instant::now();
    let answer = admin
        .patch(&format!("{SERVICES}/a"), JSON_PATCH, &operations.into())
        .await
        .expect(422);
    println!(
        "9,000 insertions in front of 200,000 items: refused after {:?}",
        started.elapsed()
    );
    assert!(
        text(&answer, "message").contains("too many values"),
        "{answer}"
    );
}

/// Each of 30,000 controllers of one object got an error with the list of all of them in it, which
/// no memory holds.
#[tokio::test]
async fn a_body_of_owners_is_refused_in_little_memory() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, pid) = (server.admin(), server.pid());
    let owner = |number: usize| json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": number.to_string(), "controller": true});
    let mut body = simple("a");
    body["metadata"]["ownerReferences"] = (0..30_000).map(owner).collect();
    let answer = admin.post(SERVICES, &body).await;
    assert_eq!(answer.status, 422);
    println!(
        "{} bytes of owners: {} bytes of answer",
        body.to_string().len(),
        answer.body.len()
    );
    assert!(answer.body.len() < 16 * 1024 * 1024);
    assert_eq!(server.pid(), pid);
}

/// Each mistake is told with its path, in which a name can be a megabyte: twenty thousand of them
/// filled any memory.
#[tokio::test]
async fn mistakes_are_told_in_little_memory() {
    let server = Server::start(Store::Embedded, &[]).await;
    let (admin, pid) = (server.admin(), server.pid());
    let mut container: serde_json::Map<String, Value> = (0..20_000)
        .map(|number| (format!("u{number}"), json!(1)))
        .collect();
    container.insert("name".to_owned(), "x".repeat(1_000_000).into());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [container]}});
    let pods = "/api/v1/namespaces/default/pods";
    for (method, path, kind) in [
        ("POST", pods.to_owned(), JSON),
        ("PATCH", format!("{pods}/a?fieldManager=m"), APPLY),
    ] {
        for validation in ["Warn", "Strict"] {
            let and = if path.contains('?') { '&' } else { '?' };
            let path = format!("{path}{and}fieldValidation={validation}");
            let body = Some((kind, Bytes::from(pod.to_string())));
            let answer = admin.call(method, &path, &[], body).await;
            assert!((400..500).contains(&answer.status), "{}", answer.status);
            println!(
                "{method} {validation}: {} bytes of answer",
                answer.body.len()
            );
            assert!(answer.body.len() < 8 * 1024 * 1024);
        }
    }
    assert_eq!(server.pid(), pid);
}

/// A request with any bytes in its headers; the status and the body.
async fn raw(client: &Client, path: &str, headers: &[(&str, &[u8])]) -> (u16, String) {
    let mut request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {}\r\n",
        client.token
    )
    .into_bytes();
    for (name, value) in headers {
        request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    let mut stream = client.tls_stream().await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    let _closed_early = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).unwrap_or_default();
    (status.parse().unwrap_or_default(), answer)
}

/// A proxy with all rights says whom it speaks for. What it says must not get lost.
#[tokio::test]
async fn impersonation_that_cannot_be_read_is_refused() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let (user, group): (&str, &str) = ("Impersonate-User", "Impersonate-Group");
    type Headers<'a> = &'a [(&'a str, &'a [u8])];
    let cases: &[(Headers<'_>, u16)] = &[
        (&[(user, b"\xff\xfe")], 400),
        (&[(user, b"j\xf6rg")], 400),
        (&[(user, "jörg".as_bytes())], 403),
        (&[(user, b"ann"), (group, b"\xff")], 400),
        (&[(user, b"ann"), ("Impersonate-Uid", b"\x80")], 400),
        (&[(user, b"ann"), ("Impersonate-Extra-a", b"\x80")], 400),
        (&[(group, b"\xff")], 400),
        (&[(user, b"")], 400),
        (&[(user, b""), (user, b"ann")], 400),
        (&[(user, b"ann"), (user, b"bob")], 400),
        (&[(user, b"ann"), ("Impersonate-Groups", b"dev")], 400),
        (&[("Impersonate-Usr", b"ann")], 400),
        (&[(user, b"ann")], 403),
        (&[], 200),
    ];
    for (headers, wanted) in cases {
        let (status, answer) = raw(&admin, SERVICES, headers).await;
        assert_eq!(status, *wanted, "{headers:?}: {answer}");
    }
    let (_, answer) = raw(&admin, SERVICES, &[(user, "jörg".as_bytes())]).await;
    assert!(answer.contains("jörg"), "{answer}");
    println!(
        "{} requests that say badly for whom: none had all rights",
        cases.len() - 1
    );
}

/// A PUT that creates needs the right to create, and nothing deletes across namespaces.
#[tokio::test]
async fn verbs_do_what_they_say() {
    let server = Server::start(Store::Embedded, &[]).await;
    let admin = server.admin();
    let role = |verbs: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "renewer"},
            "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]})
    };
    crate::rights::grant(&admin, &role(json!(["update", "patch", "get"])), "nobody").await;
    let nobody = server.with_token("nobody-token");
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": "x"}})
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    crate::rights::until_allowed(&nobody, &format!("{leases}/there")).await;
    for query in ["", "?dryRun=All"] {
        let put = nobody
            .put(&format!("{leases}/new{query}"), &lease("new"))
            .await;
        let error = put.expect(403);
        assert!(text(&error, "message").contains("cannot create"), "{error}");
    }
    let path = format!("{leases}/new?fieldManager=m");
    nobody.patch(&path, APPLY, &lease("new")).await.expect(403);
    admin.get(&format!("{leases}/new")).await.expect(404);
    admin
        .put(&format!("{leases}/new"), &lease("new"))
        .await
        .expect(201);

    admin.post(SERVICES, &simple("a")).await.expect(201);
    for path in [
        "/api/v1/services",
        "/api/v1/secrets",
        "/api/v1/pods",
        "/apis/coordination.k8s.io/v1/leases",
        "/apis/portico.dev/v1/services",
    ] {
        admin.delete(path).await.expect(405);
    }
    admin.get(&format!("{SERVICES}/a")).await.expect(200);
    nobody.delete("/api/v1/services").await.expect(403);
    admin
        .delete(&format!("{SERVICES}?labelSelector=none=x"))
        .await
        .expect(200);
}

/// The log of requests has what was asked, without what lets somebody in.
#[tokio::test]
async fn the_audit_log_has_the_query_and_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let flag = format!("--audit-log={}", path.display());
    let server = Server::start(Store::Embedded, &[&flag]).await;
    let query = "limit=7&token=s3cret-1&access%5Ftoken=s3cret-2&%74oken=s3cret-3&a=1&client_secret=s3cret-4&password=s3cret-5";
    let answer: Answer = server.admin().get(&format!("{SERVICES}?{query}")).await;
    answer.expect(200);
    let line = eventually("the line in the audit log", || async {
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        let found = log.lines().find(|line| line.contains("limit=7"));
        found.map(str::to_owned)
    })
    .await;
    let event: Value = serde_json::from_str(&line).unwrap();
    let uri = text(&event, "requestURI");
    assert!(uri.starts_with(&format!("{SERVICES}?limit=7&")), "{uri}");
    assert!(uri.contains("&a=1&") && !line.contains("s3cret"), "{line}");
    assert_eq!(at(&event, "objectRef.resource"), "services");
}
