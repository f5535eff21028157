//! The daemon from start to end: brings the parts together and waits for the order to stop.

use crate::addresses::Addresses;
use crate::aligned_timer::AlignedTimer;
use crate::announce::{self, Announceables};
use crate::client::{self, AccessError};
use crate::config::{Config, DataDir, Mode};
use crate::dataplanes::{self, Opened, Others};
use crate::disturbances::Disturbances;
use crate::events::{self, NewNodePort, Notice, Notices};
use crate::first_services;
use crate::flows::Tracker;
use crate::health::Monitor;
use crate::health::service::{Failure, ServiceChecks};
use crate::journal::{Journal, Remembered};
use crate::memory;
use crate::metrics::Metrics;
use crate::metrics::server::{self, Pages};
use crate::report;
use crate::static_services::{self, InForce};
use crate::sync::{self, Door, FollowUp, Input, Parts, Sources};
use crate::sysctl;
use kube::Client;
use portico_model::edge::Surroundings;
use portico_model::table::{Family, NodePortAddresses, PerFamily};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch as flag};
use tokio::task::JoinSet;

/// Inputs that wait for the loop. It drains them at once; a list fills it.
const INPUTS: usize = 256;
/// The most changes that wait for the part that announces addresses.
const ANNOUNCEABLES: usize = 16;
/// Without an answer of the API server in this time, what was known last is used.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at the configuration file.
const CONFIG_LOOK: Duration = Duration::from_secs(10);
/// After rules of kube-proxy were found: one that ends has half a minute for it.
const LOOK_AGAIN: [Duration; 3] = [
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(45),
];
/// The time limit for the loop to finish the batch that it is at.
const GOODBYE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum RunError {
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Dataplane(#[from] portico_dataplane::ApplyError),
    #[error("cannot listen on {address} for {what}")]
    Bind {
        what: &'static str,
        address: std::net::SocketAddr,
        source: io::Error,
    },
    #[error("the configuration file changed; a restart makes it count")]
    ConfigChanged,
    #[error("{doing}")]
    Io {
        doing: &'static str,
        source: io::Error,
    },
}

/// Work until `stop`. The rules stay in the kernel. After much work `free` is called on threads
/// that had a part in it, to return to the system what the allocator has left of it.
pub async fn run(
    config: Config,
    free: fn(),
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    memory::prefer_others_to_be_killed(config.oom_score_adj);
    memory::use_small_pages();
    client::check(&config.api).await?;
    let client = client::client(&config.api);
    let mut metrics = Metrics::new(config.mode.name());
    metrics.show_features(&config.settings);
    if config.count_connections {
        metrics.count_connections();
    }
    let metrics = Arc::new(metrics);
    let timer = AlignedTimer::by_chance();
    let monitor = Monitor::new(2 * config.sync_period, &families_of_the_node());
    let (inputs, received) = mpsc::channel(INPUTS);
    let (follow_ups, followed) = mpsc::channel(64);
    let (notices, noticed) = Notices::new();
    let Opened {
        dataplane,
        disturbances,
        early_packets,
        others,
    } = dataplanes::open(&config)?;
    let (to_report, installed) = flag::channel(None);
    let (to_edge, surroundings) = edge(&config).then(|| flag::channel(None)).unzip();
    let (journal, remembered) = open_journal(&config.data_dir, &config.settings.node_name).unzip();
    let parts = Parts {
        settings: config.settings.clone(),
        dataplane,
        flows: Box::new(Tracker::open()),
        monitor: monitor.clone(),
        metrics: Arc::clone(&metrics),
        period: config.sync_period,
        timer,
        report: to_report,
        announcing: config.announce.enabled,
        edge: to_edge.is_some(),
        journal,
        door: early_packets
            .clone()
            .map(|early_packets| Box::new(early_packets) as Box<dyn Door>),
        free,
    };
    let node = Arc::clone(&config.settings.node_name);
    let starting = |source| RunError::Io {
        doing: "cannot start the loop",
        source,
    };
    let (answered, answers) = flag::channel(false);
    let sources = Sources {
        access: config.api.clone(),
        node: Arc::clone(&node),
        answered: Arc::new(answered),
        early_packets,
        inputs: received,
    };
    let mut looping =
        on_a_thread("loop", move || sync::run(parts, sources, follow_ups)).map_err(starting)?;
    tracing::info!(node = %node, mode = config.mode.name(), version = env!("CARGO_PKG_VERSION"), "starting");

    let mut tasks = JoinSet::new();
    serve(&mut tasks, &config, &monitor, &metrics);
    tasks.spawn(never(events::send(
        client.clone(),
        Arc::clone(&node),
        noticed,
    )));
    notices.tell(Notice {
        service: None,
        warning: false,
        reason: "Starting",
        text: "portico node is starting".into(),
    });
    let (announcing, announced) = flag::channel(None);
    let about = report::About {
        mode: config.mode.name(),
        healthz_port: config.healthz.map(|address| address.port()),
    };
    let recent = metrics.recent.clone();
    tasks.spawn(never(report::send(
        client.clone(),
        Arc::clone(&node),
        about,
        installed,
        announced,
        recent,
        timer,
    )));
    let (static_services, in_force) = flag::channel(InForce::new());
    let (to_announce, installed) = mpsc::channel(ANNOUNCEABLES);
    let settling = Settling {
        others,
        sysctls: config.sysctls,
    };
    tasks.spawn(never(follow(
        followed,
        settling,
        monitor,
        notices,
        static_services,
        to_announce,
        free,
    )));
    if let Some(folder) = config.static_services.clone() {
        tasks.spawn(never(static_services::serve(
            folder,
            config.mode.name(),
            inputs.clone(),
            in_force,
            timer,
        )));
    }
    tasks.spawn(never(tell_addresses(inputs.clone())));
    if let Some(surroundings) = surroundings {
        tasks.spawn(never(tell_surroundings(surroundings, inputs.clone())));
    }
    if let Some(disturbances) = disturbances {
        tasks.spawn(never(tell_disturbances(disturbances, inputs.clone())));
    }
    if let Some(path) = config.file.clone() {
        tasks.spawn(config_change(path));
    }
    let (stop_announcing, stopped) = oneshot::channel::<()>();
    let announcer = config.announce.enabled.then(|| {
        let parts = announce::Parts {
            client: client.clone(),
            node: Arc::clone(&node),
            own: config.settings.own_address,
            installed,
            edge: to_edge,
            report: announcing,
            key_file: config.announce.key_file.clone(),
            port: config.announce.port,
            kernel_answers: config.mode == Mode::Ipvs && !config.ipvs.strict_arp,
            bgp: metrics.bgp.clone(),
            l2: metrics.l2.clone(),
        };
        tokio::spawn(announce::run(parts, async move { _ = stopped.await }))
    });
    help_starting(&mut tasks, client, remembered, answers, inputs.clone());

    let result = tokio::select! {
        () = stop => Ok(()),
        Some(ended) = tasks.join_next() => match ended {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) => Ok(()),
            Err(source) => Err(broke(source)),
        },
        ended = &mut looping => Err(match ended {
            Ok(Err(error)) => broke(error),
            _ => broke("the loop ended"),
        }),
    };
    // Others get the traffic before anything else ends.
    drop(stop_announcing);
    if let Some(announcer) = announcer {
        let _ = announcer.await;
    }
    // With their senders gone the loop ends after the batch it is at, and its journal writes the
    // rest.
    drop(inputs);
    tasks.shutdown().await;
    if !looping.is_terminated() {
        let _ = tokio::time::timeout(GOODBYE, looping).await;
    }
    result
}

