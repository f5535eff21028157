use super::*;
use std::os::unix::fs::PermissionsExt;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn record<'a>(id: &'a str, user: &'a User) -> Record<'a> {
    Record {
        audit_id: id,
        uri: "/api/v1/namespaces/shop/services/web?token=s3cret&limit=1",
        action: Action::Resource(Request {
            verb: "get",
            resource: "services",
            name: "web",
            namespace: "shop",
            ..Request::default()
        }),
        version: "v1",
        user,
        impersonated: None,
        source: &[IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)],
        user_agent: "kubectl",
        code: 200,
        error: None,
        received: at(1_000_000),
        finished: at(1_000_001),
        reason: "",
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn records_are_events_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let log = AuditLog::open(&path).unwrap();
    let (ann, bob) = (User::new("ann", &["dev"]), User::new("bob", &[]));
    log.record(&Record {
        impersonated: Some(&bob),
        ..record("id-1", &ann)
    })
    .await;
    let refused = ApiError::unauthorized();
    log.record(&Record {
        code: 401,
        error: Some(&refused),
        ..record("id-2", &ann)
    })
    .await;
    log.flush().await;
    let events = lines(&path);
    let first = &events[0];
    assert_eq!(
        first["objectRef"],
        json!({"resource": "services", "namespace": "shop", "name": "web", "apiVersion": "v1"})
    );
    assert_eq!(first["user"], json!({"username": "ann", "groups": ["dev"]}));
    assert_eq!(first["impersonatedUser"], json!({"username": "bob"}));
    assert_eq!(
        first["requestURI"],
        "/api/v1/namespaces/shop/services/web?token=...&limit=1"
    );
    assert_eq!(
        first["requestReceivedTimestamp"],
        "1970-01-12T13:46:40.000000Z"
    );
    assert_eq!(first["responseStatus"]["code"], 200);
    assert_eq!(events[1]["responseStatus"]["reason"], "Unauthorized");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(log.lost(), 0);
}

#[test]
fn a_query_loses_its_secrets_however_they_are_spelt() {
    for (query, kept) in [
        ("limit=1&continue=abc", "limit=1&continue=abc"),
        ("%74oken=a", "%74oken=..."),
        ("access%5Ftoken=a%26b&x", "access%5Ftoken=...&x"),
        ("TOKEN=a=b", "TOKEN=..."),
        ("token", "token=..."),
        (
            "client_secret=a&password=b&x=1",
            "client_secret=...&password=...&x=1",
        ),
        ("", ""),
    ] {
        assert_eq!(
            without_secrets(&format!("/p?{query}")),
            format!("/p?{kept}")
        );
    }
}

#[tokio::test]
async fn nothing_is_lost_when_the_queue_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let log = AuditLog::open(&path).unwrap();
    let user = User::new("ann", &[]);
    for number in 0..QUEUE + 1000 {
        log.record(&record(&number.to_string(), &user)).await;
    }
    log.flush().await;
    let events = lines(&path);
    assert_eq!(events.len(), QUEUE + 1000);
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(number, event)| event["auditID"].as_str() == Some(&number.to_string()))
    );
}

#[test]
fn a_path_that_cannot_be_opened_is_named() {
    let error = AuditLog::open(Path::new("/nowhere/audit.log")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/audit.log"));
}

#[tokio::test]
async fn a_full_disk_is_counted() {
    let log = AuditLog::open(Path::new("/dev/full")).unwrap();
    let user = User::new("ann", &[]);
    log.record(&record("id", &user)).await;
    log.flush().await;
    assert_eq!(log.lost(), 1);
}
