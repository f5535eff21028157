//! Runs the controller: watches feed the state, the state feeds the queues, and each Service in
//! turn is taken a step further until it rests. One task owns all state; only requests and calls of
//! the provider are in flight beside it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::error::Error;
use std::future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{BoxStream, FuturesUnordered, SelectAll, Stream, StreamExt, select_all};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use portico_client::error::chain;
use portico_client::reflector::watch;
use portico_client::wait::{Backoff, sleep_until};
use portico_model::key::ObjectKey;
use portico_model::report;
use portico_view::key_of;
use tokio::sync::{mpsc, watch as channel};
use tracing::{debug, info, warn};

use super::events;
use super::metrics::Metrics;
use super::node_pass::NodePass;
use super::service::{Ownership, Surroundings};
use super::state::{Call, Called, Note, OWNER_CHANGED, State, Step, Write};
use crate::Shutdown;
use crate::cluster::{Cluster, all};
use crate::light::LightService;
use crate::provider::{News, Provider, ProviderError, Request};
use crate::queue::{Delays, End, Queue};
use crate::task::AbortOnDrop;

/// How the controller of load balancers works.
#[derive(Clone)]
pub struct Options {
    /// `--cluster-name`
    pub cluster: String,
    /// `--load-balancer-class`
    pub class: Option<String>,
    /// The port at which nodes answer for their health, where policy is `Cluster`.
    pub node_healthz_port: u16,
    /// The feature gate `LoadBalancerIPMode`.
    pub load_balancer_ip_mode: bool,
    /// How many Services are worked on at a time.
    pub concurrency: usize,
    /// How often each load balancer is compared with what it should be.
    pub resync: Duration,
    /// Take every load balancer back, and end when none is left.
    pub release: bool,
    /// How long a Service waits after a failed try, at first and at most.
    pub retry: (Duration, Duration),
    /// The metrics of the controller.
    pub metrics: Arc<Metrics>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster: "kubernetes".to_owned(),
            class: None,
            node_healthz_port: 10256,
            load_balancer_ip_mode: true,
            concurrency: 32,
            resync: Duration::from_secs(600),
            release: false,
            retry: (Duration::from_secs(5), Duration::from_secs(300)),
            metrics: Arc::default(),
        }
    }
}

/// Changes taken in before the next look at answers.
const BATCH: usize = 1000;
/// Changes of nodes within this time are one.
const NODES: Duration = Duration::from_secs(1);
/// How long requests may take to end after the order to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// The time limit for the API server to answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit for a provider to answer.
const CALL: Duration = Duration::from_secs(600);
/// Writes of mere conditions at a time: providers that are slow do not hold them up.
const WRITES: usize = 16;
const WRITE_DELAYS: Delays = Delays {
    first: Duration::from_secs(1),
    last: Duration::from_secs(60),
};
/// The watch has caught up by then.
const CONFLICT: Duration = Duration::from_millis(200);
const FIELD_MANAGER: &str = "portico-balancers";

/// Runs until `shutdown`, or until everything is taken back that was to be; an API server that is away or answers with errors is waited for.
pub async fn run(
    cluster: Cluster,
    provider: Arc<dyn Provider>,
    options: Options,
    mut shutdown: Shutdown,
) {
    info!(
        provider = provider.name(),
        class = options.class,
        "load-balancer controller starts"
    );
    let metrics = Arc::clone(&options.metrics);
    let (notes, noted) = mpsc::channel(1024);
    let sender = tokio::spawn(events::send(
        cluster.client.clone(),
        noted,
        Arc::clone(&metrics),
    ));
    let _guard = AbortOnDrop(sender.abort_handle());
    metrics.lead(true);
    let mut controller = Controller::new(cluster, provider, options, notes);
    tokio::select! {
        () = controller.run() => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    controller.drain().await;
    metrics.lead(false);
    info!("load-balancer controller stopped");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Service,
    Node,
    Slice,
    Report,
}

/// What is done with objects of a kind.
struct Handling<T> {
    key: fn(&T) -> ObjectKey,
    apply: fn(&mut Controller, T),
    delete: fn(&mut Controller, &T),
    retain: fn(&mut Controller, &BTreeSet<ObjectKey>),
}

type Change = Box<dyn FnOnce(&mut Controller) + Send>;

/// Which queue a Service was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Sync,
    Conditions,
}