fn broke(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RunError {
    RunError::Io {
        doing: "a part of the daemon broke",
        source: io::Error::other(source),
    }
}

/// Has a thread for itself, which does nothing else. What it says at its end, if it does not panic.
fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (ended, end) = oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || ended.send(work()).ok())?;
    Ok(end)
}

type Ended = Result<(), RunError>;

async fn never<T>(work: impl Future<Output = T>) -> Ended {
    work.await;
    std::future::pending().await
}

fn serve(tasks: &mut JoinSet<Ended>, config: &Config, monitor: &Monitor, metrics: &Arc<Metrics>) {
    let fatal = config.bind_hard_fail;
    if let Some(address) = config.healthz {
        let (monitor, answers) = (monitor.clone(), metrics.health.clone());
        tasks.spawn(async move {
            let served = crate::health::node::serve(address, monitor, answers, fatal).await;
            served
                .map(|never| match never {})
                .map_err(|source| RunError::Bind {
                    what: "healthz",
                    address,
                    source,
                })
        });
    }
    if let Some(address) = config.metrics {
        let pages = Pages {
            metrics: Arc::clone(metrics),
            mode: config.mode.name(),
            config: config.resolved.clone(),
        };
        tasks.spawn(async move {
            let served = server::serve(address, pages, fatal).await;
            served
                .map(|never| match never {})
                .map_err(|source| RunError::Bind {
                    what: "metrics",
                    address,
                    source,
                })
        });
    }
}

