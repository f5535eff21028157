//! What the daemon counts and measures. Names are kube-proxy's where it has one, so that its
//! dashboards go on working; our own begin with `portico_`.

mod connections;
mod process;
pub(crate) mod recent;
pub(crate) mod server;
mod slowest;

use portico_client::metrics::{Feature, Show, show_features};
use portico_dataplane::early_packets::Answer;
use portico_model::index::Settings;
use portico_model::key::ObjectKey;
use portico_model::table::{
    Change, Family as IpFamily, Frontend, FrontendKind, Outcome, PerFamily,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets, linear_buckets};
use prometheus_client::registry::Registry;
use recent::Recent;
use slowest::Slowest;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OfFamily {
    ip_family: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OfPolicy {
    traffic_policy: &'static str,
    ip_family: &'static str,
}

fn of(family: IpFamily) -> OfFamily {
    OfFamily {
        ip_family: name(family),
    }
}

fn name(family: IpFamily) -> &'static str {
    match family {
        IpFamily::V4 => "IPv4",
        IpFamily::V6 => "IPv6",
    }
}

type Seconds = Gauge<f64, AtomicU64>;
type Histograms = ByFamily<Histogram>;

/// A metric for each IP family, found without a look into a table: these are used for each change.
struct ByFamily<M> {
    all: Family<OfFamily, M, fn() -> M>,
    known: PerFamily<OnceLock<M>>,
}

impl<M: Clone> ByFamily<M> {
    fn new(make: fn() -> M) -> Self {
        Self {
            all: Family::new_with_constructor(make),
            known: PerFamily::default(),
        }
    }

    fn get(&self, family: IpFamily) -> &M {
        self.known
            .get(family)
            .get_or_init(|| self.all.get_or_create_owned(&of(family)))
    }
}

/// A histogram from a millisecond to 16 seconds, as kube-proxy has it.
fn of_syncs() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

/// A histogram from 50 microseconds to 26 seconds.
fn fine() -> Histogram {
    Histogram::new(exponential_buckets(0.00005, 2.0, 20))
}

fn of_programming() -> Histogram {
    let buckets = linear_buckets(0.25, 0.25, 2).chain(linear_buckets(1.0, 1.0, 59));
    Histogram::new(
        buckets
            .chain(linear_buckets(60.0, 5.0, 12))
            .chain(linear_buckets(120.0, 30.0, 7)),
    )
}

/// Whether everything was looked at, or only what changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Full,
    Partial,
}

pub(crate) struct Metrics {
    registry: Registry,
    sync: Histograms,
    full_sync: Histograms,
    partial_sync: Histograms,
    last_sync: ByFamily<Seconds>,
    last_queued: ByFamily<Seconds>,
    network_programming: Histograms,
    pub endpoint_changes_pending: Gauge,
    pub endpoint_changes: Counter,
    pub service_changes_pending: Gauge,
    pub service_changes: Counter,
    without_local_endpoints: Family<OfPolicy, Gauge>,
    sync_failures: Family<OfFamily, Counter>,
    conntrack: Histograms,
    conntrack_deleted: ByFamily<Counter>,
    pub health: crate::health::node::Answers,
    service_programming: Histogram,
    slowest: Slowest,
    pub recent: Recent,
    drift_repairs: Counter,
    kernel: Histogram,
    pub operations: Counter,
    early_served: Counter,
    early_let_go: Counter,
    pub bgp: crate::announce::bgp::Metrics,
    pub l2: crate::announce::l2::Metrics,
}

impl Metrics {
    pub(crate) fn show_features(&mut self, settings: &Settings) {
        let gate = |name, stage, enabled| Feature {
            name,
            stage,
            enabled,
        };
        let features = [
            gate("AllowServiceExternalIPs", "", settings.external_ips),
            gate("LoadBalancerIPMode", "BETA", settings.load_balancer_ip_mode),
        ];
        show_features(&mut self.registry, &features);
    }

