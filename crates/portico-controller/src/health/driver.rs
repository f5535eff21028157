//! Runs the checks: the watch feeds the monitor, the monitor says which endpoint to probe and which
//! slice to write. One task owns all state; only probes and requests are under way beside it.

use portico_model::key::ObjectKey;
use portico_view::key_of;
use std::{
    collections::BTreeSet,
    future,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{
    StreamExt,
    future::{BoxFuture, FutureExt},
    stream::{self, FuturesUnordered},
};
use k8s_openapi::api::{core::v1::Node, discovery::v1::EndpointSlice};
use kube::{Api, Client, api::PostParams, runtime::watcher::Event};
use portico_client::{
    error::chain,
    reflector::{SharedResult, Subscription},
    wait::sleep_until,
};
use portico_model::checks::{Probe, RANGES_FLAG, Ranges};
use tracing::{debug, info, warn};

use super::{LABEL, Monitor, Networks, monitor::Target, probe::Prober};
use crate::{
    Shutdown,
    cluster::{Cluster, all},
    queue::{Delays, End, Queue},
};

/// How health checks are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many endpoints are asked at a time.
    pub probes: usize,
    /// How many slices are written at a time.
    pub concurrency: usize,
    /// Which addresses may be asked.
    pub ranges: Ranges,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            probes: 256,
            concurrency: 16,
            ranges: Ranges::default(),
        }
    }
}

const DELAYS: Delays = Delays {
    first: Duration::from_millis(20),
    last: Duration::from_secs(10),
};
/// The time limit for one write.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs until `shutdown`; an API server that is away or answers with errors is waited for.
pub async fn run(cluster: Cluster, options: Options, mut shutdown: Shutdown) {
    let prober = match Prober::new() {
        Ok(prober) => prober,
        Err(error) => return warn!(%error, "no health checks: TLS does not work"),
    };
    info!("health checks start");
    let mut driver = Driver {
        queue: Queue::new(options.concurrency, DELAYS),
        monitor: Monitor::new(options.probes, options.ranges.clone()),
        networks: Networks::default(),
        listed_nodes: None,
        knows_nodes: !options.ranges.names_cluster(),
        started: Instant::now(),
        prober,
        cluster,
        listed: None,
        failing: false,
        nodes_failing: false,
        probes: FuturesUnordered::new(),
        writes: FuturesUnordered::new(),
    };
    tokio::select! {
        () = driver.run() => {}
        _ = shutdown.wait_for(|stop| *stop) => {}
    }
    info!("health checks stopped");
}

/// A probe that ended, and how.
type Probed = (Probe<Target>, Result<(), String>);

struct Driver {
    cluster: Cluster,
    prober: Prober,
    monitor: Monitor,
    /// What the monitor's times are since.
    started: Instant,
    /// The slices to write.
    queue: Queue,
    /// What the list under way has so far.
    listed: Option<BTreeSet<ObjectKey>>,
    /// The watch does not work; told once.
    failing: bool,
    networks: Networks,
    /// What the list of Nodes under way has so far.
    listed_nodes: Option<Vec<Arc<Node>>>,
    /// All Nodes were heard of, or do not count. Before that nothing is asked or refused.
    knows_nodes: bool,
    nodes_failing: bool,
    probes: FuturesUnordered<BoxFuture<'static, Probed>>,
    writes: FuturesUnordered<BoxFuture<'static, (ObjectKey, kube::Result<EndpointSlice>)>>,
}

