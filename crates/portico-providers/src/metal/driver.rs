//! The one task that owns the allocations: watches feed it, requests are decided and written together,
//! pools get their status.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, SelectAll, select_all};
use futures_util::{FutureExt, Stream, StreamExt};
use ipnet::IpNet;
use jiff::{Timestamp, Unit};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use portico_client::error::chain;
use portico_client::reflector::{Reflector, Watched, watch};
use portico_client::wait::Backoff;
use tokio::sync::{mpsc, oneshot, watch as channel};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::allocate::{Addresses, Allocator, Ask};
use super::blocks::Block;
use super::pools::PoolObject;
use super::status::PoolStatus;
use super::store::{BlockObject, Cluster, PoolApiObject, known};
use crate::{News, ProviderError};
use portico_controller::Shutdown;
use portico_controller::cluster::all;
use portico_controller::light::LightService;

/// Requests that wait, and changes taken in, before the next step.
const BATCH: usize = 1024;
/// How long a request waits for the first lists.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two writes of the status of pools, and before something that failed is tried
/// again.
const PAUSE: Duration = Duration::from_secs(1);

/// When a whole pool moves, not every Service gets an Event: addresses come first.
const MOST_EVENTS: usize = 20;

pub(super) struct Command {
    pub ask: Ask,
    pub reply: oneshot::Sender<Result<Addresses, ProviderError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pools,
    Blocks,
    Namespaces,
    Services,
}

enum Change {
    Pool(Box<Event<PoolApiObject>>),
    Block(Event<BlockObject>),
    Namespace(Event<Namespace>),
    Service(Event<Arc<LightService>>),
    Failed(Kind, String),
}

pub(super) struct Driver {
    cluster: Cluster,
    services: Reflector<LightService>,
    allocator: Allocator<Cluster>,
    commands: mpsc::Receiver<Command>,
    news: channel::Sender<News>,
    /// Whether every claim is what the Services say.
    settled: channel::Sender<bool>,
    recorder: Recorder,
    pending: Vec<Command>,
    pending_since: Instant,
    /// Kinds whose first list is not complete: until then nothing may be concluded from what is
    /// missing.
    unlisted: BTreeMap<Kind, String>,
    /// What a list that is under way has shown.
    listed: BTreeMap<Kind, BTreeSet<String>>,
    /// As the API has them.
    statuses: BTreeMap<String, PoolStatus>,
    status_due: Option<Instant>,
    retry: Option<Instant>,
}

impl Driver {
    pub(super) fn new(
        cluster: Cluster,
        services: Reflector<LightService>,
        commands: mpsc::Receiver<Command>,
        news: channel::Sender<News>,
        settled: channel::Sender<bool>,
    ) -> Self {
        let kinds = [Kind::Pools, Kind::Blocks, Kind::Namespaces, Kind::Services];
        let reporter = Reporter {
            controller: "service-controller".into(),
            instance: None,
        };
        Self {
            recorder: Recorder::new(cluster.client().clone(), reporter),
            allocator: Allocator::new(cluster.clone()),
            cluster,
            services,
            commands,
            news,
            settled,
            pending: Vec::new(),
            pending_since: Instant::now(),
            unlisted: kinds
                .into_iter()
                .map(|kind| (kind, String::new()))
                .collect(),
            listed: BTreeMap::new(),
            statuses: BTreeMap::new(),
            status_due: None,
            retry: None,
        }
    }