    /// The names of failures follow the mode.
    pub(crate) fn new(mode: &str) -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            sync: Histograms::new(of_syncs),
            full_sync: Histograms::new(of_syncs),
            partial_sync: Histograms::new(of_syncs),
            last_sync: ByFamily::new(Seconds::default),
            last_queued: ByFamily::new(Seconds::default),
            network_programming: Histograms::new(of_programming),
            endpoint_changes_pending: Gauge::default(),
            endpoint_changes: Counter::default(),
            service_changes_pending: Gauge::default(),
            service_changes: Counter::default(),
            without_local_endpoints: Family::default(),
            sync_failures: Family::default(),
            conntrack: Histograms::new(of_syncs),
            conntrack_deleted: ByFamily::new(Counter::default),
            health: crate::health::node::Answers::default(),
            service_programming: fine(),
            slowest: Slowest::default(),
            recent: Recent::default(),
            drift_repairs: Counter::default(),
            kernel: fine(),
            operations: Counter::default(),
            early_served: Counter::default(),
            early_let_go: Counter::default(),
            bgp: crate::announce::bgp::Metrics::default(),
            l2: crate::announce::l2::Metrics::default(),
        };
        metrics.register(mode);
        for family in IpFamily::BOTH {
            metrics.conntrack_deleted.get(family);
            drop(metrics.sync_failures.get_or_create_owned(&of(family)));
            ["internal", "external"]
                .into_iter()
                .for_each(|policy| drop(metrics.without_local(policy, family)));
        }
        metrics
    }

    fn register(&mut self, mode: &str) {
        let proxy = self.registry.sub_registry_with_prefix("kubeproxy");
        let rules = "sync_proxy_rules";
        let mut add =
            |name: String, help: &str, metric: Box<dyn Metric>| metric.register(proxy, name, help);
        add(
            format!("{rules}_duration_seconds"),
            "Time to install changes",
            boxed(&self.sync.all),
        );
        add(
            "sync_full_proxy_rules_duration_seconds".into(),
            "Time to compare and repair everything",
            boxed(&self.full_sync.all),
        );
        add(
            "sync_partial_proxy_rules_duration_seconds".into(),
            "Time to install single changes",
            boxed(&self.partial_sync.all),
        );
        add(
            format!("{rules}_last_timestamp_seconds"),
            "When everything was last installed",
            boxed(&self.last_sync.all),
        );
        add(
            format!("{rules}_last_queued_timestamp_seconds"),
            "When a change last came in",
            boxed(&self.last_queued.all),
        );
        add(
            "network_programming_duration_seconds".into(),
            "From a change of endpoints to its being installed",
            boxed(&self.network_programming.all),
        );
        add(
            format!("{rules}_endpoint_changes_pending"),
            "Changes of endpoints not yet installed",
            boxed(&self.endpoint_changes_pending),
        );
        add(
            format!("{rules}_endpoint_changes"),
            "Changes of endpoints",
            boxed(&self.endpoint_changes),
        );
        add(
            format!("{rules}_service_changes_pending"),
            "Changes of Services not yet installed",
            boxed(&self.service_changes_pending),
        );
        add(
            format!("{rules}_service_changes"),
            "Changes of Services",
            boxed(&self.service_changes),
        );
        add(
            format!("{rules}_no_local_endpoints_total"),
            "Ports of Services with a Local policy that have no endpoint here",
            boxed(&self.without_local_endpoints),
        );
        let failures = if mode == "nftables" {
            "nftables_sync_failures"
        } else {
            "iptables_restore_failures"
        };
        add(
            format!("{rules}_{failures}"),
            "Installations that failed",
            boxed(&self.sync_failures),
        );
        add(
            "conntrack_reconciler_sync_duration_seconds".into(),
            "Time to end flows to endpoints that are gone",
            boxed(&self.conntrack.all),
        );
        add(
            "conntrack_reconciler_deleted_entries".into(),
            "Flows ended because their endpoint was gone",
            boxed(&self.conntrack_deleted.all),
        );
        add(
            "proxy_healthz".into(),
            "Answers of /healthz",
            boxed(&self.health.healthz),
        );
        add(
            "proxy_livez".into(),
            "Answers of /livez",
            boxed(&self.health.livez),
        );
        let ours = self.registry.sub_registry_with_prefix("portico");
        let mut add = |name: &str, help: &str, metric: Box<dyn Metric>| {
            metric.register(ours, name.into(), help)
        };
        add(
            "service_programming_duration_seconds",
            "From an event of the API server to its being installed",
            boxed(&self.service_programming),
        );
        add(
            "drift_repairs",
            "Differences found in the kernel and repaired",
            boxed(&self.drift_repairs),
        );
        add(
            "kernel_duration_seconds",
            "Time the kernel (or a helper program) took for an installation",
            boxed(&self.kernel),
        );
        add(
            "operations",
            "Elements, rules and chains sent to the kernel",
            boxed(&self.operations),
        );
        add(
            "early_connections_served",
            "Connections that came before their Service was installed, and waited for it",
            boxed(&self.early_served),
        );
        add(
            "early_connections_let_go",
            "Connections to addresses of Services that none has, which waited in vain",
            boxed(&self.early_let_go),
        );
        self.bgp.register(ours);
        self.l2.register(ours);
        self.registry
            .register_collector(Box::new(self.slowest.clone()));
        self.registry.register_collector(Box::new(process::Process));
    }

    /// Tell how many connections each endpoint has, too.
    pub(crate) fn count_connections(&mut self) {
        self.registry
            .register_collector(Box::new(connections::Connections));
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(&self) -> String {
        portico_client::metrics::text(&self.registry)
    }

    pub(crate) fn queued(&self, family: IpFamily) {
        self.last_queued.get(family).set(now());
    }

    pub(crate) fn synced(
        &self,
        sync: Sync,
        families: &[IpFamily],
        took: Duration,
        report: &portico_dataplane::Report,
    ) {
        let now = now();
        for family in families {
            let histograms = if sync == Sync::Full {
                &self.full_sync
            } else {
                &self.partial_sync
            };
            for histograms in [&self.sync, histograms] {
                histograms.get(*family).observe(took.as_secs_f64());
            }
            self.last_sync.get(*family).set(now);
        }
        self.kernel.observe(report.kernel.as_secs_f64());
        self.operations.inc_by(report.operations as u64);
        self.drift_repairs.inc_by(report.drift.len() as u64);
    }

    pub(crate) fn nothing_is_pending(&self) {
        self.endpoint_changes_pending.set(0);
        self.service_changes_pending.set(0);
    }

    pub(crate) fn failed(&self, families: &[IpFamily]) {
        for family in families {
            self.sync_failures.get_or_create(&of(*family)).inc();
        }
    }

    /// A change of a Service went from the API server's event to the kernel in this time.
    pub(crate) fn programmed(&self, service: &ObjectKey, took: Duration, now: Instant) {
        self.service_programming.observe(took.as_secs_f64());
        self.slowest.saw(service, took, now);
        self.recent.saw(took);
    }

    /// A change of endpoints that happened in the cluster at this time is installed.
    pub(crate) fn network_programmed(&self, family: IpFamily, since: SystemTime) {
        let took = SystemTime::now().duration_since(since).unwrap_or_default();
        self.network_programming
            .get(family)
            .observe(took.as_secs_f64());
    }

    pub(crate) fn flows_ended(
        &self,
        families: &[IpFamily],
        ended: PerFamily<usize>,
        took: Duration,
    ) {
        for family in families {
            self.conntrack.get(*family).observe(took.as_secs_f64());
            self.conntrack_deleted
                .get(*family)
                .inc_by(*ended.get(*family) as u64);
        }
    }

    /// Packets that came before their Service.
    pub(crate) fn answered(&self, answers: &[(u32, Answer)]) {
        let served = answers
            .iter()
            .filter(|(_, answer)| *answer == Answer::Again)
            .count();
        self.early_served.inc_by(served as u64);
        self.early_let_go.inc_by((answers.len() - served) as u64);
    }

    /// Ports that have no endpoint on this node, though their policy wants one.
    pub(crate) fn changed(&self, changes: &[Change]) {
        for change in changes {
            for policy in without_local(change.after.as_deref()) {
                self.without_local(policy, change.key.family).inc();
            }
            for policy in without_local(change.before.as_deref()) {
                self.without_local(policy, change.key.family).dec();
            }
        }
    }

    fn without_local(&self, traffic_policy: &'static str, family: IpFamily) -> Gauge {
        self.without_local_endpoints.get_or_create_owned(&OfPolicy {
            traffic_policy,
            ip_family: name(family),
        })
    }
}

