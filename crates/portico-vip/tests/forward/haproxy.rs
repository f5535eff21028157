//! Through HAProxy, the real one.

use crate::lab::{
    Daemons, Lab, MASTERS, alone, close_one, go_all_the_way, master, run, vip, wanted,
};
use portico_testbed::Ask as _;
use portico_testbed::{Flow, Host, Protocol};
use portico_vip::forward::{ForwardSettings, HaproxySettings, Mode};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn settings(dir: &Path) -> impl Fn(usize) -> ForwardSettings {
    move |number| ForwardSettings {
        mode: Mode::Haproxy,
        haproxy: HaproxySettings {
            folder: dir.join(format!("master{number}")),
            own_addresses: vec![master(number, false), master(number, true)],
            ..HaproxySettings::default()
        },
        ..alone()
    }
}

/// The workers of the first master, by their process numbers.
fn workers(dir: &Path) -> BTreeSet<String> {
    let config = dir
        .join("master1")
        .join("haproxy.cfg")
        .display()
        .to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_one = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&config))
    };
    processes
        .filter(is_one)
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

fn kill(processes: BTreeSet<String>) {
    let all = processes.into_iter().collect::<Vec<_>>().join(" ");
    std::process::Command::new("sh")
        .args(["-c", &format!("kill -9 {all}")])
        .status()
        .unwrap();
}

