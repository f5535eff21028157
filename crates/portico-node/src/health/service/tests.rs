use super::super::testing::{get, listens, refused};
use super::*;
use crate::testing::own_network;
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Instant;

type Failures = Arc<Mutex<Vec<(String, u16)>>>;

fn checks(limit: Duration) -> (ServiceChecks, Monitor, Failures) {
    let monitor = Monitor::new(limit, &Family::BOTH);
    let failures = Failures::default();
    let seen = Arc::clone(&failures);
    let note = move |failure: &Failure| {
        seen.lock()
            .unwrap()
            .push((failure.service.to_string(), failure.address.port()));
    };
    (
        ServiceChecks::new(monitor.clone(), Arc::new(note)),
        monitor,
        failures,
    )
}

fn name(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn wanted(port: u16, v4: u32, v6: u32) -> Option<HealthCheck> {
    Some(HealthCheck {
        port,
        addresses: None,
        families: PerFamily { v4: true, v6: true },
        ready: PerFamily { v4, v6 },
    })
}

fn everywhere() -> PerFamily<NodePortAddresses> {
    let all = NodePortAddresses::AllLocal { loopback: true };
    PerFamily {
        v4: all.clone(),
        v6: all,
    }
}

fn listed(addresses: &[&str]) -> PerFamily<NodePortAddresses> {
    let of = |v4: bool| {
        let parsed = addresses.iter().map(|text| text.parse::<IpAddr>().unwrap());
        NodePortAddresses::Listed(parsed.filter(|address| address.is_ipv4() == v4).collect())
    };
    PerFamily {
        v4: of(true),
        v6: of(false),
    }
}

fn v4(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn v6(port: u16) -> SocketAddr {
    (Ipv6Addr::LOCALHOST, port).into()
}

#[tokio::test]
async fn answers_with_the_count_of_its_family_on_any_path() {
    own_network();
    let port = 32_110;
    let (mut checks, _, _) = checks(Duration::from_secs(60));
    checks.set_addresses(&everywhere()).await;
    checks.sync(&[(name("hc"), wanted(port, 2, 0))]).await;

    for path in ["/", "/healthz", "/any/path?x=y"] {
        let answer = get(v4(port), path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("x-load-balancing-endpoint-weight"), "2");
        assert_eq!(answer.header("content-type"), "application/json");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let body = json!({
            "service": { "namespace": "default", "name": "hc" }, "localEndpoints": 2, "serviceProxyHealthy": true,
        });
        assert_eq!(answer.json(), body);
    }
    let answer = get(v6(port), "/").await;
    assert_eq!(
        (
            answer.status,
            answer.header("x-load-balancing-endpoint-weight")
        ),
        (503, "0")
    );

    checks.sync(&[(name("hc"), wanted(port, 0, 7))]).await;
    assert_eq!(get(v4(port), "/").await.status, 503);
    assert_eq!(get(v6(port), "/").await.json()["localEndpoints"], 7);
}

#[tokio::test]
async fn a_node_that_does_not_keep_up_is_not_fit_but_one_on_its_way_out_is() {
    own_network();
    let port = 32_110;
    let (mut checks, monitor, _) = checks(Duration::ZERO);
    checks.set_addresses(&everywhere()).await;
    checks.sync(&[(name("hc"), wanted(port, 1, 1))]).await;
    monitor.set_eligible(false);
    assert_eq!(get(v4(port), "/").await.status, 200);
    monitor.queued(Family::V6, Instant::now());
    let answer = get(v4(port), "/").await;
    assert_eq!(
        (
            answer.status,
            answer.header("x-load-balancing-endpoint-weight")
        ),
        (503, "1")
    );
    assert_eq!(answer.json()["serviceProxyHealthy"], false);
}

#[tokio::test]
async fn ports_move_between_services_and_close() {
    own_network();
    let (one, two) = (32_110, 32_111);
    let (mut checks, _, failures) = checks(Duration::from_secs(60));
    checks.set_addresses(&everywhere()).await;
    checks
        .sync(&[
            (name("a"), wanted(one, 1, 0)),
            (name("b"), wanted(two, 2, 0)),
        ])
        .await;
    assert_eq!(get(v4(one), "/").await.json()["service"]["name"], "a");
    assert_eq!(get(v4(two), "/").await.json()["service"]["name"], "b");

    checks
        .sync(&[
            (name("a"), wanted(two, 1, 0)),
            (name("b"), wanted(one, 2, 0)),
        ])
        .await;
    assert_eq!(get(v4(one), "/").await.json()["service"]["name"], "b");
    assert_eq!(get(v4(two), "/").await.json()["service"]["name"], "a");

    checks
        .sync(&[(name("a"), None), (name("unknown"), None)])
        .await;
    assert!(refused(v4(two)).await);
    assert_eq!(get(v4(one), "/").await.status, 200);
    assert_eq!(*failures.lock().unwrap(), []);

    drop(checks);
    assert!(refused(v4(one)).await);
}

#[tokio::test]
async fn a_conflict_is_told_once_hurts_nobody_else_and_heals() {
    own_network();
    let (port, other) = (32_110, 32_111);
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    let (mut checks, _, failures) = checks(Duration::from_secs(60));
    checks.set_addresses(&everywhere()).await;
    checks
        .sync(&[
            (name("conflict"), wanted(port, 1, 5)),
            (name("fine"), wanted(other, 1, 1)),
        ])
        .await;

    assert_eq!(get(v4(other), "/").await.status, 200);
    assert_eq!(
        get(v6(port), "/").await.json()["localEndpoints"],
        5,
        "the other family is free"
    );
    while failures.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    checks.sync(&[(name("conflict"), wanted(port, 1, 6))]).await;
    assert_eq!(get(v6(port), "/").await.json()["localEndpoints"], 6);

    // No requests from here on: their time limits go by the clock of the machine, which this one
    // leaves behind.
    tokio::time::pause();
    tokio::time::sleep(LONGEST_RETRY * 4).await;
    assert_eq!(
        *failures.lock().unwrap(),
        [("default/conflict".to_owned(), port)]
    );
    drop(taken);
    tokio::time::sleep(LONGEST_RETRY * 2).await;
    assert!(listens(v4(port)).await);
}

#[tokio::test]
async fn listens_only_where_node_ports_answer_and_follows_the_addresses() {
    own_network();
    let port = 32_110;
    let (mut checks, _, failures) = checks(Duration::from_secs(60));
    let at = |text: &str| SocketAddr::new(text.parse().unwrap(), port);
    checks.sync(&[(name("hc"), wanted(port, 1, 1))]).await;

    checks
        .set_addresses(&listed(&["127.0.0.2", "127.0.0.3", "fe80::1"]))
        .await;
    assert_eq!(get(at("127.0.0.2"), "/").await.status, 200);
    assert_eq!(get(at("127.0.0.3"), "/").await.status, 200);
    assert!(refused(v4(port)).await);
    assert!(refused(v6(port)).await);

    checks.set_addresses(&listed(&["127.0.0.3", "::1"])).await;
    assert!(refused(at("127.0.0.2")).await);
    assert_eq!(get(at("127.0.0.3"), "/").await.status, 200);
    assert_eq!(get(v6(port), "/").await.status, 200);

    checks.set_addresses(&everywhere()).await;
    assert_eq!(get(v4(port), "/").await.status, 200);
    assert_eq!(get(v6(port), "/").await.status, 200);
    assert_eq!(*failures.lock().unwrap(), []);
}

#[tokio::test]
async fn a_family_that_the_service_does_not_have_is_not_answered_in() {
    own_network();
    let port = 32_110;
    let (mut checks, _, _) = checks(Duration::from_secs(60));
    checks.set_addresses(&everywhere()).await;
    let only = |v4, v6| {
        Some(HealthCheck {
            families: PerFamily { v4, v6 },
            ..wanted(port, 1, 1).unwrap()
        })
    };
    checks.sync(&[(name("hc"), only(true, false))]).await;
    assert_eq!(get(v4(port), "/").await.status, 200);
    assert!(refused(v6(port)).await);
    checks.sync(&[(name("hc"), only(false, true))]).await;
    assert_eq!(get(v6(port), "/").await.status, 200);
    assert!(refused(v4(port)).await);
}

#[tokio::test]
async fn two_services_have_one_port_on_different_addresses() {
    own_network();
    let port = 32_110;
    let (mut checks, _, failures) = checks(Duration::from_secs(60));
    checks.set_addresses(&listed(&["127.0.0.1"])).await;
    let at = |address: [u8; 4], ready| {
        Some(HealthCheck {
            addresses: Some([IpAddr::from(address)].into()),
            ..wanted(port, ready, 0).unwrap()
        })
    };
    checks
        .sync(&[
            (name("shared"), wanted(port, 1, 0)),
            (name("left"), at([127, 0, 0, 2], 0)),
            (name("right"), at([127, 0, 0, 3], 2)),
        ])
        .await;
    for (last, status) in [(1, 200), (2, 503), (3, 200)] {
        let address = SocketAddr::from(([127, 0, 0, last], port));
        assert_eq!(get(address, "/").await.status, status, "{address}");
    }
    // A partition gets another address, and nobody else moves.
    checks.sync(&[(name("left"), at([127, 0, 0, 4], 1))]).await;
    assert_eq!(get(([127, 0, 0, 4], port).into(), "/").await.status, 200);
    assert!(refused(([127, 0, 0, 2], port).into()).await);
    assert_eq!(*failures.lock().unwrap(), []);
}
