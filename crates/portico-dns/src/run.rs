//! The daemon: one task owns the index and the probes, and changes the zone; the others answer from
//! it.

use crate::config::Config;
use crate::index::{Index, NodeView};
use crate::metrics::{Metrics, OfNode, Outcome};
use crate::page::{Curious, Pages};
use crate::presence::Presence;
use crate::probe::probe;
use crate::server::{self, BindError, Context, Transferring};
use crate::tsig::{self, Key};
use crate::watch::{self, Feed, News};
use crate::zone::{Patch, Zone};
use crate::{notify, page};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hickory_proto::rr::Record;
use portico_client::access::{self, AccessError};
use portico_client::wait::{fraction, sleep_until};
use portico_model::checks::{Checks, Probe, Refused, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch as channel};

/// Changes taken in before the zone is changed.
const BATCH: usize = 1000;
/// To tell the API server that this server was stopped.
const GOODBYE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum RunError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot serve metrics at {address}")]
    Metrics {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot use the keys in {path}", path = .path.display())]
    Keys {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("a task that answers questions ended")]
    Ended,
}

/// Answer until `stop`.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), RunError> {
    let client = access::client(config.kubeconfig.as_deref()).await?;
    let metrics = Arc::new(Metrics::new());
    let (curious, asked) = mpsc::channel(1);
    let pages = Arc::new(Pages::new(Arc::clone(&metrics), curious));
    let sockets = server::bind(&config.listen)?;
    let zone = Arc::new(RwLock::new(Zone::new(
        config.zone.clone(),
        seconds() as u32,
    )));
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(address) = config.metrics {
        let bad = |source| RunError::Metrics { address, source };
        let listener = TcpListener::bind(address).await.map_err(bad)?;
        let pages = Arc::clone(&pages);
        tasks.spawn(async move { match page::serve(listener, pages).await {} });
    }
    let (changes, _) = channel::channel(None);
    for secondary in config.notify.clone() {
        tasks.spawn(notify::tell(
            secondary,
            config.listen.clone(),
            changes.subscribe(),
            Arc::clone(&metrics),
        ));
    }
    let context = Context::new(
        Arc::clone(&zone),
        Arc::clone(&metrics),
        Transferring::new(
            config.allow_transfer.clone(),
            keys(config.transfer_keys.as_deref())?,
        ),
        config.rate_limit,
        config.tcp_connections,
    );
    let mut serving = server::serve(sockets, &Arc::new(context));
    for listen in &config.listen {
        tracing::info!(address = %listen.address, zone = %config.zone.origin.name(), "answering");
    }
    let mut keeper = Keeper::new(&config, zone, metrics, pages, changes);
    let presence = config.listen.first().map(|listen| {
        let zone = config.zone.origin.name().to_string();
        Presence::new(&client, &zone, listen.address)
    });
    if let Some(presence) = &presence {
        let presence = presence.clone();
        tasks.spawn(async move { presence.keep().await });
    }
    tokio::select! {
        () = keeper.keep(watch::follow(&client), asked) => Err(RunError::Ended),
        _ = serving.join_next() => Err(RunError::Ended),
        () = stop => {
            tasks.shutdown().await;
            if let Some(presence) = presence {
                let _ = tokio::time::timeout(GOODBYE, presence.leave()).await;
            }
            Ok(())
        }
    }
}

fn keys(path: Option<&Path>) -> Result<Vec<Key>, RunError> {
    let Some(path) = path else {
        return Ok(Vec::new());
    };
    let bad = |source| RunError::Keys {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.into()))?;
    let keys = tsig::parse_keys(&text, |secret| STANDARD.decode(secret).ok())
        .map_err(|error| bad(error.into()))?;
    if keys.is_empty() {
        Err(bad("there is none in it".into()))
    } else {
        Ok(keys)
    }
}

/// A probe that ended, and how.
type Probed = (Probe<SocketAddr>, Result<(), String>);