enum Finished {
    Called(ObjectKey, Call, Duration, Called),
    Wrote(
        ObjectKey,
        Turn,
        &'static str,
        Result<Box<LightService>, WriteError>,
    ),
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("no answer in {TIMEOUT:?}")]
    Timeout,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

struct Controller {
    cluster: Cluster,
    provider: Arc<dyn Provider>,
    options: Options,
    state: State,
    syncs: Queue,
    conditions: Queue,
    /// Due to be synced, as soon as their conditions are written.
    waiting: HashSet<ObjectKey>,
    /// Kinds whose first list is not complete: until then nothing may be concluded from what is
    /// missing.
    unlisted: BTreeSet<Kind>,
    listings: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    failing: BTreeSet<Kind>,
    /// When the changes of nodes so far are to count.
    nodes_due: Option<Instant>,
    node_pass: NodePass,
    news: News,
    notes: mpsc::Sender<Note>,
    requests: FuturesUnordered<BoxFuture<'static, Finished>>,
}

impl Controller {
    fn new(
        cluster: Cluster,
        provider: Arc<dyn Provider>,
        options: Options,
        notes: mpsc::Sender<Note>,
    ) -> Self {
        let surroundings = Surroundings {
            cluster: options.cluster.clone(),
            node_healthz_port: options.node_healthz_port,
            load_balancer_ip_mode: options.load_balancer_ip_mode,
            ownership: Ownership::new(provider.name(), options.class.clone()),
            release: options.release,
        };
        let delays = Delays {
            first: options.retry.0,
            last: options.retry.1,
        };
        Self {
            state: State::new(
                surroundings,
                provider.name(),
                provider.abilities(),
                options.resync,
            ),
            syncs: Queue::new(options.concurrency, delays),
            conditions: Queue::new(WRITES, WRITE_DELAYS),
            waiting: HashSet::new(),
            unlisted: BTreeSet::from([Kind::Service, Kind::Node, Kind::Slice, Kind::Report]),
            listings: BTreeMap::new(),
            failing: BTreeSet::new(),
            nodes_due: None,
            node_pass: NodePass::default(),
            news: provider
                .news()
                .map(|news| *news.borrow())
                .unwrap_or_default(),
            notes,
            requests: FuturesUnordered::new(),
            cluster,
            provider,
            options,
        }
    }

