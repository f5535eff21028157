//! The example of a plugin, on a host of its own: it keeps the contract, and packets go through it.

use crate::nft::Nft;
use portico_providers::plugin::{Patience, Plugin, Served, serve};
use portico_providers::{Family, Node, Port, Protocol, Provider, Request};
use portico_testbed::{Ask as _, Echo as _};
use portico_testbed::{Flow, Host, Route, Testbed};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};

/// The plugin runs on a thread that is inside the host, until this is dropped.
struct Running {
    folder: TempDir,
    _stop: oneshot::Sender<()>,
}

impl Running {
    fn on(host: &Host) -> Self {
        let folder = TempDir::with_prefix("portico-plugin-").unwrap();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let (host, socket) = (host.clone(), folder.path().join("plugin.sock"));
        std::thread::spawn(move || {
            let run = async {
                let listener = UnixListener::bind(&socket).unwrap();
                ready.send(()).unwrap();
                let served = Served {
                    provider: Arc::<Nft>::default(),
                    version: "1".to_owned(),
                    can: Nft::can(),
                };
                tokio::select! {
                    _ = serve(served, listener) => {}
                    _ = stopped => {}
                }
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            host.enter(|| runtime.block_on(run));
        });
        is_ready.recv().unwrap();
        Self {
            folder,
            _stop: stop,
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("plugin.sock")
    }
}

#[test]
fn the_example_in_rust_passes() {
    let testbed = Testbed::new().unwrap();
    let host = testbed.host("balancer").unwrap();
    let plugin = Running::on(&host);
    let mut check = Command::new(env!("CARGO_BIN_EXE_portico"));
    check.args([
        "controller",
        "check-plugin",
        "--pause=10ms",
        "--owned-command=nft list ruleset",
    ]);
    check.arg(format!("--socket={}", plugin.socket().display()));
    let report = host.run(check, "").unwrap();
    println!("{report}");
    assert_eq!(
        report
            .lines()
            .filter(|line| line.starts_with("ok "))
            .count(),
        18,
        "{report}"
    );
}

#[tokio::test]
async fn packets_go_through_the_example() {
    let testbed = Testbed::new().unwrap();
    let [client, balancer, node] =
        ["client", "balancer", "node"].map(|name| testbed.host(name).unwrap());
    client.cable("eth0", &balancer, "clients").unwrap();
    balancer.cable("nodes", &node, "eth0").unwrap();
    client.address("eth0", "192.0.2.2/24").unwrap();
    balancer.address("clients", "192.0.2.1/24").unwrap();
    balancer.address("nodes", "10.0.0.1/24").unwrap();
    node.address("eth0", "10.0.0.2/24").unwrap();
    client.route(Route::to("default").via("192.0.2.1")).unwrap();
    node.route(Route::to("default").via("10.0.0.1")).unwrap();
    balancer.sysctl("net/ipv4/ip_forward", "1").unwrap();
    node.serve(30080).unwrap();

    let running = Running::on(&balancer);
    let (_stop, stopped) = watch::channel(false);
    let plugin = Plugin::start(&running.socket(), Patience::default(), stopped)
        .await
        .unwrap();
    let port = Port {
        name: String::new(),
        protocol: Protocol::Tcp,
        port: 80,
        node_port: 30080,
        app_protocol: None,
    };
    let addresses = vec!["10.0.0.2".parse().unwrap()];
    let request = Request {
        balancer_name: "a1".to_owned(),
        families: vec![Family::V4],
        ports: vec![port],
        nodes: vec![Node {
            name: "node".to_owned(),
            addresses,
            ..Node::default()
        }],
        ..Request::default()
    };
    plugin.ensure(&request).await.unwrap();
    let flow = Flow::new(
        portico_testbed::Protocol::Tcp,
        "198.51.100.1:80".parse().unwrap(),
    );
    let masked = client.ask(&flow).await.unwrap();
    assert_eq!(masked.seen.source.ip().to_string(), "10.0.0.1");
    // Policy Local: the node sees the client.
    plugin
        .ensure(&Request {
            local: true,
            ..request.clone()
        })
        .await
        .unwrap();
    let seen = client.ask(&flow).await.unwrap();
    assert_eq!(seen.seen.source.ip().to_string(), "192.0.2.2");
    // From elsewhere only.
    let elsewhere = vec!["203.0.113.0/24".parse().unwrap()];
    plugin
        .ensure(&Request {
            source_ranges: elsewhere,
            ..request.clone()
        })
        .await
        .unwrap();
    assert!(client.ask(&flow).await.is_err());
    plugin.delete(&request).await.unwrap();
    assert!(client.ask(&flow).await.is_err());
}
