//! Keeps the dataplane equal to the table: everything that came in becomes one batch, at once.
//!
//! [`Syncer`] decides what to do and does it; [`run`] is the loop around it, on a thread that has a
//! runtime of its own, with the watches as its tasks: to wake another thread for each change would
//! cost more than the change. What the kernel has after an error is not guessed: everything is
//! compared.

mod before_lists;
mod cluster;
mod comparison;
mod early_packets;
mod gate;
mod held_announceables;
mod held_checks;
mod incoming;
mod pending;
mod recent_objects;
mod reporting;
mod static_files;
mod waiting;

use crate::aligned_timer::AlignedTimer;
use crate::announce::Announceables;
use crate::config::ApiAccess;
use crate::events::NewNodePort;
use crate::health::Monitor;
use crate::journal::Journal;
use crate::metrics::{Metrics, Sync, families};
use crate::objects::{Kind, Name, Object};
use crate::report::Installed;
use crate::static_services::{self, InForce};
use before_lists::BeforeLists;
use cluster::Cluster;
use comparison::Comparison;
use early_packets::EarlyPackets;
use gate::Gate;
use held_announceables::HeldAnnounceables;
use held_checks::HeldChecks;
use incoming::Incoming;
use pending::PendingPorts;
use portico_dataplane::early_packets::{Answer, EarlyPacket, EarlyPacketQueue};
use portico_dataplane::{ApplyError, Dataplane, Report};
use portico_model::edge::Surroundings;
use portico_model::index::{DetectLocal, Settings, Update};
use portico_model::key::ObjectKey;
use portico_model::table::{
    Change, Family, ForwardingTable, FrontendKind, HealthCheck, NodePortAddresses, PerFamily,
    ServicePort,
};
use recent_objects::RecentObjects;
use reporting::Reporting;
use static_files::StaticFiles;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use waiting::Waiting;

/// A step of more inputs than this leaves memory that is worth returning.
const SMALL_STEP: usize = 32;
/// The time between the end of much work and giving back the memory that only it needed: more of it
/// may follow, and the threads that helped end first.
const QUIET: Duration = Duration::from_millis(300);
/// What comes in.
#[derive(Debug)]
pub(crate) enum Input {
    /// An object is there, or it changed; since when this is known.
    Apply(Object, Instant),
    Delete(Name, Instant),
    /// These are all of a kind.
    Listed(Kind, HashSet<Name>),
    /// There are none of a kind to be seen.
    Denied(Kind),
    /// All of a kind has come in up to this resource version.
    Reached(Kind, u64),
    /// The Services that others need to start, known before the lists are.
    First(Vec<Object>),
    /// What was known when the node was last up. Counts until there is something newer.
    Remembered(Vec<Object>),
    /// A file of static Services.
    Static(static_services::Change),
    /// The addresses of the node's interfaces.
    Addresses(Vec<IpAddr>),
    /// What the edge has to know of other nodes; `None` where there is no edge.
    Surroundings(Option<Surroundings>),
    /// Somebody else touched our rules.
    Disturbed,
    /// A packet came before its Service.
    Early(EarlyPacket),
}

/// What others have to do because of a change, in their own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    HealthChecks(Vec<(ObjectKey, Option<HealthCheck>)>),
    NodePortAddresses(PerFamily<NodePortAddresses>),
    /// Node ports that are new, with who wants them.
    NodePorts(Vec<NewNodePort>),
    /// Files of static Services that are in the kernel.
    StaticServices(InForce),
    /// What there is to announce of what is in the kernel.
    Announceables(Announceables),
    /// The first whole table is in the kernel.
    Installed,
    /// Much was done, and nothing since: memory can be given back.
    Quiet,
}

/// How many flows were ended.
pub(crate) type Ended = PerFamily<usize>;

/// Ends flows to endpoints that are gone, once the rules no longer lead there.
pub(crate) trait Flows: Send {
    /// These ports changed.
    fn changed(&mut self, changes: &[Change], table: &ForwardingTable, now: Instant) -> Ended;

    /// Any port may have flows that it should not have.
    fn check(&mut self, table: &ForwardingTable) -> Ended;

    /// Flows that were left alone for a while are due.
    fn check_due(&mut self, table: &ForwardingTable, now: Instant) -> Ended;

    /// When they are.
    fn due(&self) -> Option<Instant>;
}

/// Where packets wait that came before their Service.
pub(crate) trait Door: Send {
    fn answer(&self, answers: Vec<(u32, Answer)>);
}

