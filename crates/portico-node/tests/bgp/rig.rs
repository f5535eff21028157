//! Three nodes and a router on one switch, and a client behind the router.

use portico_bgp::Policy;
use portico_model::report::Session;
use portico_node::announce::bgp::{Metrics, PeerConfig, Speaker};
use portico_testbed::{Ask as _, Echo as _};
use portico_testbed::{Flow, Host, Protocol, Route, Testbed};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(crate) const ROUTER: [&str; 2] = ["10.8.0.1", "fd00:8::1"];
pub(crate) const NODES: [[&str; 2]; 3] = [
    ["10.8.0.11", "fd00:8::11"],
    ["10.8.0.12", "fd00:8::12"],
    ["10.8.0.13", "fd00:8::13"],
];
pub(crate) const SERVICE: [&str; 2] = ["203.0.113.10", "2001:db8:5::10"];
pub(crate) const OUR_AS: u32 = 64512;
pub(crate) const ROUTER_AS: u32 = 4_200_000_001;
const PORT: u16 = 80;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What nodes have in common.
pub(crate) struct Rig {
    pub router: Host,
    pub nodes: Vec<Host>,
    pub client: Host,
    pub dir: TempDir,
    _bed: Testbed,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let bed = Testbed::new().unwrap();
        let [switch, router, client] =
            ["switch", "router", "client"].map(|name| bed.host(name).unwrap());
        switch.bridge("lan").unwrap();
        router
            .cable_to_switch("lan0", &switch, "router", "lan")
            .unwrap();
        router.address("lan0", "10.8.0.1/24").unwrap();
        router.address("lan0", "fd00:8::1/64").unwrap();
        client.cable("up0", &router, "down0").unwrap();
        for (host, link, last) in [(&client, "up0", "2"), (&router, "down0", "1")] {
            host.address(link, &format!("10.9.0.{last}/24")).unwrap();
            host.address(link, &format!("fd00:9::{last}/64")).unwrap();
        }
        client.route(Route::to("default").via("10.9.0.1")).unwrap();
        client
            .route(Route::to("default6").via("fd00:9::1"))
            .unwrap();
        for (setting, value) in [
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv4/fib_multipath_hash_policy", "1"),
            ("net/ipv6/fib_multipath_hash_policy", "1"),
        ] {
            router.sysctl(setting, value).unwrap();
        }
        let nodes = (0..NODES.len())
            .map(|number| node(&bed, &switch, number))
            .collect();
        let mut dir = TempDir::with_prefix("portico-bgp-").unwrap();
        if std::env::var_os("PORTICO_KEEP").is_some() {
            dir.disable_cleanup(true);
            println!("logs are in {}", dir.path().display());
        }
        Self {
            router,
            nodes,
            client,
            dir,
            _bed: bed,
        }
    }

    /// The nodes that a client's connections arrive at.
    pub(crate) fn reached(&self, address: &str) -> BTreeSet<String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let flow = Flow::new(
            Protocol::Tcp,
            SocketAddr::new(address.parse().unwrap(), PORT),
        );
        let answers = (0..100).filter_map(|_| runtime.block_on(self.client.ask(&flow)).ok());
        answers.map(|answer| answer.seen.host).collect()
    }

    /// The next hops of a prefix in the router's kernel.
    pub(crate) fn kernel(&self, prefix: &str) -> BTreeSet<String> {
        let mut command = Command::new("ip");
        command.args([
            if prefix.contains(':') { "-6" } else { "-4" },
            "route",
            "show",
            prefix,
        ]);
        let text = self.router.run(command, "").unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        let after_via = |pair: &[&str]| match *pair {
            ["via", "inet6", next] => Some(next.to_owned()),
            ["via", next, _] => Some(next.to_owned()),
            _ => None,
        };
        words.windows(3).filter_map(after_via).collect()
    }

    /// Pulls the node's cable: nobody hears of it.
    pub(crate) fn unplug(&self, node: usize) {
        let mut command = Command::new("ip");
        command.args(["link", "set", "eth0", "down"]);
        self.nodes[node].run(command, "").unwrap();
    }

    /// A peer as most tests want it.
    pub(crate) fn peer(&self, family: usize) -> PeerConfig {
        let address = SocketAddr::new(ROUTER[family].parse().unwrap(), 179);
        PeerConfig {
            hold_time: 3,
            connect_time: Duration::from_secs(1),
            restart_time: Some(30),
            ..PeerConfig::new("router", address, OUR_AS, ROUTER_AS)
        }
    }
}