    pub(super) async fn run(mut self, mut shutdown: Shutdown) {
        let mut changes = self.watches();
        loop {
            let deadline = self.deadline();
            tokio::select! {
                Some(change) = changes.next() => {
                    self.take(change);
                    for _ in 0..BATCH {
                        let Some(Some(change)) = changes.next().now_or_never() else { break };
                        self.take(change);
                    }
                }
                command = self.commands.recv(), if self.pending.len() < BATCH => match command {
                    Some(command) => self.wait(command),
                    None => break,
                },
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
            while self.pending.len() < BATCH
                && let Ok(command) = self.commands.try_recv()
            {
                self.wait(command);
            }
            self.step().await;
        }
    }

    fn wait(&mut self, command: Command) {
        if self.pending.is_empty() {
            self.pending_since = Instant::now();
        }
        self.pending.push(command);
    }

    fn deadline(&self) -> Option<Instant> {
        let ready = self.unlisted.is_empty();
        let impatient = (!ready && !self.pending.is_empty()).then(|| self.pending_since + PATIENCE);
        let due = if ready {
            self.status_due.into_iter().chain(self.retry).min()
        } else {
            None
        };
        impatient.into_iter().chain(due).min()
    }

    async fn step(&mut self) {
        if !self.unlisted.is_empty() {
            if self.pending_since.elapsed() >= PATIENCE {
                self.refuse_pending();
            }
            return;
        }
        self.retry = None;
        if !self.pending.is_empty() || !self.allocator.is_idle() {
            // Before the answers are out: what they leave to do is known below.
            self.settled.send_replace(false);
            let (asks, replies): (Vec<Ask>, Vec<_>) = self
                .pending
                .drain(..)
                .map(|command| (command.ask, command.reply))
                .unzip();
            let answers = self.allocator.work(&asks).await;
            let mut events = MOST_EVENTS;
            for ((ask, reply), answer) in asks.iter().zip(replies).zip(answers) {
                self.tell(ask, &answer, &mut events).await;
                let _ = reply.send(answer);
            }
            self.retry = (!self.allocator.is_idle()).then(|| Instant::now() + PAUSE);
        }
        let settled = self.retry.is_none()
            && self.allocator.is_idle()
            && !self.allocator.allocations.some_leave();
        self.settled.send_if_modified(|before| {
            let changes = *before != settled;
            *before = settled;
            changes
        });
        self.spread_news();
        self.write_statuses().await;
    }

    fn refuse_pending(&mut self) {
        let missing: Vec<String> = self
            .unlisted
            .iter()
            .map(|(kind, error)| format!("{kind:?} {error}").trim().to_owned())
            .collect();
        let missing = missing.join(", ");
        for command in self.pending.drain(..) {
            let message = format!(
                "not listed yet: {missing} (are the custom resource definitions installed?)"
            );
            let _ = command.reply.send(Err(ProviderError::Failed(message)));
        }
    }

    /// An address that a Service loses is worth an Event.
    async fn tell(&self, ask: &Ask, answer: &Result<Addresses, ProviderError>, events: &mut usize) {
        let (
            Ask::Ensure(desired),
            Ok(Addresses {
                addresses,
                given_up,
            }),
        ) = (ask, answer)
        else {
            return;
        };
        for (address, why) in given_up {
            let note = format!("{address} is given up for {addresses:?}: {why}");
            info!(service = %desired.service, "{note}");
            let Some(left) = events.checked_sub(1) else {
                continue;
            };
            *events = left;
            let event = KubeEvent {
                type_: EventType::Warning,
                reason: "AddressMoved".into(),
                note: Some(note),
                action: "Allocate".into(),
                secondary: None,
            };
            let service = ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Service".into()),
                namespace: Some(desired.service.namespace.clone()),
                name: Some(desired.service.name.clone()),
                uid: Some(desired.service.uid.clone()),
                ..ObjectReference::default()
            };
            if let Ok(Err(error)) = timeout(PAUSE, self.recorder.publish(&event, &service)).await {
                debug!(%error, "cannot write an Event");
            }
        }
    }

    fn spread_news(&mut self) {
        let (freed, changed) = self.allocator.allocations.take_news();
        if freed || changed {
            self.news.send_modify(|news| {
                news.freed += u64::from(freed);
                news.changed += u64::from(changed);
            });
        }
    }

