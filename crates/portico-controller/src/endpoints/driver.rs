//! Runs the controller: watches feed the index, the index feeds the queue, and each Service in turn
//! is planned and written. One task owns all state; only requests are in flight beside it.

use std::{
    collections::BTreeSet,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::{
    Stream, StreamExt,
    future::{BoxFuture, FutureExt},
    stream::{BoxStream, FuturesUnordered, SelectAll, select_all},
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api, Client, Resource,
    runtime::watcher::{self, Event},
};
use portico_client::{
    error::chain,
    reflector::{self, Watched},
    wait::{Backoff, sleep_until},
};
use tracing::{debug, info, warn};

use super::{
    EndpointsPlan, LABEL_SLICE_MANAGED_BY, ObjectKey, SLICE_MANAGER,
    apply::{Applied, ApplyError, Written, apply},
    cache::Cache,
    index::{Index, Kind},
    legacy::plan_endpoints,
    plan::plan,
    trigger::TriggerTimes,
};
use crate::{
    Shutdown,
    cluster::{Cluster, all},
    queue::{Delays, End, Queue},
};

/// How the controller of EndpointSlices works.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most endpoints in one slice.
    pub max_endpoints_per_slice: usize,
    /// Also keep the older Endpoints objects.
    pub write_endpoints: bool,
    /// How many Services are written at a time.
    pub concurrency: usize,
    /// What the controller counts.
    pub counters: Arc<Counters>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_endpoints_per_slice: 100,
            write_endpoints: true,
            concurrency: 16,
            counters: Arc::default(),
        }
    }
}

/// What the controller has done since it was started.
#[derive(Debug, Default)]
pub struct Counters {
    /// Plans made, also those that found nothing to do.
    pub syncs: AtomicU64,
    /// Slices and Endpoints that were created.
    pub creates: AtomicU64,
    /// Slices and Endpoints that were updated.
    pub updates: AtomicU64,
    /// Slices and Endpoints that were deleted.
    pub deletes: AtomicU64,
    /// Writes that were refused because the object had changed.
    pub conflicts: AtomicU64,
    /// Writes that failed otherwise.
    pub errors: AtomicU64,
}

/// Changes taken in before the next look at answers to requests.
const BATCH: usize = 1000;

/// A conflict is over when the watch has caught up, which takes milliseconds.
const DELAYS: Delays = Delays {
    first: Duration::from_millis(10),
    last: Duration::from_secs(60),
};