fn node(bed: &Testbed, switch: &Host, number: usize) -> Host {
    let name = format!("node{number}");
    let node = bed.host(&name).unwrap();
    node.cable_to_switch("eth0", switch, &name, "lan").unwrap();
    let [v4, v6] = NODES[number];
    node.address("eth0", &format!("{v4}/24")).unwrap();
    node.address("eth0", &format!("{v6}/64")).unwrap();
    node.route(Route::to("default").via(ROUTER[0])).unwrap();
    node.route(Route::to("default6").via(ROUTER[1])).unwrap();
    let [v4, v6] = SERVICE;
    node.secondary_address("lo", &format!("{v4}/32")).unwrap();
    node.secondary_address("lo", &format!("{v6}/128")).unwrap();
    node.serve(PORT).unwrap();
    node
}

/// A speaker inside a node. To drop it is to kill the daemon: the kernel closes its connections.
pub(crate) struct Daemon {
    pub speaker: Arc<Speaker>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(host: &Host, peers: Vec<PeerConfig>, addresses: &[&str]) -> Self {
        let own = peers.first().and_then(|peer| peer.source);
        let (host, name) = (host.clone(), host.name().to_owned());
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            host.enter(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let speaker = Arc::new(Speaker::start(&name, own, Metrics::default()));
                    tell.send((speaker, Handle::current())).unwrap();
                    let _ = stopped.await;
                });
            });
        });
        let (speaker, runtime) = told.recv().unwrap();
        speaker.set_peers(peers);
        let daemon = Self {
            speaker,
            runtime,
            stop: Some(stop),
            thread: Some(thread),
        };
        daemon.announce(addresses, Policy::default());
        daemon
    }

    pub(crate) fn announce(&self, addresses: &[&str], policy: Policy) {
        let policy = Arc::new(policy);
        let routes = addresses
            .iter()
            .map(|address| (address.parse::<IpAddr>().unwrap(), Arc::clone(&policy)));
        self.speaker.set_routes(routes.collect());
    }

    pub(crate) fn drain(&self) {
        self.runtime.block_on(self.speaker.drain());
    }

    pub(crate) fn sessions(&self) -> Vec<Session> {
        self.speaker.state().borrow().clone()
    }

    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&Session) -> bool) -> Session {
        let mut found = None;
        wait_until(what, || {
            found = self.sessions().into_iter().find(|session| is_so(session));
            found.is_some().then_some(()).ok_or_else(|| self.sessions())
        });
        found.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits for something to be so; what it is instead is told if it never becomes so.
pub(crate) fn wait_until<T: std::fmt::Debug>(what: &str, mut is_so: impl FnMut() -> Result<(), T>) {
    let began = Instant::now();
    loop {
        match is_so() {
            Ok(()) => return println!("{:>6} ms until {what}", began.elapsed().as_millis()),
            Err(instead) if began.elapsed() > PATIENCE => {
                panic!("not in time: {what}; but {instead:?}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

pub(crate) fn set<'a>(all: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    all.into_iter().map(str::to_owned).collect()
}

/// The addresses of nodes, of IPv4 (0) or IPv6 (1).
pub(crate) fn addresses(nodes: &[usize], family: usize) -> BTreeSet<String> {
    set(nodes.iter().map(|node| NODES[*node][family]))
}