/// What the loop works with.
pub(crate) struct Parts {
    pub settings: Settings,
    pub dataplane: Box<dyn Dataplane>,
    pub flows: Box<dyn Flows>,
    pub monitor: Monitor,
    pub metrics: Arc<Metrics>,
    /// How often everything is compared though nothing happened.
    pub period: Duration,
    pub timer: AlignedTimer,
    /// The version that the kernel has, for the node's report.
    pub report: watch::Sender<Option<Installed>>,
    /// Whether what there is to announce is passed on.
    pub announcing: bool,
    /// [`Input::Surroundings`] will come in.
    pub edge: bool,
    /// Where what the API server told is remembered.
    pub journal: Option<Journal>,
    /// The queue of early packets; `None` where the kernel lets none wait.
    pub door: Option<Box<dyn Door>>,
    /// Returns to the system what the allocator has left of much work on the calling thread: in the
    /// middle of a change that would take longer than the change.
    pub free: fn(),
}

/// What the loop waits for.
pub(crate) struct Sources {
    pub access: ApiAccess,
    pub node: Arc<str>,
    /// Set when the API server first answers a watch.
    pub answered: Arc<watch::Sender<bool>>,
    pub early_packets: Option<EarlyPacketQueue>,
    pub inputs: mpsc::Receiver<Input>,
}