fn without_local(port: Option<&portico_model::table::ServicePort>) -> BTreeSet<&'static str> {
    let policy = |frontend: &Frontend| match frontend.kind {
        FrontendKind::ClusterIp => "internal",
        _ => "external",
    };
    let frontends = port.into_iter().flat_map(|port| &port.frontends);
    frontends
        .filter(|frontend| frontend.outside == Outcome::Drop)
        .map(policy)
        .collect()
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// The families that changes touch.
pub(crate) fn families(changes: &[Change]) -> Vec<IpFamily> {
    let mut touched = PerFamily::<bool>::default();
    changes
        .iter()
        .for_each(|change| *touched.get_mut(change.key.family) = true);
    IpFamily::BOTH
        .into_iter()
        .filter(|family| *touched.get(*family))
        .collect()
}

/// So that metrics of all types can be registered in the same words.
trait Metric {
    fn register(self: Box<Self>, registry: &mut Registry, name: String, help: &str);
}

impl<M: prometheus_client::registry::Metric> Metric for M {
    fn register(self: Box<Self>, registry: &mut Registry, name: String, help: &str) {
        registry.show(name, help, *self);
    }
}

fn boxed<M: Clone + prometheus_client::registry::Metric>(metric: &M) -> Box<dyn Metric> {
    Box::new(metric.clone())
}

#[cfg(test)]
mod tests;
