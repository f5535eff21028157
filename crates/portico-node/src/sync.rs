//! Keeps the dataplane equal to the table: everything that came in becomes one batch, at once.
//!
//! [`Syncer`] decides what to do and does it; [`run`] is the loop around it, on a thread that has a
//! runtime of its own, with the watches as its tasks: to wake another thread for each change would
//! cost more than the change. What the kernel has after an error is not guessed: everything is
//! compared.

mod announcing;
mod checks;
mod early;
mod gate;
mod heard;
mod incoming;
mod reporting;
mod visitors;
mod waiting;

use crate::announce::Announceables;
use crate::backoff::Backoff;
use crate::config::ApiAccess;
use crate::health::Monitor;
use crate::journal::Journal;
use crate::metrics::{Metrics, Sync, families};
use crate::objects::{Kind, Name, Object};
use crate::report::Installed;
use crate::rounds::Rounds;
use crate::statics::{self, InForce};
use announcing::Held;
use checks::HeldChecks;
use early::Early;
use gate::Gate;
use heard::Heard;
use incoming::Incoming;
use portico_dataplane::doorstep::{Answer, Doorstep, Visitor};
use portico_dataplane::{ApplyError, Dataplane, Report};
use portico_model::index::{DetectLocal, Index, Settings, Update};
use portico_model::objects::Node;
use portico_model::statics::is_static;
use portico_model::table::{
    Change, Family, ForwardingTable, FrontendKind, HealthCheck, NodePortAddresses, PerFamily,
    PortKey, ServiceName, ServicePort,
};
use reporting::Reporting;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use visitors::Visitors;
use waiting::Waiting;

/// A step of more inputs than this leaves memory that is worth returning.
const SMALL_STEP: usize = 32;
/// Between the end of much work and giving back the memory that only it needed: more of it may
/// follow, and the threads that helped end first.
const QUIET: Duration = Duration::from_millis(300);
/// Somebody who keeps changing our rules does not keep us busy.
const CALM: Duration = Duration::from_millis(200);

/// What comes in.
#[derive(Debug)]
pub enum Input {
    /// An object is there, or it changed; since when this is known.
    Apply(Object, Instant),
    Delete(Name, Instant),
    /// These are all of a kind.
    Listed(Kind, HashSet<Name>),
    /// All of a kind has come in up to this resource version.
    Reached(Kind, u64),
    /// The Services that others need to start, known before the lists are.
    First(Vec<Object>),
    /// What was known when the node was last up. Counts until there is something newer.
    Remembered(Vec<Object>),
    /// A file of static Services.
    Static(statics::Change),
    /// The addresses of the node's interfaces.
    Addresses(Vec<IpAddr>),
    /// Somebody else touched our rules.
    Disturbed,
    /// A packet came before its Service.
    Early(Visitor),
}

/// What others have to do because of a change, in their own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowUp {
    HealthChecks(Vec<(ServiceName, Option<HealthCheck>)>),
    NodePortAddresses(PerFamily<NodePortAddresses>),
    /// Node ports that are new, with who wants them.
    NodePorts(Vec<(PortKey, u16)>),
    /// Files of static Services that are in the kernel.
    Statics(InForce),
    /// What there is to announce of what is in the kernel.
    Announceables(Announceables),
    /// The first whole table is in the kernel.
    Installed,
    /// Much was done, and nothing since: memory can be given back.
    Quiet,
}

/// How many flows were ended.
pub type Ended = PerFamily<usize>;

