use super::super::testing::{get, listens, refused, request};
use super::*;
use crate::testing::own_network;
use portico_model::table::Family as IpFamily;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

fn monitor(limit: Duration) -> Monitor {
    Monitor::new(limit, &IpFamily::BOTH)
}

fn start(monitor: &Monitor, answers: &Answers) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = listen::bind_everywhere((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (monitor, answers) = (monitor.clone(), answers.clone());
    let serving = tokio::spawn(async move {
        listen::serve(listener, move |request| {
            respond(request, &monitor, &answers)
        })
        .await;
    });
    ((Ipv4Addr::LOCALHOST, port).into(), serving)
}

#[tokio::test]
async fn answers_and_counts_them() {
    own_network();
    let (monitor, answers) = (monitor(Duration::from_secs(60)), Answers::default());
    let (address, _serving) = start(&monitor, &answers);

    let healthz = get(address, "/healthz").await;
    assert_eq!(healthz.status, 200);
    assert_eq!(healthz.header("content-type"), "application/json");
    assert_eq!(healthz.header("x-content-type-options"), "nosniff");
    assert_eq!(healthz.json()["nodeEligible"], true);
    assert_eq!(
        get(address, "/livez?verbose")
            .await
            .json()
            .get("nodeEligible"),
        None
    );
    assert_eq!(get(address, "/").await.status, 404);

    assert_eq!(get(address, "/readyz").await.status, 503, "no rules yet");
    monitor.updated(&IpFamily::BOTH, Instant::now());
    assert_eq!(get(address, "/readyz").await.status, 200);

    monitor.set_eligible(false);
    assert_eq!(
        get(address, "/readyz").await.status,
        200,
        "it still forwards"
    );
    assert_eq!(get(address, "/healthz").await.status, 503);
    assert_eq!(get(address, "/livez").await.status, 200);
    let head = request(
        address,
        "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    )
    .await;
    assert_eq!((head.status, head.body.as_str()), (503, ""));

    let count = |counts: &Counts, code| counts.get_or_create(&[("code", code)]).get();
    assert_eq!(count(&answers.healthz, "200"), 1);
    assert_eq!(count(&answers.healthz, "503"), 2);
    assert_eq!(count(&answers.livez, "200"), 2);
}

#[tokio::test]
async fn changes_that_wait_too_long_are_a_reason_to_restart() {
    own_network();
    let (monitor, answers) = (monitor(Duration::ZERO), Answers::default());
    let (address, _serving) = start(&monitor, &answers);
    monitor.queued(IpFamily::V6, Instant::now());
    for path in ["/healthz", "/livez"] {
        let answer = get(address, path).await;
        assert_eq!(answer.status, 503, "{path}");
        assert_eq!(answer.json()["status"]["IPv4"]["healthy"], true, "{path}");
        assert_eq!(answer.json()["status"]["IPv6"]["healthy"], false, "{path}");
    }
    monitor.updated(&[IpFamily::V6], Instant::now());
    assert_eq!(get(address, "/livez").await.status, 200);
}

#[tokio::test]
async fn every_address_means_both_families() {
    own_network();
    for any in [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        (Ipv6Addr::UNSPECIFIED, 0).into(),
    ] {
        let listener = listen::bind_everywhere(any).unwrap();
        let port = listener.local_addr().unwrap().port();
        let _serving = tokio::spawn(listen::serve(listener, |_| listen::not_found()));
        assert_eq!(
            get((Ipv4Addr::LOCALHOST, port).into(), "/").await.status,
            404
        );
        assert_eq!(
            get((Ipv6Addr::LOCALHOST, port).into(), "/").await.status,
            404
        );
    }
    let listener = listen::bind_everywhere((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(refused((Ipv6Addr::LOCALHOST, port).into()).await);
}

#[tokio::test(start_paused = true)]
async fn a_taken_port_is_fatal_only_when_asked() {
    own_network();
    let port = 10_256;
    let taken = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let monitor = monitor(Duration::from_secs(60));
    let error = serve(address, monitor.clone(), Answers::default(), true)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);

    let serving = tokio::spawn(serve(address, monitor, Answers::default(), false));
    tokio::time::sleep(RETRY * 3).await;
    assert!(!serving.is_finished());
    drop(taken);
    tokio::time::sleep(RETRY * 2).await;
    assert!(listens((Ipv4Addr::LOCALHOST, port).into()).await);
}

#[tokio::test]
async fn one_connection_carries_many_requests_and_ends_with_the_server() {
    own_network();
    let (address, serving) = start(&monitor(Duration::from_secs(60)), &Answers::default());
    let twice = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\nConnection: \
                 close\r\n\r\n";
    let answer = request(address, twice).await;
    assert_eq!(
        answer.body.matches("HTTP/1.1 200 OK").count(),
        1,
        "the second answer follows the first"
    );

    let mut open = TcpStream::connect(address).await.unwrap();
    get(address, "/livez").await;
    serving.abort();
    assert_eq!(
        open.read(&mut [0]).await.unwrap_or(0),
        0,
        "connections end with their server"
    );
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    own_network();
    let (address, _serving) = start(&monitor(Duration::from_secs(60)), &Answers::default());
    let mut idle = TcpStream::connect(address).await.unwrap();
    get(address, "/livez").await;
    tokio::time::pause();
    assert_eq!(idle.read(&mut [0]).await.unwrap_or(0), 0);
}
