//! Announces addresses to routers by BGP: one task for each peer drives a [`portico_bgp::Session`]
//! over a TCP connection.
//!
//! What is announced follows from [`Speaker::set_routes`] and [`Speaker::set_address`]; to which
//! peers from [`Speaker::set_peers`]. No session begins before the first `set_routes`: a router
//! that kept our routes over a restart takes the first telling for all there is.
//!
//! A speaker that is dropped closes its connections without a word, which a router that knows of
//! graceful restarts takes for one: it goes on sending traffic, which the rules in the kernel go on
//! forwarding. To leave for good, [`Speaker::drain`] first.

mod config;
mod connection;
mod metrics;
mod peer;
mod peers;
mod report;
mod run;
mod socket;

pub use config::{Password, PeerConfig};
pub use metrics::Metrics;
pub use run::{Parts, run};

use peer::{Mailbox, Task};
use portico_bgp::session::Stop;
use portico_bgp::{Policy, Table};
use portico_model::report::Session;
use report::Reports;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The time limit for all routers to hear that routes are gone.
const FAREWELL: Duration = Duration::from_secs(5);

/// An address to be announced, and how. Many share a policy.
pub type Route = (IpAddr, Arc<Policy>);

/// Speaks to all routers.
pub struct Speaker {
    runtime: Handle,
    router_id: Ipv4Addr,
    inner: Mutex<Inner>,
    reports: Arc<Reports>,
    conflicts: watch::Sender<Vec<String>>,
}

#[derive(Default)]
struct Inner {
    table: Table,
    /// The table has all routes.
    ready: bool,
    configured: Vec<PeerConfig>,
    peers: BTreeMap<String, Peer>,
    /// Sessions that end.
    leaving: Vec<JoinHandle<()>>,
}

struct Peer {
    config: PeerConfig,
    mailbox: Arc<Mailbox>,
    task: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.peers.values().for_each(|peer| peer.task.abort());
        self.leaving.iter().for_each(JoinHandle::abort);
    }
}

impl Speaker {
    /// Starts the speaker of this node; `own` is one of its addresses. To be called in an async
    /// runtime: sockets belong to the network namespace of its threads.
    pub fn start(node: &str, own: Option<IpAddr>, metrics: Metrics) -> Self {
        Self {
            runtime: Handle::current(),
            router_id: config::router_id(node, own),
            inner: Mutex::default(),
            reports: Arc::new(Reports::new(metrics)),
            conflicts: watch::Sender::default(),
        }
    }

    /// These are all peers that this node should have.
    pub fn set_peers(&self, peers: Vec<PeerConfig>) {
        let mut inner = self.lock();
        inner.configured = peers;
        self.follow_peers(&mut inner);
    }

    /// These are all routes. With the first call sessions may begin.
    pub fn set_routes(&self, routes: Vec<Route>) {
        let mut inner = self.lock();
        let touched = inner.table.replace(routes);
        self.tell(&inner, touched.iter());
        if !std::mem::replace(&mut inner.ready, true) {
            self.follow_peers(&mut inner);
        }
    }

    /// These are all policies by which one address is announced; without any, it is not. Costs what
    /// it touches.
    pub fn set_address(&self, address: IpAddr, policies: Vec<Arc<Policy>>) {
        let mut inner = self.lock();
        let touched = inner.table.set(address, policies);
        self.tell(&inner, touched.iter());
    }

    /// How the sessions are, sorted by the name of the peer.
    pub fn state(&self) -> watch::Receiver<Vec<Session>> {
        self.reports.subscribe()
    }

    /// What is wrong with the routes, for people.
    pub fn conflicts(&self) -> watch::Receiver<Vec<String>> {
        self.conflicts.subscribe()
    }

    /// Takes all routes back from all routers and ends the sessions: when this returns they have
    /// been told, or cannot be reached.
    pub async fn drain(&self) {
        let leaving = {
            let mut inner = self.lock();
            (inner.configured, inner.ready) = (vec![], false);
            let peers = std::mem::take(&mut inner.peers);
            peers
                .into_iter()
                .for_each(|(name, peer)| self.dismiss(&mut inner, &name, peer, Stop::Drain));
            std::mem::take(&mut inner.leaving)
        };
        let stops: Vec<_> = leaving.iter().map(JoinHandle::abort_handle).collect();
        let all = futures_util::future::join_all(leaving);
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            tracing::warn!("not all routers heard in time that this node leaves");
            stops.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while it is held leaves the table whole, since it changes in single steps.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell<'a>(&self, inner: &Inner, touched: impl Iterator<Item = &'a ipnet::IpNet> + Clone) {
        if touched.clone().next().is_none() {
            return;
        }
        for (name, peer) in &inner.peers {
            peer.mailbox
                .change(inner.table.changes(name, touched.clone()));
        }
        let conflicts: Vec<String> = inner.table.conflicts().map(ToString::to_string).collect();
        self.conflicts.send_if_modified(|told| {
            let news = *told != conflicts;
            *told = conflicts;
            news
        });
    }

    fn follow_peers(&self, inner: &mut Inner) {
        if !inner.ready {
            return;
        }
        inner.leaving.retain(|task| !task.is_finished());
        let wanted: BTreeMap<String, PeerConfig> = inner
            .configured
            .iter()
            .map(|peer| (peer.name.clone(), peer.clone()))
            .collect();
        let unwanted = |(name, peer): (&String, &Peer)| {
            (wanted.get(name) != Some(&peer.config)).then(|| name.clone())
        };
        let gone: Vec<String> = inner.peers.iter().filter_map(unwanted).collect();
        for name in gone {
            let Some(peer) = inner.peers.remove(&name) else {
                continue;
            };
            match wanted
                .get(&name)
                .is_some_and(|new| new.is_same_neighbour(&peer.config))
            {
                // A restart to the router, which goes on with what it has.
                true => peer.task.abort(),
                false => self.dismiss(inner, &name, peer, Stop::Removed),
            }
        }
        for (name, config) in wanted {
            if !inner.peers.contains_key(&name) {
                let peer = self.begin(&inner.table, config);
                inner.peers.insert(name, peer);
            }
        }
    }

    fn begin(&self, table: &Table, config: PeerConfig) -> Peer {
        let mailbox = Arc::new(Mailbox::default());
        mailbox.change(table.routes(&config.name));
        let report = self.reports.of(&config.name);
        let task = Task::new(config.clone(), self.router_id, Arc::clone(&mailbox), report);
        Peer {
            config,
            mailbox,
            task: self.runtime.spawn(task.run()),
        }
    }

    fn dismiss(&self, inner: &mut Inner, name: &str, peer: Peer, why: Stop) {
        self.reports.forget(name);
        peer.mailbox.stop(why);
        inner.leaving.push(peer.task);
    }
}