async fn soon(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The servers of the lab speak no TLS and fail HAProxy's checks, which is what happens when all of
/// them are unhealthy: everybody gets connections but who is known to be out. Until they have
/// failed, they are taken for good.
fn daemons<'a>(lab: &'a Lab, dir: &'a Path) -> Daemons<'a> {
    let mut daemons = Daemons::new(lab, settings(dir));
    daemons.settle = Box::new(|| {
        let deadline = Instant::now() + Duration::from_secs(20);
        let settled = |dir: &Path| {
            let (config, states) = (
                std::fs::read_to_string(dir.join("haproxy.cfg")).unwrap(),
                states(dir),
            );
            let is_new = states
                .as_ref()
                .is_ok_and(|states| config.matches("    server ").count() == 2 * states.len());
            is_new && states.is_ok_and(|states| states.iter().all(|up| !up))
        };
        while !MASTERS.iter().all(|master| settled(&dir.join(master))) {
            assert!(Instant::now() < deadline, "all servers fail their checks");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    daemons
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_through_haproxy() {
    let (lab, dir) = (Lab::new(), TempDir::new().unwrap());
    let mut daemons = daemons(&lab, dir.path());
    assert_eq!(daemons.apply(&wanted(&[1, 2, 3])).mode, Mode::Haproxy);
    let before = workers(dir.path());
    assert!(!before.is_empty());
    go_all_the_way(&lab, &mut daemons).await;
    assert_eq!(workers(dir.path()), before, "health takes no reload");
    let rules = daemons.rules().join("\n");
    assert!(
        rules.contains("172.16.64.58:6443 to 172.16.64.31:16443")
            && rules.contains("bind 172.16.64.31:16443")
    );

    let mut fewer = wanted(&[1, 2, 3]);
    fewer.servers.retain(|server| {
        server.address.ip() != master(3, false) && server.address.ip() != master(3, true)
    });
    daemons.apply(&fewer);
    lab.check(&[1, 2], "after a reload").await;
    assert_ne!(workers(dir.path()), before, "other servers take one");

    close_one(&lab, &mut daemons).await;
    daemons.remove();
    assert_eq!(run(lab.owner(), "nft list tables"), "");
    assert_eq!(workers(dir.path()), BTreeSet::new());
    assert!(
        std::fs::read_dir(dir.path()).unwrap().next().is_none(),
        "nothing is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_haproxy_that_dies_is_started_again_and_missed_by_nobody() {
    let (lab, dir) = (Lab::new(), TempDir::new().unwrap());
    let mut daemons = daemons(&lab, dir.path());
    daemons.apply(&wanted(&[1, 2, 3]));
    let before = workers(dir.path());
    kill(before.clone());
    soon("it is there again", async || {
        workers(dir.path()).difference(&before).count() >= 2
    })
    .await;
    (daemons.settle)();
    lab.check(&[1, 2, 3], "started again").await;

    // One that cannot start.
    std::fs::write(dir.path().join("master1/haproxy.cfg"), "nonsense").unwrap();
    kill(workers(dir.path()));
    let listens = || {
        lab.owner()
            .enter(|| std::net::TcpStream::connect((master(1, false), 16443)))
            .is_ok()
    };
    soon("it is gone", async || !listens()).await;
    daemons.settle = Box::new(|| ());
    daemons.apply(&wanted(&[2, 3]));
    lab.check(&[2, 3], "past it").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_haproxy_does_not_take_is_not_used() {
    let (lab, dir) = (Lab::new(), TempDir::new().unwrap());
    let bad = |number| {
        let mut settings = settings(dir.path())(number);
        settings.haproxy.ca_file = Some("/nowhere/ca.crt".into());
        settings
    };
    let mut daemons = Daemons::new(&lab, bad);
    let problem = lab
        .owner()
        .enter(|| daemons.each[0].apply(&wanted(&[1])))
        .unwrap_err()
        .to_string();
    assert!(problem.contains("/nowhere/ca.crt"), "{problem}");
    assert!(!dir.path().join("master1").exists());
}

/// An API server that says over TLS whether it is ready, and who it is.
struct ApiServer {
    ready: Arc<AtomicBool>,
}

fn certificate(dir: &Path) -> (Vec<rcgen::Certificate>, rcgen::KeyPair) {
    let masters = (1..=3).map(|number| master(number, false).to_string());
    let names: Vec<String> = masters.chain([vip(false).ip().to_string()]).collect();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    std::fs::write(dir.join("ca.crt"), certificate.pem()).unwrap();
    (vec![certificate], key)
}

impl ApiServer {
    fn start(host: &Host, address: std::net::IpAddr, tls: TlsAcceptor) -> Self {
        let ready = Arc::new(AtomicBool::new(true));
        let listener = host
            .enter(|| std::net::TcpListener::bind((address, 6444)))
            .unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let (name, is_ready) = (host.name().to_owned(), ready.clone());
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    continue;
                };
                let (tls, name, is_ready) = (tls.clone(), name.clone(), is_ready.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = tls.accept(stream).await else {
                        return;
                    };
                    let mut request = [0; 1024];
                    let Ok(length) = stream.read(&mut request).await else {
                        return;
                    };
                    let asks_health = request[..length].starts_with(b"GET /readyz");
                    let status = if asks_health && !is_ready.load(Ordering::SeqCst) {
                        "500 no"
                    } else {
                        "200 ok"
                    };
                    let length = name.len();
                    let answer = format!(
                        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: \
                         close\r\n\r\n{name}"
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { ready }
    }
}

async fn open(
    from: &Host,
    client: &TlsConnector,
) -> Result<TlsStream<TcpStream>, Box<dyn std::error::Error>> {
    let stream = from
        .connect(&Flow::new(Protocol::Tcp, vip(false)))
        .await
        .map_err(|failure| failure.to_string())?;
    Ok(client
        .connect(ServerName::IpAddress(vip(false).ip().into()), stream)
        .await?)
}

async fn ask(mut stream: TlsStream<TcpStream>) -> Result<String, Box<dyn std::error::Error>> {
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8(answer)?
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned())
}

/// Whether HAProxy takes each server for healthy.
fn states(dir: &Path) -> std::io::Result<Vec<bool>> {
    let mut stream = std::os::unix::net::UnixStream::connect(dir.join("haproxy.sock"))?;
    stream.write_all(b"show servers state apiservers\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let of_servers = answer.lines().filter(|line| line.contains(" apiservers "));
    Ok(of_servers
        .map(|line| line.split(' ').nth(5) != Some("0"))
        .collect())
}

/// HAProxy's own checks, over TLS that is verified, take a server out before anybody tells.
#[tokio::test(flavor = "multi_thread")]
async fn haproxy_checks_for_itself() {
    let (lab, dir) = (Lab::new(), TempDir::new().unwrap());
    let (chain, key) = certificate(dir.path());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            chain.iter().map(|one| one.der().clone()).collect(),
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(tls));
    let start =
        |(number, host): (usize, &Host)| ApiServer::start(host, master(number, false), tls.clone());
    let servers: Vec<ApiServer> = (1..).zip(&lab.masters).map(start).collect();

    let mut wanted = wanted(&[1, 2, 3]);
    wanted.addresses.truncate(1);
    wanted.servers.truncate(3);
    wanted
        .servers
        .iter_mut()
        .for_each(|server| server.address.set_port(6444));
    let settings = |number| {
        let mut settings = settings(dir.path())(number);
        settings.haproxy.ca_file = Some(dir.path().join("ca.crt"));
        settings
    };
    let mut daemons = Daemons::new(&lab, settings);
    daemons.apply(&wanted);
    let mut roots = rustls::RootCertStore::empty();
    chain
        .iter()
        .for_each(|one| roots.add(one.der().clone()).unwrap());
    let client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions();
    let client = TlsConnector::from(Arc::new(
        client
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth(),
    ));
    let who = async || -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        for _ in 0..12 {
            let answer = async { ask(open(&lab.outside, &client).await?).await };
            seen.insert(answer.await.unwrap_or_else(|error| error.to_string()));
        }
        seen
    };
    let all = MASTERS.map(str::to_owned);
    soon("all are checked", async || who().await.iter().eq(&all)).await;
    servers[2].ready.store(false, Ordering::SeqCst);
    soon("it is out", async || who().await.iter().eq(&all[..2])).await;
    assert_eq!(who().await.into_iter().collect::<Vec<_>>(), &all[..2]);
    servers[2].ready.store(true, Ordering::SeqCst);
    soon("it is back", async || who().await.contains("master3")).await;
    let opened = [(); 3].map(|()| open(&lab.outside, &client));
    let opened = futures_util::future::try_join_all(opened).await.unwrap();
    servers
        .iter()
        .for_each(|server| server.ready.store(false, Ordering::SeqCst));
    soon("all are out", async || {
        states(&dir.path().join("master1"))
            .unwrap()
            .iter()
            .all(|up| !up)
    })
    .await;
    assert_eq!(
        who().await.into_iter().collect::<Vec<_>>(),
        all,
        "none is ready: all get connections"
    );
    for stream in opened {
        ask(stream)
            .await
            .expect("checks that fail end nothing that is open");
    }
}