/// Tell the loop what is known, or asked for, before the lists are.
fn help_starting(
    tasks: &mut JoinSet<Ended>,
    client: Client,
    remembered: Option<Remembered>,
    answers: flag::Receiver<bool>,
    inputs: mpsc::Sender<Input>,
) {
    let to_loop = inputs.clone();
    tasks.spawn(never(async move {
        let _ = to_loop
            .send(Input::First(first_services::fetch(&client).await))
            .await;
    }));
    if let Some(remembered) = remembered {
        tasks.spawn(never(remember(remembered, answers, inputs)));
    }
}

/// What was known last is used if the API server does not answer soon.
async fn remember(
    remembered: Remembered,
    mut answered: flag::Receiver<bool>,
    inputs: mpsc::Sender<Input>,
) {
    if tokio::time::timeout(PATIENCE, answered.wait_for(|answered| *answered))
        .await
        .is_ok()
    {
        return;
    }
    // The runtime's own threads for such work may all be waiting for a name server.
    let read = match on_a_thread("remembering", move || remembered.read()) {
        Ok(read) => read
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the thread that reads it ended"))),
        Err(error) => Err(error),
    };
    match read {
        Ok(objects) if objects.is_empty() => {
            tracing::warn!("the API server does not answer, and nothing is remembered")
        }
        Ok(objects) => {
            let _ = inputs.send(Input::Remembered(objects)).await;
        }
        Err(error) => tracing::warn!(%error, "cannot read what was known last"),
    }
}