impl Driver {
    async fn run(&mut self) {
        // Which addresses may be asked follows from the nodes, so slices wait for them.
        let mut slices = None;
        let mut nodes = match self.knows_nodes {
            true => stream::pending().boxed(),
            false => self.cluster.nodes.subscribe(all).boxed(),
        };
        loop {
            if self.knows_nodes && slices.is_none() {
                slices = Some(self.cluster.slices.subscribe(is_checked));
            }
            self.start_work();
            let deadlines = [
                self.monitor.next_deadline().map(|due| self.started + due),
                self.queue.next_deadline(),
            ];
            tokio::select! {
                Some(event) = nodes.next() => self.feed_nodes(event),
                Some(event) = next(&mut slices) => self.feed(event),
                Some((probe, answer)) = self.probes.next() => self.answered(probe, answer),
                Some((key, result)) = self.writes.next() => self.written(key, result),
                () = sleep_until(deadlines.into_iter().flatten().min()) => {}
            }
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn start_work(&mut self) {
        while let Some(probe) = self.monitor.start(self.now()) {
            let prober = self.prober.clone();
            self.probes.push(
                async move {
                    let answer = prober.probe(probe.target.0, &probe.target.1).await;
                    (probe, answer)
                }
                .boxed(),
            );
        }
        self.monitor
            .take_touched()
            .into_iter()
            .for_each(|key| self.queue.add(key));
        while let Some(key) = self.queue.start(Instant::now()) {
            match self.monitor.wanted(&key) {
                Some(slice) => self
                    .writes
                    .push(write(self.cluster.client.clone(), key, slice).boxed()),
                None => drop(self.queue.finish(key, End::Done, Instant::now())),
            }
        }
    }

    fn feed_nodes(&mut self, event: SharedResult<Node>) {
        let news = match event {
            Ok(Event::Init) => {
                self.listed_nodes = Some(Vec::new());
                false
            }
            Ok(Event::InitApply(node)) => {
                self.listed_nodes.get_or_insert_default().push(node);
                false
            }
            Ok(Event::InitDone) => {
                let listed = self.listed_nodes.take().unwrap_or_default();
                self.networks = Networks::of(listed.iter().map(|node| &**node));
                (self.knows_nodes, self.nodes_failing) = (true, false);
                true
            }
            Ok(Event::Apply(node)) => self.networks.apply(&node),
            Ok(Event::Delete(node)) => self.networks.delete(&node),
            Err(error) => {
                if !std::mem::replace(&mut self.nodes_failing, true) {
                    warn!(
                        error = %chain(&error),
                        "cannot watch Nodes, whose addresses and pods may be asked for their \
                         health, will try again; without the right to list and watch them, give \
                         {RANGES_FLAG} without the word cluster"
                    );
                }
                false
            }
        };
        if news {
            self.monitor.set_networks(self.networks.clone(), self.now());
            self.tell_refused();
        }
    }

    fn tell_refused(&mut self) {
        for (slice, (address, why)) in self.monitor.take_refused() {
            warn!(%slice, %address, "an endpoint is {why}");
        }
    }

    fn feed(&mut self, event: SharedResult<EndpointSlice>) {
        match event {
            Ok(event) => {
                self.failing = false;
                self.take(event);
            }
            Err(error) if !std::mem::replace(&mut self.failing, true) => {
                warn!(error = %chain(&error), "cannot watch EndpointSlices for health checks, will try again");
            }
            Err(error) => debug!(error = %chain(&error), "cannot watch EndpointSlices"),
        }
    }

    fn take(&mut self, event: Event<Arc<EndpointSlice>>) {
        match event {
            Event::Init => self.listed = Some(BTreeSet::new()),
            Event::InitApply(slice) | Event::Apply(slice) => {
                self.apply(EndpointSlice::clone(&slice))
            }
            Event::Delete(slice) => self.monitor.delete(&key_of(&slice.metadata)),
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let gone: Vec<ObjectKey> = self
                    .monitor
                    .keys()
                    .filter(|key| !listed.contains(key))
                    .cloned()
                    .collect();
                gone.iter().for_each(|key| self.monitor.delete(key));
            }
        }
    }

    fn apply(&mut self, slice: EndpointSlice) {
        let key = key_of(&slice.metadata);
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        if let Err(problem) = self.monitor.apply(slice, self.now()) {
            warn!(slice = %key, "its endpoints are not checked: annotation {}: {problem}", super::CHECK);
        }
        self.tell_refused();
    }

    fn answered(&mut self, probe: Probe<Target>, answer: Result<(), String>) {
        let (endpoint, why) = (probe.target.0, answer.clone().err().unwrap_or_default());
        if let Some(healthy) = self
            .monitor
            .finish(probe, answer, self.now(), fastrand::f64())
        {
            info!(%endpoint, healthy, why, "health changed");
        }
    }

    fn written(&mut self, key: ObjectKey, result: kube::Result<EndpointSlice>) {
        let end = match result {
            Ok(slice) => {
                // Problems of it were told when it was first seen.
                let _ = self.monitor.apply(slice, self.now());
                End::Done
            }
            // Gone, as the watch will tell.
            Err(kube::Error::Api(status)) if status.code == 404 => End::Done,
            // The slice changed meanwhile: the new version comes by the watch.
            Err(kube::Error::Api(status)) if status.code == 409 => End::Failed,
            Err(error) => {
                warn!(slice = %key, error = %chain(&error), "cannot write the readiness of endpoints, will try again");
                End::Failed
            }
        };
        self.queue.finish(key, end, Instant::now());
    }
}

async fn next(
    slices: &mut Option<Subscription<EndpointSlice>>,
) -> Option<SharedResult<EndpointSlice>> {
    match slices {
        Some(slices) => slices.next().await,
        None => future::pending().await,
    }
}

/// What `portico expose` made to be checked.
fn is_checked(slice: &EndpointSlice) -> bool {
    let labels = slice.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(LABEL))
        .is_some_and(|value| value == "true")
}

/// With the version that was seen, so that nothing of others is lost.
async fn write(
    client: Client,
    key: ObjectKey,
    slice: EndpointSlice,
) -> (ObjectKey, kube::Result<EndpointSlice>) {
    let api: Api<EndpointSlice> = Api::namespaced(client, &key.namespace);
    let parameters = PostParams {
        field_manager: Some("portico-health".to_owned()),
        ..PostParams::default()
    };
    let result =
        match tokio::time::timeout(PATIENCE, api.replace(&key.name, &parameters, &slice)).await {
            Ok(result) => result,
            Err(late) => Err(kube::Error::Service(Box::new(late))),
        };
    (key, result)
}