    /// Rarely: what changes in between is written together.
    async fn write_statuses(&mut self) {
        let now = Timestamp::now()
            .round(Unit::Second)
            .unwrap_or_default()
            .to_string();
        let wanted = self.allocator.allocations.pools().iter().map(|pool| {
            let old = self.statuses.get(&pool.name).cloned().unwrap_or_default();
            (pool.name.clone(), PoolStatus::new(pool, &old, &now), old)
        });
        let changed: Vec<(String, PoolStatus)> = wanted
            .filter(|(_, new, old)| new != old)
            .map(|(name, new, _)| (name, new))
            .collect();
        match (changed.is_empty(), self.status_due) {
            (true, _) => self.status_due = None,
            (false, None) => self.status_due = Some(Instant::now() + PAUSE),
            (false, Some(due)) if due > Instant::now() => {}
            (false, Some(_)) => {
                self.status_due = Some(Instant::now() + PAUSE);
                for (name, status) in changed {
                    self.write_status(name, status).await;
                }
            }
        }
    }

    async fn write_status(&mut self, name: String, status: PoolStatus) {
        let patch = Patch::Merge(serde_json::json!({ "status": status }));
        let pools = self.cluster.pools();
        match timeout(
            PATIENCE,
            pools.patch_status(&name, &PatchParams::default(), &patch),
        )
        .await
        {
            Ok(Ok(_)) => drop(self.statuses.insert(name, status)),
            Ok(Err(error)) => debug!(pool = name, %error, "cannot write the status of a pool"),
            Err(_) => debug!(pool = name, "cannot write the status of a pool: no answer"),
        }
    }