async fn tell_addresses(inputs: mpsc::Sender<Input>) {
    let mut addresses = match Addresses::open() {
        Ok(addresses) => addresses,
        Err(error) => return tracing::error!(%error, "cannot watch the addresses of this node"),
    };
    loop {
        match addresses.next().await {
            Ok(addresses) => {
                let _ = inputs.send(Input::Addresses(addresses)).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot list the addresses of this node, will try again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Whether there can be an edge.
fn edge(config: &Config) -> bool {
    let possible = config.mode == Mode::Nftables && config.announce.enabled;
    if config.edge && !possible {
        tracing::warn!(
            mode = config.mode.name(),
            "--edge needs nftables mode and --announce=auto: connections from outside are served \
             by the node that receives them"
        );
    }
    config.edge && possible
}

async fn tell_surroundings(
    mut surroundings: flag::Receiver<Option<Option<Surroundings>>>,
    inputs: mpsc::Sender<Input>,
) {
    while surroundings.changed().await.is_ok() {
        let known = surroundings.borrow_and_update().clone();
        if let Some(known) = known {
            let _ = inputs.send(Input::Surroundings(known)).await;
        }
    }
}

async fn tell_disturbances(mut disturbances: Disturbances, inputs: mpsc::Sender<Input>) {
    loop {
        match disturbances.next().await {
            Ok(()) => {
                let _ = inputs.send(Input::Disturbed).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot watch who else changes rules, will try again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// What follows from changes, beside forwarding.
async fn follow(
    mut followed: mpsc::Receiver<FollowUp>,
    settling: Settling,
    monitor: Monitor,
    notices: Notices,
    static_services: flag::Sender<InForce>,
    to_announce: mpsc::Sender<Announceables>,
    free: fn(),
) {
    let to_notices = notices.clone();
    let on_failure =
        Arc::new(move |failure: &Failure| to_notices.tell(health_check_failed(failure)));
    let mut checks = ServiceChecks::new(monitor, on_failure);
    let mut addresses = PerFamily::default();
    while let Some(follow_up) = followed.recv().await {
        match follow_up {
            FollowUp::HealthChecks(changes) => checks.sync(&changes).await,
            FollowUp::NodePortAddresses(now) => {
                checks.set_addresses(&now).await;
                addresses = now;
            }
            FollowUp::NodePorts(new) => check_node_ports(new, addresses.clone(), notices.clone()),
            FollowUp::Announceables(changes) => _ = to_announce.send(changes).await,
            FollowUp::StaticServices(in_force) => _ = static_services.send_replace(in_force),
            FollowUp::Installed => _ = tokio::spawn(settling.settle()),
            FollowUp::Quiet => free(),
        }
    }
}

fn health_check_failed(failure: &Failure) -> Notice {
    let text = format!(
        "cannot listen on {} for health checks: {}",
        failure.address, failure.error
    );
    let reason = "FailedToStartServiceHealthcheck";
    Notice {
        service: Some(failure.service.clone()),
        warning: true,
        reason,
        text,
    }
}

fn check_node_ports(
    new: Vec<NewNodePort>,
    addresses: PerFamily<NodePortAddresses>,
    notices: Notices,
) {
    tokio::task::spawn_blocking(move || {
        events::check_node_ports(Path::new("/"), &new, &addresses, &notices)
    });
}

/// What is done once our rules are in.
#[derive(Clone, Copy)]
struct Settling {
    others: Others,
    sysctls: sysctl::Settings,
}

impl Settling {
    /// What other modes and kube-proxy left is removed, and the kernel is told how to track
    /// connections. A kube-proxy that is still ending may write its rules once more, so where there
    /// were any they are looked for again.
    async fn settle(self) {
        let _ = tokio::task::spawn_blocking(move || set_sysctls(&self.sysctls)).await;
        let mut found = false;
        for wait in [Duration::ZERO].into_iter().chain(LOOK_AGAIN) {
            tokio::time::sleep(wait).await;
            match tokio::task::spawn_blocking(move || self.others.remove()).await {
                Ok(Ok(now)) => found |= now,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot remove the rules of another mode");
                    found = true;
                }
                Err(_) => return,
            }
            if !found {
                return;
            }
        }
    }
}

/// What needs full privileges: afterwards the daemon can run with less.
pub fn initialise(config: &Config) {
    set_sysctls(&config.sysctls);
}

fn set_sysctls(settings: &sysctl::Settings) {
    sysctl::apply(Path::new("/"), &sysctl::wanted(settings, sysctl::cores()));
}

/// A new configuration counts after a restart, which is left to the program that started this one.
async fn config_change(path: std::path::PathBuf) -> Ended {
    let before = tokio::fs::read(&path).await.ok();
    loop {
        tokio::time::sleep(CONFIG_LOOK).await;
        let now = tokio::fs::read(&path).await.ok();
        if now.is_some() && now != before {
            return Err(RunError::ConfigChanged);
        }
    }
}

fn open_journal(directory: &DataDir, node: &str) -> Option<(Journal, Remembered)> {
    let path = match directory {
        DataDir::None => return None,
        DataDir::Default(path) | DataDir::Given(path) => path,
    };
    match Journal::open(path, node) {
        Ok(opened) => Some(opened),
        Err(error) => {
            let directory = path.display();
            tracing::warn!(%directory, %error, "nothing is remembered for a start without an API server");
            None
        }
    }
}

/// IPv6 may be switched off.
fn families_of_the_node() -> Vec<Family> {
    let disabled = std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    match disabled.is_ok_and(|disabled| disabled.trim() == "0") {
        true => Family::BOTH.to_vec(),
        false => vec![Family::V4],
    }
}
