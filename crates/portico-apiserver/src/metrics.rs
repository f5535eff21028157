//! What the server counts, for `/metrics`.

use portico_api::gates::Gates;
use portico_client::connections;
use portico_client::metrics::{Feature, Show, show_features};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    resource: String,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    verb: &'static str,
    resource: String,
}

/// The level that was refused, and for want of what, in the labels of Kubernetes' priority and
/// fairness.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Refused {
    pub priority_level: &'static str,
    pub reason: &'static str,
}

/// Why a connection was refused or ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Party {
    state: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    seconds: Family<Timed, Histogram, fn() -> Histogram>,
    pub watchers: Gauge,
    terminations: Counter,
    refusals: Family<Refused, Counter>,
    connections: Family<Party, Gauge>,
    ended: Family<Ended, Counter>,
    pub revision: Gauge,
    pub objects: Family<Kind, Gauge>,
    pub writable: Gauge,
    pub damaged: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Kind {
    pub resource: String,
}

impl Metrics {
    pub(crate) fn new(gates: &Gates) -> Self {
        let mut registry = Registry::default();
        let features = gates.all().into_iter();
        let features = features.map(|(name, stage, enabled)| Feature {
            name,
            stage,
            enabled,
        });
        show_features(&mut registry, &features.collect::<Vec<_>>());
        let requests = Family::default();
        let seconds: Family<Timed, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(SECONDS));
        let (watchers, terminations, revision, objects) = (
            Gauge::default(),
            Counter::default(),
            Gauge::default(),
            Family::default(),
        );
        let (refusals, connections, ended) =
            (Family::default(), Family::default(), Family::default());
        registry.show(
            "apiserver_request",
            "Requests by verb, resource and code",
            requests.clone(),
        );
        registry.show(
            "apiserver_request_duration_seconds",
            "How long requests took, watches apart",
            seconds.clone(),
        );
        registry.show(
            "apiserver_longrunning_requests",
            "Open watches",
            watchers.clone(),
        );
        registry.show(
            "apiserver_request_terminations",
            "Requests refused because the server was full",
            terminations.clone(),
        );
        registry.show(
            "apiserver_flowcontrol_rejected_requests",
            "Requests refused, by level of the user and by what there was no share of",
            refusals.clone(),
        );
        registry.show(
            "portico_apiserver_connections",
            "Open connections of those who have said who they are, and of strangers",
            connections.clone(),
        );
        registry.show(
            "portico_apiserver_connections_ended",
            "Connections refused or ended for want of room, or because of silence",
            ended.clone(),
        );
        registry.show(
            "portico_store_revision",
            "The newest revision of the store",
            revision.clone(),
        );
        registry.show(
            "apiserver_storage_objects",
            "Stored objects by resource",
            objects.clone(),
        );
        let (writable, damaged) = (Gauge::default(), Gauge::default());
        registry.show(
            "portico_store_writable",
            "1 while writes can succeed, 0 while none can: the disk or etcd has no room",
            writable.clone(),
        );
        registry.show(
            "portico_store_damaged_objects",
            "Stored objects that were found damaged and are not served",
            damaged.clone(),
        );
        Self {
            registry,
            requests,
            seconds,
            watchers,
            terminations,
            refusals,
            connections,
            ended,
            revision,
            objects,
            writable,
            damaged,
        }
    }

    pub(crate) fn count(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        let resource = resource.to_owned();
        if verb != "watch" {
            self.seconds
                .get_or_create(&Timed {
                    verb,
                    resource: resource.clone(),
                })
                .observe(took.as_secs_f64());
        }
        self.requests
            .get_or_create(&Request {
                verb,
                resource,
                code,
            })
            .inc();
    }

    pub(crate) fn refused(&self, refused: Refused) {
        self.terminations.inc();
        self.refusals.get_or_create(&refused).inc();
    }

    pub(crate) fn connection_ended(&self, reason: connections::Reason) {
        let reason = reason.name();
        self.ended.get_or_create(&Ended { reason }).inc();
    }

    pub(crate) fn set_connections(&self, known: usize, strangers: usize) {
        for (state, count) in [("known", known), ("strangers", strangers)] {
            self.connections
                .get_or_create(&Party { state })
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> String {
        portico_client::metrics::text(&self.registry)
    }
}
