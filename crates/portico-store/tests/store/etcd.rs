//! What only the etcd engine can do: several servers on one store, outages, other users of the same
//! etcd, TLS.

use portico_store::{
    Check, EtcdOptions, EtcdTls, Op, OpenError, Range, Store, Txn, TxnError, WatchError,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::etcd_server::{Server, free_port, open};
use crate::{delete, events, put, summary, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_shows_what_another_server_wrote() {
    let server = Server::start();
    let (one, other) = (server.open().await, server.open().await);
    for number in 0..50 {
        let revision = put(&one, "services/a", &number.to_string()).await;
        assert!(other.barrier().await.unwrap() >= revision);
        assert_eq!(text(&other, "services/a").unwrap(), number.to_string());
    }
    let conflict = Txn {
        checks: vec![Check::absent("services/b")],
        ops: vec![Op::put("services/b", "other")],
    };
    put(&one, "services/b", "one").await;
    assert!(
        matches!(other.commit(conflict).await, Err(TxnError::Conflict { key }) if key == "services/b")
    );
    assert_eq!(
        text(&other, "services/b").unwrap(),
        "one",
        "the loser sees what it lost to"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_go_on_after_etcd_was_killed() {
    let mut server = Server::start();
    let store = server.open().await;
    let mut watch = store.watch("services/", store.revision()).unwrap();
    let first = put(&store, "services/a", "1").await;
    assert_eq!(
        summary(&events(&mut watch, 1).await),
        [(first, "services/a".into(), true)]
    );
    server.kill();
    let write = || Txn {
        checks: vec![],
        ops: vec![Op::put("services/a", "lost")],
    };
    assert!(matches!(
        store.commit(write()).await,
        Err(TxnError::Unavailable(_))
    ));
    assert_eq!(text(&store, "services/a").unwrap(), "1", "reads go on");
    server.run();
    let other = server.open().await;
    let second = put(&other, "services/b", "2").await;
    assert_eq!(
        summary(&events(&mut watch, 1).await),
        [(second, "services/b".into(), true)]
    );
    let third = put(&store, "services/c", "3").await;
    assert_eq!(
        summary(&events(&mut watch, 1).await),
        [(third, "services/c".into(), true)]
    );
    assert!(store.barrier().await.unwrap() >= third);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_missed_compacted_history_reads_again() {
    let mut server = Server::start();
    let proxy = Proxy::start(&server).await;
    let cut_off = open(EtcdOptions {
        endpoints: vec![proxy.endpoint()],
        ..server.options()
    })
    .await;
    let mut watch = cut_off.watch("services/", cut_off.revision()).unwrap();
    let store = server.open().await;
    put(&store, "services/a", "1").await;
    events(&mut watch, 1).await;

    proxy.cut();
    put(&store, "services/a", "2").await;
    delete(&store, "services/a").await;
    let last = put(&store, "services/b", "3").await;
    store.compact(last).await.unwrap();
    proxy.mend();
    assert!(
        matches!(watch.next().await, Err(WatchError::Compacted { compacted }) if compacted >= last)
    );
    assert!(cut_off.barrier().await.unwrap() >= last);
    assert_eq!(
        (text(&cut_off, "services/a"), text(&cut_off, "services/b")),
        (None, Some("3".into()))
    );
    let mut again = cut_off.watch("services/", cut_off.revision()).unwrap();
    let next = put(&store, "services/c", "4").await;
    assert_eq!(
        summary(&events(&mut again, 1).await),
        [(next, "services/c".into(), true)]
    );
    server.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_history_that_was_compacted_ends_no_watch() {
    let server = Server::start();
    let foreign = open(EtcdOptions {
        prefix: "/foreign/".into(),
        ..server.options()
    })
    .await;
    let proxy = Proxy::start(&server).await;
    let store = open(EtcdOptions {
        endpoints: vec![proxy.endpoint()],
        ..server.options()
    })
    .await;
    let mut watch = store.watch("services/", store.revision()).unwrap();
    proxy.cut();
    put(&foreign, "services/x", "1").await;
    let last = put(&foreign, "services/x", "2").await;
    foreign.compact(last).await.unwrap();
    proxy.mend();
    until(|| store.revision() >= last).await;
    let next = put(&server.open().await, "services/a", "").await;
    assert_eq!(
        summary(&events(&mut watch, 1).await),
        [(next, "services/a".into(), true)]
    );
    assert_eq!(
        text(&store, "services/x"),
        None,
        "another prefix is another store"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_went_back_in_time_is_read_again() {
    let mut server = Server::start();
    let store = server.open().await;
    for number in 0..20 {
        put(&store, "services/a", &number.to_string()).await;
    }
    let before = store.revision();
    let mut watch = store.watch("services/", before).unwrap();
    server.kill();
    std::fs::remove_dir_all(server.dir.path().join("etcd")).unwrap();
    server.run();
    assert!(
        matches!(watch.next().await, Err(WatchError::Compacted { compacted }) if compacted < before)
    );
    assert_eq!(text(&store, "services/a"), None);
    assert!(store.barrier().await.unwrap() < before);
    assert!(put(&store, "services/a", "new").await < before);
    assert_eq!(text(&store, "services/a").unwrap(), "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_ends_watches() {
    let server = Server::start();
    let store = server.open().await;
    let mut watch = store.watch("services/", store.revision()).unwrap();
    drop(store);
    assert_eq!(watch.next().await.unwrap_err(), WatchError::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_endpoint_is_used_when_one_is_down() {
    let server = Server::start();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let endpoints = vec![nobody, server.endpoint()];
    let proxy = Proxy::start(&server).await;
    let store = open(EtcdOptions {
        endpoints,
        ..server.options()
    })
    .await;
    put(&store, "services/a", "1").await;

    let options = EtcdOptions {
        endpoints: vec![proxy.endpoint(), server.endpoint()],
        ..server.options()
    };
    let failing_over = open(options).await;
    let mut watch = failing_over
        .watch("services/", failing_over.revision())
        .unwrap();
    proxy.cut();
    let written = failing_over
        .commit(Txn {
            checks: vec![],
            ops: vec![Op::put("services/b", "2")],
        })
        .await;
    if !matches!(&written, Err(TxnError::Unavailable(outage)) if outage.unknown) {
        written.unwrap();
    }
    put(&failing_over, "services/b", "3").await;
    assert!(!watch.next().await.unwrap().is_empty());
    assert_eq!(text(&failing_over, "services/b").unwrap(), "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_loses_a_member_and_the_store_loses_nothing() {
    let mut servers = Server::start_cluster();
    let endpoints = servers.iter().map(Server::endpoint).collect();
    // A write that was on its way to the dead leader is never answered.
    let request_timeout = std::time::Duration::from_secs(2);
    let store = open(EtcdOptions {
        endpoints,
        request_timeout,
        ..EtcdOptions::default()
    })
    .await;
    let mut watch = store.watch("counters/", store.revision()).unwrap();
    put(&store, "counters/n", "0").await;
    let (mut certain, mut uncertain) = (0, 0);
    for round in 0..300 {
        match round {
            100 => servers[0].kill(),
            200 => {
                servers[0].run();
                servers[1].kill();
            }
            _ => {}
        }
        match increment(&store).await {
            Ok(_) => certain += 1,
            Err(TxnError::Unavailable(outage)) => uncertain += usize::from(outage.unknown),
            // Only after an uncertain write that happened and was not seen yet.
            Err(TxnError::Conflict { .. }) => assert!(uncertain > 0),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(certain > 250, "{certain} writes succeeded");
    store.barrier().await.unwrap();
    let total: usize = text(&store, "counters/n").unwrap().parse().unwrap();
    assert!(
        (certain..=certain + uncertain).contains(&total),
        "{certain} + {uncertain} writes made {total}"
    );
    let seen = events(&mut watch, total + 1).await;
    for (number, event) in seen.iter().enumerate() {
        assert_eq!(
            event.now.as_ref().unwrap().value,
            number.to_string(),
            "every change is seen once, in order"
        );
    }
}

async fn increment(store: &Store) -> Result<u64, TxnError> {
    let entry = store.get("counters/n").unwrap();
    let value: u32 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
    let checks = vec![Check::modified("counters/n", entry.modified)];
    store
        .commit(Txn {
            checks,
            ops: vec![Op::put("counters/n", (value + 1).to_string())],
        })
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_says_what_is_wrong() {
    let nobody = EtcdOptions {
        endpoints: vec![format!("http://127.0.0.1:{}", free_port())],
        ..EtcdOptions::default()
    };
    assert!(matches!(
        Store::etcd(nobody.clone()).await,
        Err(OpenError::Unreachable { .. })
    ));
    let option = |error: Result<Store, OpenError>| match error.err().unwrap() {
        OpenError::Option { option, .. } => option,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        option(
            Store::etcd(EtcdOptions {
                prefix: "x".into(),
                ..nobody.clone()
            })
            .await
        ),
        "prefix"
    );
    assert_eq!(
        option(
            Store::etcd(EtcdOptions {
                endpoints: vec![],
                ..nobody.clone()
            })
            .await
        ),
        "endpoints"
    );
    assert_eq!(
        option(
            Store::etcd(EtcdOptions {
                endpoints: vec!["https://127.0.0.1:1".into()],
                ..nobody.clone()
            })
            .await
        ),
        "endpoints"
    );
    let tls = Some(EtcdTls {
        ca: "/nonexistent/ca.pem".into(),
        ..EtcdTls::default()
    });
    assert_eq!(
        option(Store::etcd(EtcdOptions { tls, ..nobody }).await),
        "tls"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_client_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    write_certificates(dir.path());
    let flag = |name: &str, file: &str| format!("--{name}={}", path(file).display());
    let extra = vec![
        flag("cert-file", "server.pem"),
        flag("key-file", "server.key"),
        flag("trusted-ca-file", "ca.pem"),
        "--client-cert-auth".into(),
    ];
    let identity = Some((path("client.pem"), path("client.key")));
    let tls = EtcdTls {
        ca: path("ca.pem"),
        identity,
        server_name: None,
    };
    let server = Server::start_with(tempfile::tempdir().unwrap(), "https", extra);
    let options = EtcdOptions {
        tls: Some(tls.clone()),
        ..server.options()
    };
    let store = open(options.clone()).await;
    put(&store, "services/a", "1").await;
    assert_eq!(text(&store, "services/a").unwrap(), "1");

    let stranger = EtcdTls {
        identity: None,
        ..tls.clone()
    };
    let refused = Store::etcd(EtcdOptions {
        tls: Some(stranger),
        ..options.clone()
    })
    .await;
    assert!(matches!(refused, Err(OpenError::Unreachable { .. })));
    let misled = EtcdTls {
        server_name: Some("other.example".into()),
        ..tls
    };
    let refused = Store::etcd(EtcdOptions {
        tls: Some(misled),
        ..options
    })
    .await;
    match refused {
        Err(OpenError::Unreachable { source, .. }) => {
            assert!(source.to_string().contains("certificate"), "{source}");
        }
        other => panic!("{:?}", other.err()),
    }
}

fn write_certificates(dir: &std::path::Path) {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cleared_prefix_is_an_empty_store() {
    let server = Server::start();
    let store = server.open().await;
    put(&store, "services/a", "1").await;
    // A store whose prefix is the root sees the other's keys as its own: a stranger with etcdctl.
    let stranger = open(EtcdOptions {
        prefix: "/".into(),
        ..server.options()
    })
    .await;
    let ops = vec![Op::delete("portico/head"), Op::delete("portico/services/a")];
    let cleared = stranger
        .commit(Txn {
            checks: vec![],
            ops,
        })
        .await
        .unwrap();
    assert!(store.barrier().await.unwrap() > cleared);
    assert!(store.range(Range::default()).unwrap().entries.is_empty());
    put(&stranger, "portico/head", "3").await;
    assert!(matches!(
        Store::etcd(server.options()).await,
        Err(OpenError::Newer { found: 3, .. })
    ));
}

/// For what makes no event: looks until it is so.
async fn until(reached: impl Fn() -> bool) {
    while !reached() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// A TCP proxy in front of etcd that can be cut: for the store, the network is gone, while etcd
/// runs on.
struct Proxy {
    port: u16,
    up: tokio::sync::watch::Sender<bool>,
}

impl Proxy {
    async fn start(server: &Server) -> Self {
        let target = server.endpoint().trim_start_matches("http://").to_owned();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let port = listener.local_addr().unwrap().port();
        let up = tokio::sync::watch::Sender::new(true);
        let state = up.subscribe();
        tokio::spawn(async move {
            while let Ok((inbound, _)) = listener.accept().await {
                tokio::spawn(forward(inbound, target.clone(), state.clone()));
            }
        });
        Self { port, up }
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn cut(&self) {
        self.up.send_replace(false);
    }

    fn mend(&self) {
        self.up.send_replace(true);
    }
}

async fn forward(
    mut inbound: tokio::net::TcpStream,
    target: String,
    mut up: tokio::sync::watch::Receiver<bool>,
) {
    if !*up.borrow() {
        return;
    }
    let mut outbound = tokio::net::TcpStream::connect(target).await.unwrap();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut inbound, &mut outbound) => {}
        _ = up.wait_for(|up| !up) => {}
    }
}