/// How long requests may take to end after the order to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs until `shutdown`; an API server that is away or answers with errors is waited for.
pub async fn run(cluster: Cluster, options: Options, mut shutdown: Shutdown) {
    info!(
        endpoints = options.write_endpoints,
        max = options.max_endpoints_per_slice,
        "endpoint controller starts"
    );
    let mut controller = Controller::new(cluster, options);
    tokio::select! {
        () = controller.run() => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    controller.drain().await;
    info!("endpoint controller stopped");
}

type Change = Box<dyn FnOnce(&mut Controller) + Send>;

struct Controller {
    cluster: Cluster,
    options: Options,
    index: Index,
    queue: Queue,
    trigger_times: TriggerTimes,
    /// Kinds whose first list is not complete: until then nothing may be concluded from what is
    /// missing.
    unlisted: BTreeSet<Kind>,
    failing: BTreeSet<Kind>,
    requests: FuturesUnordered<BoxFuture<'static, Finished>>,
}

struct Finished {
    key: ObjectKey,
    started: Instant,
    epochs: (u64, u64),
    applied: Applied,
}

impl Controller {
    fn new(cluster: Cluster, options: Options) -> Self {
        let mut unlisted =
            BTreeSet::from([Kind::Service, Kind::Pod, Kind::Node, Kind::EndpointSlice]);
        unlisted.extend(options.write_endpoints.then_some(Kind::Endpoints));
        Self {
            queue: Queue::new(options.concurrency, DELAYS),
            index: Index::default(),
            trigger_times: TriggerTimes::default(),
            unlisted,
            failing: BTreeSet::new(),
            requests: FuturesUnordered::new(),
            cluster,
            options,
        }
    }

    async fn run(&mut self) {
        let mut changes = self.watches();
        loop {
            self.start_work();
            let deadline = self.queue.next_deadline();
            tokio::select! {
                Some(change) = changes.next() => {
                    change(self);
                    // What is there already is taken in together: one plan for many changes.
                    for _ in 0..BATCH {
                        let Some(Some(change)) = changes.next().now_or_never() else { break };
                        change(self);
                    }
                }
                Some(finished) = self.requests.next() => self.finish(finished),
                () = sleep_until(deadline) => {}
            }
        }
    }

    fn watches(&self) -> SelectAll<BoxStream<'static, Change>> {
        let cluster = &self.cluster;
        let mut watches = vec![
            changes(
                Kind::Service,
                cluster.services.subscribe(all),
                Index::apply_service,
                |index, service| index.delete_service(&service.0),
            ),
            changes(
                Kind::Pod,
                watch_all(&cluster.client),
                |index, pod| index.apply_pod(&pod),
                Index::delete_pod,
            ),
            changes(
                Kind::Node,
                cluster.nodes.subscribe(all),
                |index, node| index.apply_node(&node),
                |index, node| index.delete_node(node),
            ),
            changes(
                Kind::EndpointSlice,
                cluster.slices.subscribe(is_own),
                |index, slice| index.apply_slice(slice),
                |index, slice| index.delete_slice(slice),
            ),
        ];
        if self.options.write_endpoints {
            watches.push(changes(
                Kind::Endpoints,
                watch_all(&cluster.client),
                Index::apply_endpoints,
                Index::delete_endpoints,
            ));
        }
        select_all(watches)
    }

    fn feed<K>(
        &mut self,
        kind: Kind,
        event: Event<K>,
        apply: fn(&mut Index, K),
        delete: fn(&mut Index, &K),
    ) {
        if !matches!(event, Event::Init) && self.failing.remove(&kind) {
            info!(?kind, "watch works again");
        }
        match event {
            Event::Init => self.index.begin_list(kind),
            Event::InitApply(object) | Event::Apply(object) => apply(&mut self.index, object),
            Event::Delete(object) => delete(&mut self.index, &object),
            Event::InitDone => {
                self.index.finish_list(kind);
                self.unlisted.remove(&kind);
                debug!(?kind, "listed");
            }
        }
    }

    /// An outage is reported once, not at every try.
    fn watch_failed(&mut self, kind: Kind, error: &(dyn Error + 'static)) {
        match self.failing.insert(kind) {
            true => warn!(?kind, error = %chain(error), "watch failed, trying again"),
            false => debug!(?kind, error = %chain(error), "watch failed again"),
        }
    }

    fn start_work(&mut self) {
        for key in self.index.take_touched() {
            self.queue.add(key);
        }
        while self.unlisted.is_empty()
            && let Some(key) = self.queue.start(Instant::now())
        {
            self.sync(key);
        }
    }

    fn sync(&mut self, key: ObjectKey) {
        let started = Instant::now();
        self.options.counters.syncs.fetch_add(1, Relaxed);
        let snapshot = self.index.snapshot(&key);
        let trigger_time = self.trigger_times.look(&key, &snapshot);
        let slices = plan(
            &snapshot,
            self.options.max_endpoints_per_slice,
            trigger_time,
        );
        let endpoints = match self.options.write_endpoints {
            true => plan_endpoints(&snapshot, trigger_time),
            false => EndpointsPlan::Keep,
        };
        if slices.is_empty() && endpoints == EndpointsPlan::Keep {
            self.queue.finish(key, End::Done, started);
            return;
        }
        let epochs = (self.index.slices.epoch(), self.index.endpoints.epoch());
        let client = self.cluster.client.clone();
        let request = async move {
            let applied = apply(client, &key.namespace, slices, endpoints).await;
            Finished {
                key,
                started,
                epochs,
                applied,
            }
        };
        self.requests.push(request.boxed());
    }

    fn finish(&mut self, finished: Finished) {
        let Finished {
            key,
            started,
            epochs,
            applied,
        } = finished;
        let Applied {
            slices,
            endpoints,
            error,
        } = applied;
        debug!(service = %key, slices = slices.len(), endpoints = endpoints.len(), elapsed = ?started.elapsed(), "written");
        let missing = slices
            .iter()
            .any(|write| matches!(write, Written::Missing(_)))
            || endpoints
                .iter()
                .any(|write| matches!(write, Written::Missing(_)));
        let counters = self.options.counters.clone();
        slices
            .into_iter()
            .for_each(|write| remember(&mut self.index.slices, write, epochs.0, &counters));
        endpoints
            .into_iter()
            .for_each(|write| remember(&mut self.index.endpoints, write, epochs.1, &counters));
        let end = if error.is_none() && !missing {
            End::Done
        } else {
            End::Failed
        };
        let retry = self.queue.finish(key.clone(), end, Instant::now());
        if let Some(error) = error {
            report(&counters, &key, &error, retry);
        }
    }

    /// Lets requests that are under way end: their answer would otherwise be unknown.
    async fn drain(&mut self) {
        let ended = async { while self.requests.next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, ended).await.is_err() {
            warn!(
                count = self.requests.len(),
                "gave up waiting for requests under way"
            );
        }
    }
}

fn is_own(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(LABEL_SLICE_MANAGED_BY))
        .is_some_and(|manager| manager == SLICE_MANAGER)
}

/// For a kind that only this controller follows.
fn watch_all<K>(client: &Client) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Watched + Resource<DynamicType = ()>,
{
    reflector::watch(
        Api::all(client.clone()),
        watcher::Config::default(),
        Backoff::of_controllers(),
    )
}

fn changes<T, E>(
    kind: Kind,
    events: impl Stream<Item = Result<Event<T>, E>> + Send + 'static,
    apply: fn(&mut Index, T),
    delete: fn(&mut Index, &T),
) -> BoxStream<'static, Change>
where
    T: Send + 'static,
    E: Error + Send + 'static,
{
    let change = move |event: Result<Event<T>, E>| -> Change {
        Box::new(move |controller| match event {
            Ok(event) => controller.feed(kind, event, apply, delete),
            Err(error) => controller.watch_failed(kind, &error),
        })
    };
    events.map(change).boxed()
}

fn remember<K>(cache: &mut Cache<K>, write: Written<K>, epoch: u64, counters: &Counters)
where
    K: k8s_openapi::Metadata<Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
{
    match write {
        Written::Created(object) => {
            counters.creates.fetch_add(1, Relaxed);
            cache.wrote(object, epoch);
        }
        Written::Updated(object) => {
            counters.updates.fetch_add(1, Relaxed);
            cache.wrote(object, epoch);
        }
        Written::Deleted(object) => {
            counters.deletes.fetch_add(1, Relaxed);
            cache.removed(&object);
        }
        Written::Missing(object) => cache.removed(&object),
    }
}

fn report(counters: &Counters, service: &ObjectKey, error: &ApplyError, retry: Option<Duration>) {
    if error.is_conflict() {
        counters.conflicts.fetch_add(1, Relaxed);
        debug!(%service, %error, ?retry, "changed by somebody else");
        return;
    }
    counters.errors.fetch_add(1, Relaxed);
    warn!(%service, error = %chain(error), ?retry, "cannot write endpoints");
}