    async fn run(&mut self) {
        let mut changes = self.watches();
        let mut news = self.provider.news();
        loop {
            self.start_work();
            if self.has_released_all() {
                if tokio::time::timeout(CALL, self.provider.settle())
                    .await
                    .is_err()
                {
                    warn!("the provider is not done; the next controller goes on with it");
                }
                return;
            }
            let deadline = self.next_deadline();
            tokio::select! {
                Some(change) = changes.next() => {
                    change(self);
                    // What is there already is taken in together: one look at a Service for many
                    // changes.
                    for _ in 0..BATCH {
                        let Some(Some(change)) = changes.next().now_or_never() else { break };
                        change(self);
                    }
                }
                Some(finished) = self.requests.next() => self.finish(finished),
                told = next_news(&mut news) => self.hear_news(told),
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn watches(&self) -> SelectAll<BoxStream<'static, Change>> {
        let services = Handling {
            key: |service: &Arc<LightService>| key_of(service.meta()),
            apply: |this, service| this.state.apply_service(&service.0, Instant::now()),
            delete: |this, service| this.state.delete_service(&key_of(service.meta())),
            retain: |this, listed| this.state.retain_services(listed),
        };
        let nodes = Handling {
            key: |node: &Arc<Node>| key_of(node.meta()),
            apply: |this, node| {
                let changed = this.state.apply_node(&node);
                this.nodes_changed(changed);
            },
            delete: |this, node| {
                let changed = this
                    .state
                    .delete_node(node.metadata.name.as_deref().unwrap_or_default());
                this.nodes_changed(changed);
            },
            retain: |this, listed| {
                let changed = this.state.retain_nodes(listed);
                this.nodes_changed(changed);
            },
        };
        let slices = Handling {
            key: |slice: &Arc<EndpointSlice>| key_of(slice.meta()),
            apply: |this, slice| this.state.apply_slice(&slice),
            delete: |this, slice| this.state.delete_slice(&key_of(&slice.metadata)),
            retain: |this, listed| this.state.retain_slices(listed),
        };
        let reports = Handling {
            key: |lease: &Lease| key_of(lease.meta()),
            apply: |this, lease| {
                this.state
                    .apply_report(&lease, Instant::now(), Timestamp::now());
            },
            delete: |this, lease| {
                this.state.delete_report(
                    lease.metadata.name.as_deref().unwrap_or_default(),
                    Instant::now(),
                );
            },
            retain: |this, listed| this.state.retain_reports(listed, Instant::now()),
        };
        let cluster = &self.cluster;
        let leases = watch(
            Api::namespaced(cluster.client.clone(), report::NAMESPACE),
            watcher::Config::default().labels(report::LABEL),
            Backoff::of_controllers(),
        );
        select_all([
            changes(cluster.services.subscribe(all), Kind::Service, services),
            changes(cluster.nodes.subscribe(all), Kind::Node, nodes),
            changes(cluster.slices.subscribe(all), Kind::Slice, slices),
            changes(leases, Kind::Report, reports),
        ])
    }

    fn feed<T>(&mut self, kind: Kind, event: Event<T>, handling: &Handling<T>) {
        if !matches!(event, Event::Init) && self.failing.remove(&kind) {
            info!(?kind, "watch works again");
        }
        match event {
            Event::Init => _ = self.listings.insert(kind, BTreeSet::new()),
            Event::InitApply(object) => {
                self.listings
                    .entry(kind)
                    .or_default()
                    .insert((handling.key)(&object));
                (handling.apply)(self, object);
            }
            Event::Apply(object) => (handling.apply)(self, object),
            Event::Delete(object) => (handling.delete)(self, &object),
            Event::InitDone => {
                let listed = self.listings.remove(&kind).unwrap_or_default();
                (handling.retain)(self, &listed);
                if self.unlisted.remove(&kind) && kind == Kind::Node {
                    self.nodes_due = Some(Instant::now());
                }
                debug!(?kind, count = listed.len(), "listed");
            }
        }
    }

    /// An outage is reported once, not at every try.
    fn watch_failed(&mut self, kind: Kind, error: &(dyn Error + 'static)) {
        match self.failing.insert(kind) {
            true => warn!(?kind, error = %chain(error), "watch failed, trying again"),
            false => debug!(?kind, error = %chain(error), "watch failed again"),
        }
        // Without reports everything else goes on.
        if kind == Kind::Report {
            self.unlisted.remove(&kind);
        }
    }

    fn nodes_changed(&mut self, changed: bool) {
        if changed && self.nodes_due.is_none() {
            self.nodes_due = Some(Instant::now() + NODES);
        }
    }

    fn hear_news(&mut self, news: News) {
        let before = std::mem::replace(&mut self.news, news);
        if before.changed != news.changed {
            self.state.ensure_all();
        } else if before.freed != news.freed {
            self.state.freed();
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let deadlines = [self.nodes_due, self.state.next_deadline(now)];
        let queues = [self.syncs.next_deadline(), self.conditions.next_deadline()];
        deadlines.into_iter().chain(queues).flatten().min()
    }

    fn start_work(&mut self) {
        if !self.unlisted.is_empty() {
            return;
        }
        let now = Instant::now();
        if self.nodes_due.is_some_and(|due| due <= now) {
            self.nodes_due = None;
            let outdated = self.state.settle_nodes(now);
            self.node_pass.begin(outdated, now);
        }
        self.state.tick(now);
        self.queue_touched();
        while let Some(key) = self.syncs.start(now) {
            self.begin(key, now);
        }
        while let Some(key) = self.conditions.start(now) {
            match self.syncs.is_active(&key) {
                // They are looked at when that is done.
                true => _ = self.conditions.finish(key, End::Done, now),
                false => {
                    self.state.begin(&key);
                    self.write_conditions(key);
                }
            }
        }
        self.options.metrics.sizes(
            self.state.services(),
            self.syncs.len(),
            self.syncs.failing(),
        );
    }

    fn has_released_all(&self) -> bool {
        self.options.release && self.unlisted.is_empty() && self.state.services() == 0
    }

    fn begin(&mut self, key: ObjectKey, now: Instant) {
        if self.conditions.is_active(&key) {
            self.syncs.finish(key.clone(), End::Again(CONFLICT), now);
            self.waiting.insert(key);
            return;
        }
        self.options.metrics.synced();
        self.state.begin(&key);
        self.advance(key);
    }

    fn queue_touched(&mut self) {
        let touched = self.state.take_touched();
        for key in touched.gone {
            self.syncs.forget(&key);
            self.conditions.forget(&key);
            self.passed(&key);
        }
        touched
            .syncs
            .into_iter()
            .for_each(|key| self.syncs.add(key));
        touched
            .conditions
            .into_iter()
            .for_each(|key| self.conditions.add(key));
    }

    /// Take a Service one step further.
    fn advance(&mut self, key: ObjectKey) {
        let now = Instant::now();
        let step = self.state.next(&key, now, Timestamp::now());
        self.tell();
        match step {
            Step::Write(write) => self.write(key, Turn::Sync, write),
            Step::Call(call, request) => self.call(key, call, *request),
            Step::Rest(end) => {
                debug!(service = %key, ?end, "rests");
                self.passed(&key);
                let check = self.state.check_at(&key);
                self.syncs.finish(key.clone(), end, now);
                if let Some(check) = check {
                    self.syncs.add_at(key.clone(), check);
                }
                self.conditions.add(key);
            }
        }
    }

    /// Notes that nothing more is done about a Service for the moment.
    fn passed(&mut self, key: &ObjectKey) {
        if let Some(took) = self.node_pass.done(key, Instant::now()) {
            self.options.metrics.node_pass(took);
        }
    }

    fn write_conditions(&mut self, key: ObjectKey) {
        let now = Instant::now();
        let (step, again) = self.state.next_conditions(&key, now, Timestamp::now());
        self.tell();
        match step {
            Step::Write(write) => self.write(key, Turn::Conditions, write),
            Step::Call(..) => {}
            Step::Rest(end) => {
                self.conditions.finish(key.clone(), end, now);
                if let Some(again) = again {
                    self.conditions.add_at(key.clone(), again);
                }
                if self.waiting.remove(&key) {
                    self.syncs.add(key);
                }
            }
        }
    }

    fn write(&mut self, key: ObjectKey, turn: Turn, write: Write) {
        let api: Api<LightService> = Api::namespaced(self.cluster.client.clone(), &key.namespace);
        let request = async move {
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::Strategic(&write.patch);
            let answer =
                tokio::time::timeout(TIMEOUT, api.patch_status(&key.name, &params, &patch)).await;
            let answer = match answer {
                Ok(answer) => answer.map(Box::new).map_err(WriteError::from),
                Err(_) => Err(WriteError::Timeout),
            };
            Finished::Wrote(key, turn, write.what, answer)
        };
        self.requests.push(request.boxed());
    }

    fn call(&mut self, key: ObjectKey, call: Call, request: Request) {
        let provider = Arc::clone(&self.provider);
        let request = async move {
            let began = Instant::now();
            let called = tokio::time::timeout(CALL, ask(&*provider, call, &request)).await;
            let called = called.unwrap_or_else(|_| {
                Err(ProviderError::Failed(format!(
                    "no answer in {} s",
                    CALL.as_secs()
                )))
            });
            Finished::Called(key, call, began.elapsed(), called)
        };
        self.requests.push(request.boxed());
    }

    fn finish(&mut self, finished: Finished) {
        match finished {
            Finished::Called(key, call, took, called) => {
                let failed = called.as_ref().err();
                debug!(service = %key, ?call, ?took, ?failed, "called");
                self.options.metrics.called(call, took, failed.is_some());
                self.state.called(&key, call, called, Instant::now());
                self.advance(key);
            }
            Finished::Wrote(key, turn, what, answer) => {
                self.options.metrics.wrote(what, answer.is_err());
                match answer {
                    Ok(service) => self.state.apply_service(&service.0, Instant::now()),
                    Err(error) => self.state.write_failed(&key, after(&error, &key, what)),
                }
                match turn {
                    Turn::Sync => self.advance(key),
                    Turn::Conditions => self.write_conditions(key),
                }
            }
        }
    }

    fn tell(&mut self) {
        for note in self.state.take_notes() {
            if note.reason == OWNER_CHANGED {
                self.options.metrics.moves.inc();
                info!(service = %note.key, "{}", note.message);
            }
            match note.warning {
                true => warn!(service = %note.key, reason = note.reason, "{}", note.message),
                false => debug!(service = %note.key, reason = note.reason, "{}", note.message),
            }
            if self.notes.try_send(note).is_err() {
                self.options.metrics.dropped_events.inc();
            }
        }
    }

    /// Lets requests that are under way end: their answer would otherwise be unknown.
    async fn drain(&mut self) {
        let ended = async { while self.requests.next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, ended).await.is_err() {
            warn!(
                count = self.requests.len(),
                "gave up waiting for what was under way"
            );
        }
    }
}

async fn ask(provider: &dyn Provider, call: Call, request: &Request) -> Called {
    match call {
        Call::Ensure => provider.ensure(request).await.map(Some),
        Call::UpdateNodes => provider.update_nodes(request).await.map(|()| None),
        Call::Resync => {
            provider.forget(request);
            provider.ensure(request).await.map(Some)
        }
        Call::Delete | Call::DeleteOrphan => provider.delete(request).await.map(|()| None),
    }
}

/// How to go on after a write that failed.
fn after(error: &WriteError, key: &ObjectKey, what: &str) -> End {
    let code = match error {
        WriteError::Api(kube::Error::Api(status)) => status.code,
        WriteError::Api(_) | WriteError::Timeout => 0,
    };
    match code {
        // The watch will say so.
        404 => End::Done,
        409 => {
            debug!(service = %key, what, "changed by somebody else");
            End::Again(CONFLICT)
        }
        _ => {
            warn!(service = %key, what, error = %chain(error), "cannot write");
            End::Failed
        }
    }
}

fn changes<T, E>(
    events: impl Stream<Item = Result<Event<T>, E>> + Send + 'static,
    kind: Kind,
    handling: Handling<T>,
) -> BoxStream<'static, Change>
where
    T: Send + 'static,
    E: Error + Send + 'static,
{
    let handling = Arc::new(handling);
    let change = move |event: Result<Event<T>, E>| -> Change {
        let handling = Arc::clone(&handling);
        Box::new(move |controller| match event {
            Ok(event) => controller.feed(kind, event, &handling),
            Err(error) => controller.watch_failed(kind, &error),
        })
    };
    events.map(change).boxed()
}

async fn next_news(news: &mut Option<channel::Receiver<News>>) -> News {
    if let Some(receiver) = news
        && receiver.changed().await.is_ok()
    {
        return *receiver.borrow_and_update();
    }
    future::pending().await
}