/// Works until every sender of inputs is gone. To be called on a thread of its own, which also waits
/// for the kernel.
pub(crate) fn run(
    parts: Parts,
    sources: Sources,
    follow_ups: mpsc::Sender<FollowUp>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // As a task, not the runtime's first future: waking that takes a system call each time.
    let result = runtime.block_on(async { tokio::spawn(work(parts, sources, follow_ups)).await });
    // A name server that does not answer does not keep the process from ending.
    runtime.shutdown_background();
    result.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

async fn work(
    parts: Parts,
    sources: Sources,
    follow_ups: mpsc::Sender<FollowUp>,
) -> io::Result<()> {
    let mut syncer = Syncer::new(parts, Instant::now());
    let mut incoming = Incoming::new(sources)?;
    loop {
        let Some(inputs) = incoming.next(syncer.deadline()).await? else {
            return Ok(());
        };
        // The same for all of it: what came in together is one step.
        let now = Instant::now();
        // A version that is reached comes with something else.
        let taken = inputs
            .iter()
            .filter(|input| !matches!(input, Input::Reached(..)))
            .count();
        inputs.into_iter().for_each(|input| syncer.take(input, now));
        for follow_up in syncer.step_and_free(taken, now) {
            // The receiver is gone only at the end.
            let _ = follow_ups.send(follow_up).await;
        }
    }
}

struct Syncer {
    parts: Parts,
    cluster: Cluster,
    gate: Gate,
    before_lists: BeforeLists,
    recent: RecentObjects,
    static_files: StaticFiles,
    /// The first whole table is in the kernel.
    installed: bool,
    pending: PendingPorts,
    comparison: Comparison,
    reporting: Reporting,
    announceables: HeldAnnounceables,
    checks: HeldChecks,
    /// All flows are to be looked at: at start, and when node ports moved.
    check_flows: bool,
    waiting: Waiting,
    early_packets: EarlyPackets,
    /// When what is left of much work is given back.
    quiet_at: Option<Instant>,
    follow_ups: Vec<FollowUp>,
}

impl Syncer {
    fn new(parts: Parts, now: Instant) -> Self {
        let cluster = Cluster::new(parts.settings.clone(), parts.announcing);
        let mut gate = Gate::new(now, parts.settings.detect_local == DetectLocal::NodeCidr);
        if parts.edge {
            gate = gate.waiting_for_edge();
        }
        let comparison = Comparison::new(now, parts.period, parts.timer);
        parts.monitor.set_eligible(cluster.index.eligible());
        // Some settings say it all before anything is known; later only changes are told.
        let follow_ups = vec![FollowUp::NodePortAddresses(
            cluster.table().rules.node_ports.clone(),
        )];
        Self {
            parts,
            cluster,
            gate,
            before_lists: BeforeLists::default(),
            recent: RecentObjects::default(),
            static_files: StaticFiles::default(),
            installed: false,
            pending: PendingPorts::default(),
            comparison,
            reporting: Reporting::default(),
            announceables: HeldAnnounceables::default(),
            checks: HeldChecks::default(),
            check_flows: true,
            waiting: Waiting::default(),
            early_packets: EarlyPackets::default(),
            quiet_at: None,
            follow_ups,
        }
    }

    /// When [`Syncer::step`] has something to do though nothing comes in.
    fn deadline(&self) -> Option<Instant> {
        match self.installed {
            true => {
                let compare = self.comparison.due();
                let (flows, dataplane) = (self.parts.flows.due(), self.parts.dataplane.due());
                let due = [
                    flows,
                    dataplane,
                    self.reporting.due(),
                    self.early_packets.due(),
                    self.quiet_at,
                ];
                due.into_iter().flatten().chain([compare]).min()
            }
            false => {
                let opens = self
                    .gate
                    .opens()
                    .map(|opens| opens.max(self.comparison.asked().unwrap_or(opens)));
                opens.into_iter().chain(self.early_packets.due()).min()
            }
        }
    }

    /// Installs what came in, and some time after much work returns the memory that only that work
    /// needed.
    fn step_and_free(&mut self, inputs: usize, now: Instant) -> Vec<FollowUp> {
        let large = self.comparison.asked().is_some() || inputs > SMALL_STEP;
        let mut follow_ups = self.step(now);
        if large && self.installed {
            self.quiet_at = Some(now + QUIET);
        } else if self.quiet_at.is_some_and(|at| at <= now) {
            self.quiet_at = None;
            (self.parts.free)();
            follow_ups.push(FollowUp::Quiet);
        }
        follow_ups
    }

    fn take(&mut self, input: Input, now: Instant) {
        match input {
            Input::Apply(object, heard) => {
                match self.installed {
                    true => {
                        self.waiting.applied(&object, heard);
                        self.count(object.kind());
                    }
                    false => self.recent.add(object.name()),
                }
                if matches!(&object, Object::Service(service) if service.spec.type_ == "LoadBalancer")
                {
                    self.reporting.is_awaited();
                }
                self.apply(&object);
                if let Some(journal) = &self.parts.journal {
                    journal.apply(object);
                }
            }
            Input::Delete(name, heard) => {
                self.waiting.deleted(&name, heard);
                self.count(name.kind);
                self.cluster.delete(&name);
                if let Some(journal) = &self.parts.journal {
                    journal.delete(&name);
                }
                if !self.installed {
                    self.recent.add(name);
                }
            }
            Input::Listed(kind, names) => {
                self.listed(kind, &names);
                self.recent.add_all_of(kind);
                if let Some(journal) = &self.parts.journal {
                    journal.listed(kind, &names);
                }
            }
            Input::Denied(kind) => {
                if kind == Kind::Pod {
                    self.cluster.index.set_pods_denied(true);
                }
            }
            Input::Reached(kind, version) => self.reporting.reached(kind, version),
            Input::First(objects) => self.before_lists.set_first(objects),
            Input::Static(change) => self.take_static(change),
            Input::Remembered(objects) => self.remembered(objects),
            Input::Addresses(addresses) => {
                let changed = self.cluster.set_addresses(addresses);
                if changed && self.parts.dataplane.depends_on_addresses() {
                    self.comparison.ask_once(now);
                }
            }
            Input::Surroundings(known) => {
                self.gate.edge_known();
                self.cluster.index.set_surroundings(known);
            }
            Input::Disturbed => self.comparison.disturbed(now),
            Input::Early(early_packet) => self.early_packets.arrive(early_packet, now),
        }
    }

    fn count(&self, kind: Kind) {
        let metrics = &self.parts.metrics;
        let (total, pending) = match kind {
            Kind::Service => (&metrics.service_changes, &metrics.service_changes_pending),
            Kind::Slice => (&metrics.endpoint_changes, &metrics.endpoint_changes_pending),
            Kind::Node | Kind::Cidr | Kind::Pod | Kind::Partition => return,
        };
        total.inc();
        pending.inc();
    }

    fn apply(&mut self, object: &Object) {
        if let Object::Node(node) = object
            && (!node.spec.pod_cidr.is_empty() || !node.spec.pod_cidrs.is_empty())
        {
            self.gate.pod_networks_known();
        }
        self.cluster.apply(object);
    }

    fn listed(&mut self, kind: Kind, names: &HashSet<Name>) {
        self.cluster.keep_listed(kind, names);
        if kind == Kind::Pod {
            self.cluster.index.set_pods_denied(false);
        }
        self.gate.listed(kind);
    }

    fn take_static(&mut self, change: static_services::Change) {
        if !self.installed {
            self.before_lists.set_static(&change);
        }
        self.static_files.changed(change.file, change.version);
        for name in &change.gone {
            self.cluster.delete(name);
        }
        change.objects.iter().for_each(|object| self.apply(object));
    }

    /// A table of its own, so that what is already there of a list stays out.
    fn install_early(&mut self) {
        let Some(objects) = self.before_lists.take(self.parts.dataplane.as_mut()) else {
            return;
        };
        let index = self.cluster.index_of(objects);
        let ports = index.table().ports.len();
        match self.parts.dataplane.replace(index.table()) {
            Ok(report) => {
                tracing::info!(ports, kernel = ?report.kernel, "installed the Services that others need to start");
                self.tell_statics();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot install the Services that others need to start")
            }
        }
    }

    fn remembered(&mut self, objects: Vec<Object>) {
        if self.installed {
            return;
        }
        let news: Vec<&Object> = objects
            .iter()
            .filter(|object| self.recent.lacks(object))
            .collect();
        tracing::warn!(
            objects = news.len(),
            "the API server does not answer: going on with what was known last"
        );
        news.into_iter().for_each(|object| self.apply(object));
        Kind::ALL
            .into_iter()
            .for_each(|kind| self.gate.listed(kind));
    }

    /// Install what came in. Returns what others have to do now.
    fn step(&mut self, now: Instant) -> Vec<FollowUp> {
        let update = self.cluster.index.take();
        self.note(update, now);
        match self.installed || self.gate.is_open(now) {
            true => self.install(now),
            false => self.install_early(),
        }
        if self.pending.is_empty() {
            // What is left came in and changed nothing.
            self.waiting.clear();
            self.parts.metrics.nothing_is_pending();
        }
        let done = self.installed && self.pending.is_empty() && !self.comparison.is_failing();
        if done {
            self.tell_statics();
            self.tell_announceables();
        }
        self.follow_ups
            .extend(self.checks.release(done).map(FollowUp::HealthChecks));
        self.reporting
            .tell(&self.parts.report, done, &self.cluster.index, now);
        if self.parts.flows.due().is_some_and(|due| due <= now) {
            self.end_flows(&Family::BOTH, |flows, table| flows.check_due(table, now));
        }
        if self.parts.dataplane.due().is_some_and(|due| due <= now)
            && let Err(error) = self.parts.dataplane.tend(now)
        {
            tracing::warn!(%error, "cannot finish what had to wait, comparing everything");
            self.comparison.broken(now);
        }
        if !self.early_packets.is_empty() {
            self.answer_early_packets(done, now);
        }
        std::mem::take(&mut self.follow_ups)
    }

    /// What is not known to be in the kernel is not there yet.
    fn answer_early_packets(&mut self, done: bool, now: Instant) {
        let installed = done.then(|| self.cluster.table());
        let answers = self.early_packets.answers(installed, now);
        self.parts.metrics.answered(&answers);
        if let Some(door) = self.parts.door.as_ref().filter(|_| !answers.is_empty()) {
            door.answer(answers);
        }
    }

    fn tell_statics(&mut self) {
        self.follow_ups
            .extend(self.static_files.installed().map(FollowUp::StaticServices));
    }

    fn tell_announceables(&mut self) {
        if self.parts.announcing {
            self.follow_ups
                .extend(self.announceables.release().map(FollowUp::Announceables));
        }
    }

    /// Remember what an update asks for.
    fn note(&mut self, update: Update, now: Instant) {
        for problem in &update.problems {
            tracing::warn!("{problem}");
        }
        self.reporting.changed(&update);
        if update.eligible {
            self.parts
                .monitor
                .set_eligible(self.cluster.index.eligible());
        }
        if update.rules {
            self.follow_ups.push(FollowUp::NodePortAddresses(
                self.cluster.table().rules.node_ports.clone(),
            ));
            self.check_flows = true;
            self.comparison.ask(now);
        }
        self.checks.hold(update.health_checks);
        let node_ports = new_node_ports(&update.changes);
        if !node_ports.is_empty() {
            self.follow_ups.push(FollowUp::NodePorts(node_ports));
        }
        self.announceables.hold(update.announceables);
        self.parts.metrics.changed(&update.changes);
        for family in families(&update.changes) {
            self.parts.monitor.queued(family, now);
            self.parts.metrics.queued(family);
        }
        // The first table is compared as a whole with what is there.
        if self.installed {
            for change in update.changes {
                self.pending.add(change);
            }
        }
    }

    fn install(&mut self, now: Instant) {
        let by_timer = self.installed && self.comparison.is_routine(now);
        if by_timer && self.parts.dataplane.is_undisturbed() {
            self.comparison.matches(now);
        }
        if self.comparison.due() <= now {
            self.compare_all(now);
        } else if !self.pending.is_empty() && !self.comparison.is_failing() {
            self.apply_changes(now);
        }
    }

    fn apply_changes(&mut self, now: Instant) {
        let changes = self.pending.changes(&self.cluster.table().ports);
        if changes.is_empty() {
            self.pending.clear();
            return;
        }
        let began = Instant::now();
        match self
            .parts
            .dataplane
            .apply(&self.cluster.table().rules, &changes)
        {
            Ok(report) => self.done(Sync::Partial, &changes, began, &report),
            Err(error) => {
                tracing::warn!(%error, changes = changes.len(), "cannot install changes, comparing everything");
                self.parts.metrics.failed(&families(&changes));
                self.comparison.broken(now);
                self.compare_all(now);
            }
        }
    }

    fn compare_all(&mut self, now: Instant) {
        let changes = self.pending.changes(&self.cluster.table().ports);
        let began = Instant::now();
        match self.parts.dataplane.replace(self.cluster.table()) {
            Ok(mut report) => {
                let left_by_us = self.comparison.succeeded(now);
                if left_by_us || !self.installed {
                    report.drift.clear();
                }
                self.report_drift(&report);
                self.done(Sync::Full, &changes, began, &report);
                if !std::mem::replace(&mut self.installed, true) {
                    self.recent = RecentObjects::default();
                    let (ports, took) = (self.cluster.table().ports.len(), began.elapsed());
                    tracing::info!(ports, ?took, kernel = ?report.kernel, "the whole table is installed");
                    self.follow_ups.push(FollowUp::Installed);
                }
            }
            Err(error) => self.failed(&error, now),
        }
    }

    fn failed(&mut self, error: &ApplyError, now: Instant) {
        let again = self.comparison.failed(now);
        self.parts.metrics.failed(&Family::BOTH);
        // Also where nothing came in: the kernel may not have what it should have.
        Family::BOTH
            .into_iter()
            .for_each(|family| self.parts.monitor.queued(family, Instant::now()));
        self.reporting.failed(error);
        tracing::error!(%error, ?again, "cannot install the table, will try again");
    }

    /// The installed table differs from what we last installed: another program changed it.
    fn report_drift(&self, report: &Report) {
        for difference in report.drift.iter().take(5) {
            tracing::warn!(difference, "rules were changed by somebody else, repaired");
        }
        if report.drift.len() > 5 {
            tracing::warn!(
                more = report.drift.len() - 5,
                "rules were changed by somebody else, repaired"
            );
        }
    }

    fn done(&mut self, sync: Sync, changes: &[Change], began: Instant, report: &Report) {
        let now = Instant::now();
        self.pending.clear();
        self.waiting.installed(changes, now, &self.parts.metrics);
        let touched = if sync == Sync::Full {
            Family::BOTH.to_vec()
        } else {
            families(changes)
        };
        self.parts
            .metrics
            .synced(sync, &touched, now.saturating_duration_since(began), report);
        // All that came in is installed, also in a family that this batch had nothing of.
        self.parts.monitor.updated(&Family::BOTH, now);
        if std::mem::take(&mut self.check_flows) {
            self.end_flows(&Family::BOTH, |flows, table| flows.check(table));
        }
        if !changes.is_empty() {
            self.end_flows(&touched, |flows, table| {
                flows.changed(changes, table, began)
            });
        }
        tracing::debug!(?sync, changes = changes.len(), operations = report.operations, kernel = ?report.kernel, "installed");
    }

    fn end_flows(
        &mut self,
        families: &[Family],
        end: impl FnOnce(&mut dyn Flows, &ForwardingTable) -> Ended,
    ) {
        let began = Instant::now();
        let ended = end(self.parts.flows.as_mut(), self.cluster.table());
        self.parts
            .metrics
            .flows_ended(families, ended, began.elapsed());
        if ended != Ended::default() {
            tracing::debug!(?ended, "flows ended whose endpoint is gone");
        }
    }
}

fn new_node_ports(changes: &[Change]) -> Vec<NewNodePort> {
    let node_port = |port: &Option<Arc<ServicePort>>| {
        let frontends = port
            .as_ref()
            .map(|port| port.frontends.as_slice())
            .unwrap_or_default();
        let mut node_ports = frontends
            .iter()
            .filter(|frontend| frontend.kind == FrontendKind::NodePort)
            .peekable();
        let port = node_ports.peek()?.port;
        let addresses: Option<Vec<IpAddr>> = node_ports.map(|frontend| frontend.address).collect();
        Some((port, addresses))
    };
    let is_new = |change: &Change| {
        let (port, addresses) = node_port(&change.after)?;
        let was = node_port(&change.before);
        (was.as_ref() != Some(&(port, addresses.clone()))).then(|| NewNodePort {
            key: change.key.clone(),
            port,
            addresses,
        })
    };
    changes.iter().filter_map(is_new).collect()
}

#[cfg(test)]
mod tests;