/// Ends flows to endpoints that are gone, once the rules no longer lead there.
pub trait Flows: Send {
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
pub trait Door: Send {
    fn answer(&self, answers: Vec<(u32, Answer)>);
}

/// What the loop works with.
pub struct Parts {
    pub settings: Settings,
    pub dataplane: Box<dyn Dataplane>,
    pub flows: Box<dyn Flows>,
    pub monitor: Monitor,
    pub metrics: Arc<Metrics>,
    /// How often everything is compared though nothing happened.
    pub period: Duration,
    pub rounds: Rounds,
    /// How far the kernel is, for who reports it.
    pub report: watch::Sender<Option<Installed>>,
    /// Somebody wants to know what there is to announce.
    pub announcing: bool,
    /// Where what the API server told is remembered.
    pub journal: Option<Journal>,
    /// Nobody arrives where there is none.
    pub door: Option<Box<dyn Door>>,
    /// Returns to the system what the allocator has left of much work on the calling thread: in the
    /// middle of a change that would take longer than the change.
    pub free: fn(),
}

/// What the loop waits for.
pub struct Sources {
    pub access: ApiAccess,
    pub node: Arc<str>,
    /// Set when the API server first answers a watch.
    pub answered: Arc<watch::Sender<bool>>,
    pub doorstep: Option<Doorstep>,
    pub inputs: mpsc::Receiver<Input>,
}

/// Works until every sender of inputs is gone. To be called on a thread of its own, which also waits
/// for the kernel.
pub fn run(parts: Parts, sources: Sources, follow_ups: mpsc::Sender<FollowUp>) -> io::Result<()> {
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
            // Nobody listens any more only at the end.
            let _ = follow_ups.send(follow_up).await;
        }
    }
}

struct Syncer {
    parts: Parts,
    index: Index,
    /// Interfaces' addresses, the Node and the ServiceCIDRs once more, for a table of the first
    /// Services.
    addresses: Vec<IpAddr>,
    node: Option<Box<Node>>,
    cidrs: HashSet<String>,
    gate: Gate,
    early: Early,
    heard: Heard,
    /// Files of static Services, and those that were last told to be in the kernel.
    statics: InForce,
    told: InForce,
    /// The first whole table is in the kernel.
    installed: bool,
    /// Ports that changed and are not in the kernel yet, with what the kernel has.
    owed: BTreeMap<PortKey, Option<Arc<ServicePort>>>,
    /// Everything is to be compared, and when.
    compare: Option<Instant>,
    compared: Instant,
    /// When it is though nothing happened.
    next_round: Instant,
    backoff: Backoff,
    /// Something was tried that failed, so that differences need not be somebody else's work.
    half_done: bool,
    reporting: Reporting,
    held: Held,
    checks: HeldChecks,
    /// All flows are to be looked at: at start, and when node ports moved.
    check_flows: bool,
    waiting: Waiting,
    visitors: Visitors,
    /// When what is left of much work is given back.
    quiet_at: Option<Instant>,
    follow_ups: Vec<FollowUp>,
}

impl Syncer {
    fn new(parts: Parts, now: Instant) -> Syncer {
        let mut index = Index::new(parts.settings.clone());
        if parts.announcing {
            index = index.with_announcing();
        }
        let gate = Gate::new(now, parts.settings.detect_local == DetectLocal::NodeCidr);
        parts.monitor.set_eligible(index.eligible());
        // Some settings say it all before anything is known; later only changes are told.
        let follow_ups = vec![FollowUp::NodePortAddresses(
            index.table().rules.node_ports.clone(),
        )];
        Syncer {
            parts,
            index,
            addresses: Vec::new(),
            node: None,
            cidrs: HashSet::new(),
            gate,
            early: Early::default(),
            heard: Heard::default(),
            statics: InForce::new(),
            told: InForce::new(),
            installed: false,
            owed: BTreeMap::new(),
            compare: Some(now),
            compared: now,
            next_round: now,
            backoff: Backoff::default(),
            half_done: false,
            reporting: Reporting::default(),
            held: Held::default(),
            checks: HeldChecks::default(),
            check_flows: true,
            waiting: Waiting::default(),
            visitors: Visitors::default(),
            quiet_at: None,
            follow_ups,
        }
    }

    /// When [`Syncer::step`] has something to do though nothing comes in.
    fn deadline(&self) -> Option<Instant> {
        match self.installed {
            true => {
                let compare = self.compare.unwrap_or(self.next_round);
                let (flows, dataplane) = (self.parts.flows.due(), self.parts.dataplane.due());
                let due = [
                    flows,
                    dataplane,
                    self.reporting.due(),
                    self.visitors.due(),
                    self.quiet_at,
                ];
                due.into_iter().flatten().chain([compare]).min()
            }
            false => {
                let opens = self
                    .gate
                    .opens()
                    .map(|opens| opens.max(self.compare.unwrap_or(opens)));
                opens.into_iter().chain(self.visitors.due()).min()
            }
        }
    }

