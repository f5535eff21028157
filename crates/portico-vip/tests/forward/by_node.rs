//! By Portico's node daemon, the real one, without any API server.

use crate::lab::{Daemons, Lab, alone, go_all_the_way, run, wanted};
use clap::{Args, FromArgMatches};
use portico_node::config::{self, Arguments};
use portico_testbed::Host;
use portico_vip::forward::{ForwardSettings, Mode};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::oneshot;

const KUBECONFIG: &str = "
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: a}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
";

/// The node daemon of one master.
struct NodeDaemon {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NodeDaemon {
    fn start(host: &Host, mode: &str, dir: &Path) -> Self {
        let kubeconfig = dir.join(format!("{}.kubeconfig", host.name()));
        std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
        let flags = [
            "node".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--static-services={}", folder(dir, host.name()).display()),
            format!("--hostname-override={}", host.name()),
            format!("--proxy-mode={mode}"),
            "--data-dir=".to_owned(),
            "--healthz-bind-address=".to_owned(),
            "--metrics-bind-address=".to_owned(),
            "--oom-score-adj=0".to_owned(),
            "--conntrack-max-per-core=0".to_owned(),
        ];
        let matches = Arguments::augment_args(clap::Command::new("node")).get_matches_from(flags);
        let config = config::load(&Arguments::from_arg_matches(&matches).unwrap())
            .unwrap()
            .config;
        let (stop, stopped) = oneshot::channel();
        let host = host.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let stopped = async { _ = stopped.await };
            host.enter(|| runtime.block_on(portico_node::run(config, || {}, stopped)))
                .unwrap();
        };
        Self {
            stop: Some(stop),
            thread: Some(std::thread::spawn(work)),
        }
    }
}

impl Drop for NodeDaemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

fn folder(dir: &Path, host: &str) -> PathBuf {
    dir.join(host)
}

fn settings(dir: &Path) -> impl Fn(usize) -> ForwardSettings {
    move |number| ForwardSettings {
        static_services: folder(dir, &format!("master{number}")),
        ..alone()
    }
}

/// Until every daemon has its folder.
fn start_all(lab: &Lab, mode: &str, dir: &Path) -> Vec<NodeDaemon> {
    let daemons = lab
        .masters
        .iter()
        .map(|host| NodeDaemon::start(host, mode, dir))
        .collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_there = |host: &Host| folder(dir, host.name()).join(".installed").exists();
    while !lab.masters.iter().all(is_there) {
        assert!(
            Instant::now() < deadline,
            "the node daemons serve their folders"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    daemons
}

async fn all_the_way(mode: &str) {
    let (lab, dir) = (Lab::new(), TempDir::new().unwrap());
    let nodes = start_all(&lab, mode, dir.path());
    let mut daemons = Daemons::new(&lab, settings(dir.path()));
    let applied = daemons.apply(&wanted(&[1, 2, 3]));
    assert_eq!(
        (applied.mode, applied.why),
        (
            Mode::Portico,
            format!("Portico's node daemon ({mode}) serves static Services")
        )
    );
    go_all_the_way(&lab, &mut daemons).await;
    assert!(
        daemons
            .rules()
            .join("\n")
            .contains("\"externalIPs\":[\"172.16.64.58\",\"fd00:64::58\"]")
    );
    daemons.remove();
    let rules = run(lab.owner(), "nft list ruleset");
    assert!(
        !rules.contains("172.16.64.58") && !rules.contains("fd00:64::58"),
        "{rules}"
    );
    drop(nodes);
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_by_the_node_daemon_with_nftables() {
    all_the_way("nftables").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_by_the_node_daemon_with_iptables() {
    all_the_way("iptables").await;
}

/// A daemon that comes takes over; one that goes does so unnoticed, and a server that dies then is
/// out all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_gone_keeps_nobody_from_being_served() {
    let (lab, dir) = (Lab::new(), TempDir::new().unwrap());
    let mut daemons = Daemons::new(&lab, settings(dir.path()));
    let all = wanted(&[1, 2, 3]);
    assert_eq!(daemons.apply(&all).mode, Mode::Direct);
    let nodes = start_all(&lab, "nftables", dir.path());
    assert_eq!(daemons.apply(&all).mode, Mode::Portico);
    assert!(!run(lab.owner(), "nft list tables").contains("portico-vip"));
    lab.check(&[1, 2, 3], "the daemon came").await;
    drop(nodes);
    lab.check(&[1, 2, 3], "its rules stay").await;
    let applied = daemons.apply(&wanted(&[2, 3]));
    assert_eq!(applied.mode, Mode::Direct, "{}", applied.why);
    assert!(
        run(lab.owner(), "nft list map ip portico frontends").contains("172.16.64.58"),
        "its rules are there too"
    );
    lab.check(&[2, 3], "but ours come first").await;
}
