//! Nodes, a client and a stranger on one switch.

use portico_l2::{NodeId, rank};
use portico_node::announce::l2::{self, Key, Layer2, Metrics, Parts};
use portico_node::announce::{Peers, Share};
use portico_testbed::{Host, Process, Testbed};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

pub(crate) const SETTINGS: &str = "PORTICO_TEST_LAYER2";
const PORT: u16 = 10262;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The number of a host that takes no part.
pub(crate) const STRANGER: usize = 9;
pub(crate) const V4: [&str; 6] = [
    "10.7.0.201",
    "10.7.0.202",
    "10.7.0.203",
    "10.7.0.204",
    "10.7.0.205",
    "10.7.0.206",
];
pub(crate) const V6: [&str; 4] = ["fd00:7::201", "fd00:7::202", "fd00:7::203", "fd00:7::204"];

pub(crate) fn addresses() -> impl Iterator<Item = IpAddr> {
    V4.iter().chain(&V6).map(|address| address.parse().unwrap())
}

/// Who of the nodes is to have an address.
pub(crate) fn owner(address: IpAddr, nodes: &[usize]) -> usize {
    let hash = rank::hash_address(address);
    *nodes
        .iter()
        .max_by_key(|node| rank::score(hash, NodeId::of(&name(**node))))
        .unwrap()
}

fn name(node: usize) -> String {
    format!("node{node}")
}

pub(crate) struct Rig {
    switch: Host,
    nodes: Vec<Host>,
    client: Host,
    pub stranger: Host,
    dir: TempDir,
    _bed: Testbed,
}

impl Rig {
    pub(crate) fn new(nodes: usize) -> Self {
        let bed = Testbed::new().unwrap();
        let switch = bed.host("switch").unwrap();
        switch.bridge("lan").unwrap();
        let host = |name: &str, number: usize| {
            let host = bed.host(name).unwrap();
            host.cable_to_switch("eth0", &switch, name, "lan").unwrap();
            host.link_mac("eth0", [2, 0, 0, 0, 7, number as u8])
                .unwrap();
            host.address("eth0", &format!("10.7.0.1{number}/24"))
                .unwrap();
            host.address("eth0", &format!("fd00:7::1{number}/64"))
                .unwrap();
            host
        };
        let nodes = (0..nodes).map(|node| host(&name(node), node)).collect();
        let (client, stranger) = (host("client", 8), host("stranger", STRANGER));
        let dir = TempDir::with_prefix("portico-layer2-").unwrap();
        Self {
            nodes,
            client,
            stranger,
            dir,
            switch,
            _bed: bed,
        }
    }

    pub(crate) fn start(&self, node: usize) -> Process {
        self.start_with_key(node, "the key")
    }

    pub(crate) fn start_with_key(&self, node: usize, key: &str) -> Process {
        let settings = [
            node.to_string(),
            self.nodes.len().to_string(),
            key.into(),
            self.log(node).display().to_string(),
        ];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "takes_part", "--ignored", "--quiet"])
            .env(SETTINGS, settings.join("\n"));
        self.nodes[node].spawn(command).unwrap()
    }

    fn log(&self, node: usize) -> PathBuf {
        self.dir.path().join(name(node))
    }

    /// Among whom a node shares out addresses, as it says.
    pub(crate) fn members(&self, node: usize) -> Vec<String> {
        let text = std::fs::read_to_string(self.log(node)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Pulls or plugs in the cable of a node at the switch.
    pub(crate) fn plug(&self, node: usize, up: bool) {
        ip(
            &self.switch,
            &format!("link set {} {}", name(node), if up { "up" } else { "down" }),
        );
    }

    /// Has the client's kernel ask where the addresses are.
    pub(crate) fn ask_for_all(&self) {
        self.client.enter(|| {
            for address in addresses() {
                let any = if address.is_ipv4() {
                    "0.0.0.0:0"
                } else {
                    "[::]:0"
                };
                // Nobody listens there, which does not matter.
                let _ = UdpSocket::bind(any).unwrap().send_to(b"?", (address, 9));
            }
        });
    }

    pub(crate) fn forget_all(&self) {
        ip(&self.client, "neigh flush dev eth0");
    }

    /// Who has each address, by the client's kernel.
    pub(crate) fn seen_by_client(&self) -> BTreeMap<IpAddr, usize> {
        let mut seen = BTreeMap::new();
        for line in ip(&self.client, "neigh show dev eth0").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [address, "lladdr", mac, ..] = words[..] {
                let address: IpAddr = address.parse().unwrap();
                let number = mac
                    .rsplit(':')
                    .next()
                    .and_then(|last| last.parse().ok())
                    .unwrap();
                seen.extend(
                    addresses()
                        .any(|one| one == address)
                        .then_some((address, number)),
                );
            }
        }
        if seen.len() < addresses().count() {
            self.ask_for_all();
        }
        seen
    }
}

fn ip(host: &Host, arguments: &str) -> String {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace());
    host.run(command, "").unwrap()
}

/// In a process of its own, until it is asked to stop.
pub(crate) fn take_part(settings: &str) {
    let [node, nodes, key, log] = settings.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let all = 0..nodes.parse::<usize>().unwrap();
    let peers: Peers = all
        .map(|node| {
            (
                name(node).into(),
                vec![format!("10.7.0.1{node}").parse().unwrap()],
            )
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (changes, shares) = mpsc::channel(1);
        let (report, mut told) = watch::channel(Layer2::default());
        let all = addresses().map(|address| (address, Some(Arc::new(Share::default())))).collect();
        changes.send(all).await.unwrap();
        let mut stop = signal(SignalKind::terminate()).unwrap();
        let running = tokio::spawn(l2::run(Parts {
            node: name(node.parse().unwrap()).into(),
            peers: watch::channel(peers).1,
            shares,
            key: Key::new(key.as_bytes()),
            port: PORT,
            report,
            metrics: Metrics::default(),
        }));
        loop {
            tokio::select! {
                _ = stop.recv() => break,
                Ok(()) = told.changed() => std::fs::write(log, told.borrow_and_update().members.join("\n")).unwrap(),
            }
        }
        drop(changes);
        running.await.unwrap();
    });
}

/// Waits for something to be so; what it is instead is told if it never becomes so.
pub(crate) fn wait_until<T: Debug>(what: &str, mut is_so: impl FnMut() -> Result<(), T>) {
    let began = Instant::now();
    loop {
        match is_so() {
            Ok(()) => return println!("{:>6} ms until {what}", began.elapsed().as_millis()),
            Err(instead) if began.elapsed() > PATIENCE => {
                panic!("not in time: {what}; but {instead:?}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