/// Keeps the zone in step with the API and with the health of nodes.
struct Keeper {
    index: Index,
    feed: Feed,
    /// What the times of `checks` are since.
    started: Instant,
    checks: Checks<SocketAddr>,
    how: Settings,
    probes: FuturesUnordered<BoxFuture<'static, Probed>>,
    probe_timeout: Duration,
    zone: Arc<RwLock<Zone>>,
    /// The zone changed and has the serial of before.
    renewal_due: bool,
    /// Everything is known that the zone is made from.
    informed: bool,
    metrics: Arc<Metrics>,
    pages: Arc<Pages>,
    changes: channel::Sender<Option<Record>>,
    /// Nodes with a metric.
    shown: BTreeSet<String>,
    /// Nodes that may not be probed, as far as that was told.
    refused: BTreeMap<String, (IpAddr, Refused)>,
}

impl Keeper {
    fn new(
        config: &Config,
        zone: Arc<RwLock<Zone>>,
        metrics: Arc<Metrics>,
        pages: Arc<Pages>,
        changes: channel::Sender<Option<Record>>,
    ) -> Self {
        Self {
            index: Index::new(config.index.clone()),
            feed: Feed::default(),
            started: Instant::now(),
            checks: Checks::new(config.most_probes),
            how: config.checks.clone(),
            probes: FuturesUnordered::new(),
            probe_timeout: config.probe_timeout,
            zone,
            // The serial of the start is not to be seen: it may be one of the process before.
            renewal_due: true,
            informed: false,
            metrics,
            pages,
            changes,
            shown: BTreeSet::new(),
            refused: BTreeMap::new(),
        }
    }

    async fn keep(
        &mut self,
        mut news: impl futures_util::Stream<Item = News> + Unpin,
        mut curious: mpsc::Receiver<Curious>,
    ) {
        loop {
            let deadline = self.checks.next_deadline().map(|due| self.started + due);
            let renewal = (self.informed && self.renewal_due).then(until_next_second);
            tokio::select! {
                Some(first) = news.next() => {
                    self.take(first);
                    // What is there already is taken in together.
                    for _ in 0..BATCH {
                        let Some(Some(more)) = news.next().now_or_never() else { break };
                        self.take(more);
                    }
                }
                Some((probe, answer)) = self.probes.next() => {
                    self.finish(probe, answer);
                    while let Some(Some((probe, answer))) = self.probes.next().now_or_never() {
                        self.finish(probe, answer);
                    }
                }
                // The client may be gone.
                Some(tell) = curious.recv() => drop(tell.send(self.describe())),
                () = sleep_until(deadline) => {}
                () = sleep(renewal) => {}
            }
            self.settle();
        }
    }

    fn take(&mut self, news: News) {
        if matches!(news, News::Failed(..)) {
            self.metrics.watch_failures.inc();
        }
        self.feed.take(&mut self.index, news);
    }

    fn finish(&mut self, probe: Probe<SocketAddr>, answer: Result<(), String>) {
        let outcome = if answer.is_ok() { "good" } else { "bad" };
        self.metrics
            .probes
            .get_or_create(&Outcome { outcome })
            .inc();
        let why = answer.clone().err().unwrap_or_default();
        let address = probe.target;
        if let Some(healthy) = self
            .checks
            .finish(probe, answer, self.started.elapsed(), fraction())
        {
            tracing::info!(%address, healthy, why, "health changed");
            self.index.set_health(address, healthy);
        }
    }

    /// Does everything that follows from what came in.
    fn settle(&mut self) {
        let patches = self.index.take();
        let nodes_changed = patches
            .iter()
            .any(|patch| matches!(patch, Patch::Shared(..)));
        if !patches.is_empty() {
            let mut zone = self.zone.write().unwrap_or_else(PoisonError::into_inner);
            for patch in patches {
                self.renewal_due |= zone.apply(patch);
            }
            self.metrics
                .names
                .set(i64::try_from(zone.len()).unwrap_or(i64::MAX));
        }
        self.aim();
        self.informed = self.informed || self.feed.is_complete() && self.index.is_informed();
        self.renew();
        if nodes_changed {
            self.count_nodes();
        }
    }

