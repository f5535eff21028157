//! Announcing from start to end: brings the plan, the API and the speakers together.
//!
//! Nothing is begun before pools, Nodes and all Services are known: a speaker takes the first set
//! that it gets for all there is. At the end layer 2 hands its addresses over, and BGP closes its
//! connections as for a restart.

use super::bgp;
use super::follow::{Change, Follower};
use super::outbox::Outbox;
use super::plan::Plan;
use super::surroundings::Neighbours;
use super::{Peers, Share, key, l2};
use kube::Client;
use portico_model::announce::Announceable;
use portico_model::edge::Surroundings;
use portico_model::key::ObjectKey;
use portico_model::pools::PoolBgp;
use portico_model::report::{Announcing, MOST_ADDRESSES, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// The most changes that wait for a speaker.
const WAITING: usize = 4;
/// The time limit for addresses to be handed over.
const FAREWELL: Duration = Duration::from_secs(1);

/// What Services have, or no more. The first ones are all that there are.
pub type Announceables = Vec<(ObjectKey, Option<Arc<Announceable>>)>;

/// What the edge has to know of other nodes, as soon as it is known: no pool, no edge.
pub type ToEdge = watch::Sender<Option<Option<Surroundings>>>;

/// What it works with.
pub struct Parts {
    /// A client of the API server.
    pub client: Client,
    /// The name of this node.
    pub node: Arc<str>,
    /// One of its addresses.
    pub own: Option<IpAddr>,
    /// What is in the kernel: nothing is announced that this node does not forward.
    pub installed: mpsc::Receiver<Announceables>,
    /// For what the edge has to know of other nodes, where there is an edge.
    pub edge: Option<ToEdge>,
    /// For the node's report.
    pub report: watch::Sender<Option<Announcing>>,
    /// The file with the key of heartbeats, where it is not in a Secret.
    pub key_file: Option<PathBuf>,
    /// The UDP port of heartbeats.
    pub port: u16,
    /// Whether the kernel answers ARP requests for addresses that this node forwards, also where
    /// another node is to announce them.
    pub kernel_answers: bool,
    /// The metrics of BGP sessions.
    pub bgp: bgp::Metrics,
    /// The metrics of layer 2.
    pub l2: l2::Metrics,
}

/// Announce until `stop`.
pub async fn run(parts: Parts, stop: impl Future<Output = ()>) {
    let mut follower = Follower::new(parts.client.clone());
    let key = key::read(parts.client.clone(), parts.key_file.clone());
    let mut neighbours = parts.edge.is_some().then(Neighbours::new);
    let mut announcer = Announcer::new(parts);
    let (mut sessions, mut layer2) = (announcer.sessions.subscribe(), announcer.layer2.subscribe());
    tokio::pin!(stop, key);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(changes) = announcer.parts.installed.recv() => announcer.set_services(changes),
            change = follower.next() => announcer.take(change),
            () = announcer.routes.deliver() => {}
            () = announcer.shares.deliver() => {}
            Ok(()) = sessions.changed() => {}
            Ok(()) = layer2.changed() => {}
            () = links_changed(&mut neighbours) => {}
            Some(ended) = announcer.running.join_next() => {
                tracing::error!(?ended, "a part of announcing broke, and is missing until the daemon is started \
                                         again");
            }
            key = &mut key, if announcer.waits_for_key() => announcer.key = Some(l2::Key::new(&key)),
        }
        if announcer.plan.pool_names().next().is_some() {
            follower.follow_nodes();
        }
        announcer.step();
        announcer.tell_edge(neighbours.as_ref());
        let (sessions, layer2) = (
            sessions.borrow_and_update().clone(),
            layer2.borrow_and_update().clone(),
        );
        let now = announcer
            .is_begun()
            .then(|| announcer.report(sessions, layer2));
        announcer
            .parts
            .report
            .send_if_modified(|told| std::mem::replace(told, now.clone()) != now);
    }
    announcer.finish().await;
}

async fn links_changed(neighbours: &mut Option<Neighbours>) {
    match neighbours {
        Some(neighbours) => neighbours.changed().await,
        None => std::future::pending().await,
    }
}

struct Announcer {
    parts: Parts,
    key: Option<l2::Key>,
    plan: Plan,
    known: Known,
    /// Peers, or the own labels, are others than those told last.
    nodes_changed: bool,
    labels: watch::Sender<BTreeMap<String, String>>,
    peers: watch::Sender<Peers>,
    routes: Outbox<Arc<PoolBgp>>,
    shares: Outbox<Arc<Share>>,
    sessions: watch::Sender<Vec<Session>>,
    layer2: watch::Sender<l2::Layer2>,
    /// Addresses that this node announces by BGP.
    routed: BTreeSet<IpAddr>,
    /// Those who announce.
    running: JoinSet<()>,
}

/// Which inputs have come in so far.
#[derive(Default)]
struct Known {
    services: bool,
    pools: bool,
    nodes: bool,
}

impl Announcer {
    fn new(parts: Parts) -> Self {
        Self {
            plan: Plan::new(Arc::clone(&parts.node)),
            parts,
            key: None,
            known: Known::default(),
            nodes_changed: false,
            labels: watch::Sender::default(),
            peers: watch::Sender::default(),
            routes: Outbox::default(),
            shares: Outbox::default(),
            sessions: watch::Sender::default(),
            layer2: watch::Sender::default(),
            routed: BTreeSet::new(),
            running: JoinSet::new(),
        }
    }