    /// Everything is as it should be.
    fn set_compared(&mut self, now: Instant) {
        self.compared = now;
        self.next_round = self.parts.rounds.next(now, self.parts.period);
    }

    /// Installs what came in, and some time after much work returns the memory that only that work
    /// needed.
    fn step_and_free(&mut self, inputs: usize, now: Instant) -> Vec<FollowUp> {
        let large = self.compare.is_some() || inputs > SMALL_STEP;
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
                    false => self.heard.one(object.name()),
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
                self.delete(&name);
                if let Some(journal) = &self.parts.journal {
                    journal.delete(&name);
                }
                if !self.installed {
                    self.heard.one(name);
                }
            }
            Input::Listed(kind, names) => {
                self.listed(kind, &names);
                self.heard.all(kind);
                if let Some(journal) = &self.parts.journal {
                    journal.listed(kind, &names);
                }
            }
            Input::Reached(kind, version) => self.reporting.reached(kind, version),
            Input::First(objects) => self.early.set_first(objects),
            Input::Static(change) => self.take_static(change),
            Input::Remembered(objects) => self.remembered(objects),
            Input::Addresses(addresses) => {
                if self.addresses != addresses && self.parts.dataplane.depends_on_addresses() {
                    self.compare.get_or_insert(now);
                }
                self.addresses.clone_from(&addresses);
                self.index.set_addresses(addresses);
            }
            Input::Disturbed => {
                let calm = now.max(self.compared + CALM);
                self.compare.get_or_insert(calm);
            }
            Input::Early(visitor) => self.visitors.arrive(visitor, now),
        }
    }

    fn count(&self, kind: Kind) {
        let metrics = &self.parts.metrics;
        let (total, pending) = match kind {
            Kind::Service => (&metrics.service_changes, &metrics.service_changes_pending),
            Kind::Slice => (&metrics.endpoint_changes, &metrics.endpoint_changes_pending),
            Kind::Node | Kind::Cidr => return,
        };
        total.inc();
        pending.inc();
    }

    fn apply(&mut self, object: &Object) {
        match object {
            Object::Service(service) => self.index.apply_service(service),
            Object::Slice(slice) => self.index.apply_slice(slice),
            Object::Node(node) => self.apply_node(Node::clone(node)),
            Object::Cidr(cidr) => {
                self.cidrs.insert(cidr.metadata.name.clone());
                self.index.apply_service_cidr(cidr);
            }
        }
    }

    fn apply_node(&mut self, node: Node) {
        if !node.spec.pod_cidr.is_empty() || !node.spec.pod_cidrs.is_empty() {
            self.gate.pod_networks_known();
        }
        self.index.apply_node(&node);
        self.node = Some(Box::new(node));
    }

    fn delete(&mut self, name: &Name) {
        match name.kind {
            Kind::Service => self.index.delete_service(&name.namespace, &name.name),
            Kind::Slice => self.index.delete_slice(&name.namespace, &name.name),
            Kind::Node => self.index.delete_node(&name.name),
            Kind::Cidr => {
                self.cidrs.remove(&name.name);
                self.index.delete_service_cidr(&name.name);
            }
        }
    }

    /// What a list does not have is gone.
    fn listed(&mut self, kind: Kind, names: &HashSet<Name>) {
        let known = match kind {
            Kind::Service => self.index.service_names(),
            Kind::Slice => self.index.slice_names(),
            Kind::Node => Vec::new(),
            Kind::Cidr => self
                .cidrs
                .iter()
                .map(|name| (Arc::default(), name.as_str().into()))
                .collect(),
        };
        for (namespace, name) in known
            .into_iter()
            .filter(|(namespace, _)| !is_static(namespace))
        {
            let name = Name {
                kind,
                namespace: namespace.to_string(),
                name: name.to_string(),
            };
            if !names.contains(&name) {
                self.delete(&name);
            }
        }
        self.gate.listed(kind);
    }

    fn take_static(&mut self, change: statics::Change) {
        if !self.installed {
            self.early.set_static(&change);
        }
        match change.version {
            Some(version) => self.statics.insert(change.file, version),
            None => self.statics.remove(&change.file),
        };
        change.gone.iter().for_each(|name| self.delete(name));
        change.objects.iter().for_each(|object| self.apply(object));
    }

    /// A table of its own, so that what is already there of a list stays out.
    fn install_early(&mut self) {
        let Some(objects) = self.early.take(self.parts.dataplane.as_mut()) else {
            return;
        };
        let mut index = Index::new(self.parts.settings.clone());
        index.set_addresses(self.addresses.clone());
        self.node.iter().for_each(|node| index.apply_node(node));
        for object in objects {
            match object {
                Object::Service(service) => index.apply_service(&service),
                Object::Slice(slice) => index.apply_slice(&slice),
                Object::Node(_) | Object::Cidr(_) => {}
            }
        }
        index.take();
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
            .filter(|object| self.heard.is_news(object))
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
        let update = self.index.take();
        self.note(update, now);
        match self.installed || self.gate.is_open(now) {
            true => self.install(now),
            false => self.install_early(),
        }
        if self.owed.is_empty() {
            // What is left came in and changed nothing.
            self.waiting.clear();
            self.parts.metrics.nothing_is_pending();
        }
        let done = self.installed && self.owed.is_empty() && !self.backoff.is_failing();
        if done {
            self.tell_statics();
            self.tell_announceables();
        }
        self.follow_ups
            .extend(self.checks.release(done).map(FollowUp::HealthChecks));
        self.reporting
            .tell(&self.parts.report, done, &self.index.table().frontends, now);
        if self.parts.flows.due().is_some_and(|due| due <= now) {
            self.end_flows(&Family::BOTH, |flows, table| flows.check_due(table, now));
        }
        if self.parts.dataplane.due().is_some_and(|due| due <= now)
            && let Err(error) = self.parts.dataplane.tend(now)
        {
            tracing::warn!(%error, "cannot finish what had to wait, comparing everything");
            self.half_done = true;
            self.compare = Some(now);
        }
        if !self.visitors.is_empty() {
            self.answer_visitors(done, now);
        }
        std::mem::take(&mut self.follow_ups)
    }

    /// What is not known to be in the kernel is not there yet.
    fn answer_visitors(&mut self, done: bool, now: Instant) {
        let installed = done.then(|| self.index.table());
        let answers = self.visitors.answers(installed, now);
        self.parts.metrics.answered(&answers);
        if let Some(door) = self.parts.door.as_ref().filter(|_| !answers.is_empty()) {
            door.answer(answers);
        }
    }

    fn tell_statics(&mut self) {
        if self.told != self.statics {
            self.told.clone_from(&self.statics);
            self.follow_ups.push(FollowUp::Statics(self.told.clone()));
        }
    }

    fn tell_announceables(&mut self) {
        if self.parts.announcing {
            self.follow_ups
                .extend(self.held.release().map(FollowUp::Announceables));
        }
    }

    /// Remember what an update asks for.
    fn note(&mut self, update: Update, now: Instant) {
        for problem in &update.problems {
            tracing::warn!("{problem}");
        }
        self.reporting.changed(&update);
        if update.eligible {
            self.parts.monitor.set_eligible(self.index.eligible());
        }
        if update.rules {
            self.follow_ups.push(FollowUp::NodePortAddresses(
                self.index.table().rules.node_ports.clone(),
            ));
            self.check_flows = true;
            if !self.backoff.is_failing() {
                self.compare = Some(now);
            }
        }
        self.checks.hold(update.health_checks);
        let node_ports = new_node_ports(&update.changes);
        if !node_ports.is_empty() {
            self.follow_ups.push(FollowUp::NodePorts(node_ports));
        }
        self.held.hold(update.announceables);
        self.parts.metrics.changed(&update.changes);
        for family in families(&update.changes) {
            self.parts.monitor.queued(family, now);
            self.parts.metrics.queued(family);
        }
        // The first table is compared as a whole with what is there.
        for change in update.changes.into_iter().filter(|_| self.installed) {
            self.owed.entry(change.key).or_insert(change.before);
        }
    }

    fn install(&mut self, now: Instant) {
        let by_timer = self.installed && self.compare.is_none() && self.next_round <= now;
        if by_timer && self.parts.dataplane.is_undisturbed() {
            self.set_compared(now);
        }
        let due = self.compare.unwrap_or(self.next_round);
        if due <= now {
            self.compare_all(now);
        } else if !self.owed.is_empty() && !self.backoff.is_failing() {
            self.apply_changes(now);
        }
    }

    fn apply_changes(&mut self, now: Instant) {
        let changes = self.changes();
        if changes.is_empty() {
            self.owed.clear();
            return;
        }
        let began = Instant::now();
        match self
            .parts
            .dataplane
            .apply(&self.index.table().rules, &changes)
        {
            Ok(report) => self.done(Sync::Partial, &changes, began, &report),
            Err(error) => {
                tracing::warn!(%error, changes = changes.len(), "cannot install changes, comparing everything");
                self.parts.metrics.failed(&families(&changes));
                self.half_done = true;
                self.compare_all(now);
            }
        }
    }

    fn compare_all(&mut self, now: Instant) {
        let changes = self.changes();
        let began = Instant::now();
        match self.parts.dataplane.replace(self.index.table()) {
            Ok(mut report) => {
                self.compare = None;
                self.set_compared(now);
                self.backoff.reset();
                if std::mem::take(&mut self.half_done) || !self.installed {
                    report.drift.clear();
                }
                self.report_drift(&report);
                self.done(Sync::Full, &changes, began, &report);
                if !std::mem::replace(&mut self.installed, true) {
                    self.heard = Heard::default();
                    let (ports, took) = (self.index.table().ports.len(), began.elapsed());
                    tracing::info!(ports, ?took, kernel = ?report.kernel, "the whole table is installed");
                    self.follow_ups.push(FollowUp::Installed);
                }
            }
            Err(error) => self.failed(&error, now),
        }
    }

    fn failed(&mut self, error: &ApplyError, now: Instant) {
        let again = self.backoff.next();
        self.compare = Some(now + again);
        self.half_done = true;
        self.parts.metrics.failed(&Family::BOTH);
        // Also where nothing came in: the kernel may not have what it should have.
        Family::BOTH
            .into_iter()
            .for_each(|family| self.parts.monitor.queued(family, Instant::now()));
        self.reporting.failed(error);
        tracing::error!(%error, ?again, "cannot install the table, will try again");
    }

    /// The installed table differs from what we last installed: somebody else was there.
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
        self.owed.clear();
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
        let ended = end(self.parts.flows.as_mut(), self.index.table());
        self.parts
            .metrics
            .flows_ended(families, ended, began.elapsed());
        if ended != Ended::default() {
            tracing::debug!(?ended, "flows ended whose endpoint is gone");
        }
    }

    /// From what the kernel has to what it should have.
    fn changes(&self) -> Vec<Change> {
        let ports = &self.index.table().ports;
        let change = |(key, before): (&PortKey, &Option<Arc<ServicePort>>)| {
            let after = ports.get(key).cloned();
            (*before != after).then(|| Change {
                key: key.clone(),
                before: before.clone(),
                after,
            })
        };
        self.owed.iter().filter_map(change).collect()
    }
}

fn new_node_ports(changes: &[Change]) -> Vec<(PortKey, u16)> {
    let node_port = |port: &Option<Arc<ServicePort>>| {
        let frontends = port
            .as_ref()
            .map(|port| port.frontends.as_slice())
            .unwrap_or_default();
        frontends
            .iter()
            .find(|frontend| frontend.kind == FrontendKind::NodePort)
            .map(|frontend| frontend.port)
    };
    let is_new = |change: &Change| {
        let port = node_port(&change.after)?;
        (node_port(&change.before) != Some(port)).then(|| (change.key.clone(), port))
    };
    changes.iter().filter_map(is_new).collect()
}

#[cfg(test)]
mod tests;