    fn aim(&mut self) {
        let now = self.started.elapsed();
        let probes = self.index.take_probes();
        probes
            .unwanted
            .into_iter()
            .for_each(|address| self.checks.unwant(&address));
        probes
            .wanted
            .into_iter()
            .for_each(|address| self.checks.want(address, self.how.clone(), None, now));
        self.metrics
            .probed
            .set(i64::try_from(self.checks.len()).unwrap_or(i64::MAX));
        let patience = self.probe_timeout;
        while let Some(next) = self.checks.start(now) {
            self.probes.push(
                async move {
                    let answer = probe(next.target, patience).await;
                    (next, answer)
                }
                .boxed(),
            );
        }
    }

    /// A new serial, but no more than one a second: it follows the clock and must not get ahead of
    /// it, nor be one that was there before a restart. A secondary that transferred the zone
    /// between the change and its serial sees the serial change afterwards, and transfers it again.
    fn renew(&mut self) {
        if !self.informed || !self.renewal_due {
            return;
        }
        let now = seconds();
        let mut zone = self.zone.write().unwrap_or_else(PoisonError::into_inner);
        if zone.serial() == now as u32 {
            return;
        }
        zone.renew(now);
        self.renewal_due = false;
        self.metrics.serial.set(i64::from(zone.serial()));
        self.changes.send_replace(Some(zone.soa()));
        if !zone.is_complete() {
            zone.complete();
            self.pages.ready.store(true, Ordering::Relaxed);
            self.metrics.complete.set(1);
            tracing::info!(
                names = zone.len(),
                serial = zone.serial(),
                "the zone is complete"
            );
        }
    }

    fn count_nodes(&mut self) {
        let nodes = self.index.nodes();
        self.tell_refused(&nodes);
        let nobody = i64::from(self.index.nobody_is_fit());
        if self.metrics.nobody_fit.set(nobody) != nobody && nobody == 1 && self.informed {
            tracing::warn!("no node is fit, all are given rather than none");
        }
        for node in &nodes {
            self.metrics
                .node_given
                .get_or_create(&OfNode {
                    node: node.name.clone(),
                })
                .set(i64::from(node.given));
        }
        let now: BTreeSet<String> = nodes.into_iter().map(|node| node.name).collect();
        for node in self.shown.difference(&now) {
            self.metrics
                .node_given
                .remove(&OfNode { node: node.clone() });
        }
        self.shown = now;
    }

    /// Nodes that may not be probed, when that is news.
    fn tell_refused(&mut self, nodes: &[NodeView]) {
        let refused = nodes
            .iter()
            .filter_map(|node| Some((node.name.clone(), node.refused?)));
        let refused: BTreeMap<String, (IpAddr, Refused)> = refused.collect();
        for (node, (address, why)) in &refused {
            if self.refused.get(node) != Some(&(*address, *why)) {
                tracing::warn!(node, %address, "the node is not given, because its address is {why}");
            }
        }
        self.refused = refused;
    }

    /// Describes for people which nodes are given, and why others are not.
    fn describe(&self) -> String {
        let mut text = String::new();
        if self.index.nobody_is_fit() {
            text.push_str("# No node is fit: all are given rather than none.\n");
        }
        let trouble =
            |probe: &SocketAddr| self.checks.trouble(probe).unwrap_or("was not probed yet");
        for node in self.index.nodes() {
            let why = match (node.left_out, node.probe, node.healthy) {
                (Some(reason), _, _) => reason.to_owned(),
                (_, None, _) => match node.refused {
                    Some((address, why)) => format!("{address} is {why}"),
                    None => "has no address to be probed at".to_owned(),
                },
                (_, Some(probe), Some(true)) => format!("{probe} is good"),
                (_, Some(probe), _) => format!("{probe} is bad: {}", trouble(&probe)),
            };
            // Writing to a text cannot fail.
            let _ = writeln!(
                text,
                "{}\t{}\t{why}",
                node.name,
                if node.given { "given" } else { "not given" }
            );
        }
        for (service, probe) in self.index.doubtful() {
            let _ = writeln!(
                text,
                "{}/{}\tnot given\t{probe} is bad: {}",
                service.namespace,
                service.name,
                trouble(&probe)
            );
        }
        text
    }
}

fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn until_next_second() -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Duration::from_secs(1).saturating_sub(Duration::from_nanos(u64::from(now.subsec_nanos())))
        + Duration::from_millis(1)
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => future::pending().await,
    }
}