    fn watches(&self) -> SelectAll<BoxStream<'static, Change>> {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client().clone());
        select_all([
            changes(own(self.cluster.pools()), Kind::Pools, |event| {
                Change::Pool(Box::new(event))
            }),
            changes(own(self.cluster.blocks()), Kind::Blocks, Change::Block),
            changes(own(namespaces), Kind::Namespaces, Change::Namespace),
            changes(
                self.services.subscribe(all),
                Kind::Services,
                Change::Service,
            ),
        ])
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Pool(event) => self.feed(
                Kind::Pools,
                *event,
                ResourceExt::name_any,
                Self::pool,
                Self::no_pool,
            ),
            Change::Block(event) => self.feed(
                Kind::Blocks,
                event,
                ResourceExt::name_any,
                Self::block,
                Self::no_block,
            ),
            Change::Namespace(event) => {
                self.feed(
                    Kind::Namespaces,
                    event,
                    ResourceExt::name_any,
                    Self::namespace,
                    |driver, namespace| {
                        driver
                            .allocator
                            .allocations
                            .remove_namespace(&namespace.name_any());
                    },
                );
            }
            Change::Service(event) => {
                let uid = |service: &Arc<LightService>| service.uid().unwrap_or_default();
                self.feed(
                    Kind::Services,
                    event,
                    uid,
                    Self::service,
                    |driver, service| {
                        driver
                            .allocator
                            .allocations
                            .service_gone(&service.uid().unwrap_or_default());
                    },
                );
            }
            Change::Failed(kind, error) => match self.unlisted.get_mut(&kind) {
                Some(trouble) => *trouble = error,
                None => debug!(?kind, error, "watch failed, trying again"),
            },
        }
    }

    fn feed<K>(
        &mut self,
        kind: Kind,
        event: Event<K>,
        key: fn(&K) -> String,
        apply: fn(&mut Self, K),
        delete: fn(&mut Self, K),
    ) {
        match event {
            Event::Init => drop(self.listed.insert(kind, BTreeSet::new())),
            Event::InitApply(object) => {
                self.listed.entry(kind).or_default().insert(key(&object));
                apply(self, object);
            }
            Event::Apply(object) => apply(self, object),
            Event::Delete(object) => delete(self, object),
            Event::InitDone => {
                let listed = self.listed.remove(&kind).unwrap_or_default();
                self.forget_all_but(kind, &listed);
                if self.unlisted.remove(&kind).is_some() && self.unlisted.is_empty() {
                    info!("address pools are known");
                    // No call has had an answer yet that the lists could change.
                    self.allocator.allocations.take_news();
                }
            }
        }
    }

    /// What a new list does not show is gone.
    fn forget_all_but(&mut self, kind: Kind, listed: &BTreeSet<String>) {
        let allocations = &mut self.allocator.allocations;
        let gone = |names: Vec<String>| names.into_iter().filter(|name| !listed.contains(name));
        match kind {
            Kind::Pools => {
                gone(allocations.pool_names()).for_each(|name| allocations.remove_pool(&name))
            }
            Kind::Namespaces => gone(allocations.namespace_names())
                .for_each(|name| allocations.remove_namespace(&name)),
            Kind::Services => {
                gone(allocations.known_services()).for_each(|uid| allocations.service_gone(&uid))
            }
            Kind::Blocks => {
                let networks = allocations.networks().into_iter();
                let gone = networks.filter(|network| {
                    !listed.contains(&portico_model::pools::block_name(*network))
                });
                gone.for_each(|network| allocations.lose_block(network));
            }
        }
    }

    fn pool(&mut self, pool: PoolApiObject) {
        let name = pool.name_any();
        self.statuses
            .insert(name.clone(), pool.status.unwrap_or_default());
        let created = pool
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0.as_second());
        self.allocator.allocations.apply_pool(PoolObject {
            name,
            generation: pool.metadata.generation.unwrap_or_default(),
            created: created.unwrap_or(i64::MAX),
            spec: pool.spec,
        });
    }

    fn no_pool(&mut self, pool: PoolApiObject) {
        self.statuses.remove(&pool.name_any());
        self.allocator.allocations.remove_pool(&pool.name_any());
    }

    fn block(&mut self, block: BlockObject) {
        let Some((network, version)) = identify(&block) else {
            return;
        };
        let allocations = &mut self.allocator.allocations;
        if allocations
            .block(network)
            .is_none_or(|own| own.is_older_than(&version))
        {
            allocations.replace_block(network, Block::new(network, Some(version), &block.spec));
        }
    }

    fn no_block(&mut self, block: BlockObject) {
        let Some((network, version)) = identify(&block) else {
            return;
        };
        let allocations = &mut self.allocator.allocations;
        let is_it = allocations.block(network).is_some_and(|own| {
            own.version.as_deref() == Some(version.as_str())
                || own.version.is_some() && own.is_older_than(&version)
        });
        if is_it {
            allocations.lose_block(network);
        }
    }

    fn namespace(&mut self, namespace: Namespace) {
        let labels = namespace.metadata.labels.clone().unwrap_or_default();
        self.allocator
            .allocations
            .apply_namespace(&namespace.name_any(), labels);
    }

    fn service(&mut self, service: Arc<LightService>) {
        self.allocator.allocations.service_seen(known(&service));
    }
}

/// The network of a block, and its version. `None` for one without a valid network.
fn identify(block: &BlockObject) -> Option<(IpNet, String)> {
    let network: IpNet = block.spec.cidr.parse().ok()?;
    if portico_model::pools::block_name(network) != block.name_any() {
        warn!(
            block = block.name_any(),
            "an AddressBlock has not the name of its network, and is ignored"
        );
        return None;
    }
    Some((network, block.metadata.resource_version.clone()?))
}

/// Of a kind that nothing else in the process follows.
fn own<K: Watched>(api: Api<K>) -> BoxStream<'static, watcher::Result<Event<K>>> {
    watch(api, watcher::Config::default(), Backoff::of_controllers())
}

fn changes<T, E>(
    events: impl Stream<Item = Result<Event<T>, E>> + Send + 'static,
    kind: Kind,
    change: fn(Event<T>) -> Change,
) -> BoxStream<'static, Change>
where
    T: Send + 'static,
    E: Error + Send + 'static,
{
    events
        .map(move |event| event.map_or_else(|error| Change::Failed(kind, chain(&error)), change))
        .boxed()
}