    fn set_services(&mut self, changes: Announceables) {
        changes
            .into_iter()
            .for_each(|(name, now)| self.plan.set_service(name, now));
        self.known.services = true;
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Pool(name, now) => {
                self.plan.set_pool(
                    &name,
                    now.as_ref()
                        .map(|(created, spec)| (*created, spec.as_ref())),
                );
            }
            Change::Pools(all) => {
                let gone: Vec<String> = missing(self.plan.pool_names(), &all);
                gone.iter().for_each(|name| self.plan.set_pool(name, None));
                self.known.pools = true;
            }
            Change::Node(name, now) => self.nodes_changed |= self.plan.set_node(&name, now),
            Change::Nodes(all) => {
                let gone: Vec<String> = missing(self.plan.node_names(), &all);
                gone.iter()
                    .for_each(|name| self.nodes_changed |= self.plan.set_node(name, None));
                self.known.nodes = true;
            }
        }
    }

    /// Passes on what changed, once all is known.
    fn step(&mut self) {
        let Known {
            services,
            pools,
            nodes,
        } = self.known;
        if !(services && pools && nodes) {
            return;
        }
        let changes = self.plan.take();
        for (address, route) in &changes.routes {
            match route {
                Some(_) => self.routed.insert(*address),
                None => self.routed.remove(address),
            };
        }
        self.routes.put(changes.routes);
        self.shares.put(changes.shares);
        if std::mem::take(&mut self.nodes_changed) {
            self.peers.send_replace(self.plan.peers().clone());
            self.labels.send_replace(
                self.plan
                    .own()
                    .map(|own| own.labels.clone())
                    .unwrap_or_default(),
            );
        }
        self.begin();
    }

    fn tell_edge(&self, neighbours: Option<&Neighbours>) {
        let (Some(to_edge), Some(neighbours)) = (&self.parts.edge, neighbours) else {
            return;
        };
        let has_pools = self.plan.pool_names().next().is_some();
        if !self.known.pools || (has_pools && !self.known.nodes) {
            return;
        }
        let surroundings = neighbours.surroundings(&self.plan);
        if has_pools && surroundings.is_none() {
            return;
        }
        let now = Some(surroundings.filter(|_| has_pools));
        to_edge.send_if_modified(|told| std::mem::replace(told, now.clone()) != now);
    }

    fn report(&self, sessions: Vec<Session>, layer2: l2::Layer2) -> Announcing {
        let routes = self.routed.iter().take(MOST_ADDRESSES);
        Announcing {
            members: layer2.members,
            sessions,
            holds: Some(layer2.holds),
            more_held: layer2.more_held,
            routes: Some(routes.copied().collect()),
            more_routes: self.routed.len().saturating_sub(MOST_ADDRESSES),
        }
    }

    fn is_begun(&self) -> bool {
        self.routes.is_connected()
    }

    /// Layer 2 is wanted, and not possible yet.
    fn waits_for_key(&self) -> bool {
        self.key.is_none() && self.plan.has_layer2()
    }

    fn begin(&mut self) {
        if !self.routes.is_connected() {
            self.begin_bgp();
        }
        if !self.shares.is_connected()
            && self.plan.has_layer2()
            && let Some(key) = self.key.clone()
        {
            self.begin_layer2(key);
        }
    }

    fn begin_bgp(&mut self) {
        let (sender, routes) = mpsc::channel(WAITING);
        self.routes.connect(sender);
        self.running.spawn(bgp::run(bgp::Parts {
            client: self.parts.client.clone(),
            node: Arc::clone(&self.parts.node),
            own: self
                .parts
                .own
                .or_else(|| self.plan.own()?.addresses.first().copied()),
            labels: self.labels.subscribe(),
            routes,
            sessions: self.sessions.clone(),
            metrics: self.parts.bgp.clone(),
        }));
    }

    fn begin_layer2(&mut self, key: l2::Key) {
        if self.parts.kernel_answers {
            tracing::warn!(
                "in ipvs mode all nodes answer for all addresses: give --ipvs-strict-arp, so that \
                 only their owners do"
            );
        }
        let (sender, shares) = mpsc::channel(WAITING);
        self.shares.connect(sender);
        self.running.spawn(l2::run(l2::Parts {
            node: Arc::clone(&self.parts.node),
            peers: self.peers.subscribe(),
            shares,
            key,
            port: self.parts.port,
            report: self.layer2.clone(),
            metrics: self.parts.l2.clone(),
        }));
    }

    /// The speakers end when their senders are dropped.
    async fn finish(self) {
        let Self {
            mut running,
            routes,
            shares,
            ..
        } = self;
        drop((routes, shares));
        let all = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            tracing::warn!("not all addresses were handed over in time");
        }
    }
}

fn missing<'a>(known: impl Iterator<Item = &'a str>, all: &BTreeSet<String>) -> Vec<String> {
    known
        .filter(|name| !all.contains(*name))
        .map(str::to_owned)
        .collect()
}
