//! What the daemon counts. Names begin with `portico_dns_`.

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use portico_client::metrics::Show;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicI64;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Query {
    transport: &'static str,
    record_type: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Outcome {
    pub outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct OfNode {
    pub node: String,
}

pub(crate) struct Metrics {
    registry: Registry,
    queries: Family<Query, Counter>,
    pub limited: Family<Outcome, Counter>,
    pub connections: Gauge,
    pub refused_connections: Counter,
    pub transfers: Family<Outcome, Counter>,
    pub notifies: Family<Outcome, Counter>,
    pub names: Gauge,
    pub serial: Gauge<i64, AtomicI64>,
    pub complete: Gauge,
    pub node_given: Family<OfNode, Gauge>,
    pub nobody_fit: Gauge,
    pub probed: Gauge,
    pub probes: Family<Outcome, Counter>,
    pub watch_failures: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("portico_dns"),
            queries: Family::default(),
            limited: Family::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            transfers: Family::default(),
            notifies: Family::default(),
            names: Gauge::default(),
            serial: Gauge::default(),
            complete: Gauge::default(),
            node_given: Family::default(),
            nobody_fit: Gauge::default(),
            probed: Gauge::default(),
            probes: Family::default(),
            watch_failures: Counter::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.show(
            "queries",
            "Questions that were answered",
            self.queries.clone(),
        );
        registry.show(
            "limited",
            "Questions over the limit of their network",
            self.limited.clone(),
        );
        registry.show(
            "tcp_connections",
            "Connections by TCP",
            self.connections.clone(),
        );
        registry.show(
            "tcp_refused",
            "Connections for which there was no room",
            self.refused_connections.clone(),
        );
        registry.show("transfers", "Transfers of the zone", self.transfers.clone());
        registry.show(
            "notifies",
            "Secondaries told of changes",
            self.notifies.clone(),
        );
        registry.show("names", "Names with records", self.names.clone());
        registry.show("serial", "The serial of the zone", self.serial.clone());
        registry.show(
            "complete",
            "Whether everything is known that the zone is made from",
            self.complete.clone(),
        );
        registry.show(
            "node_given",
            "Whether a node is given for Services on all nodes",
            self.node_given.clone(),
        );
        registry.show(
            "nobody_fit",
            "Whether all nodes are given because none is fit",
            self.nobody_fit.clone(),
        );
        registry.show(
            "probed_addresses",
            "Addresses that are probed",
            self.probed.clone(),
        );
        registry.show("probes", "Probes that were made", self.probes.clone());
        registry.show(
            "watch_failures",
            "Failed attempts to read from the API server",
            self.watch_failures.clone(),
        );
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(&self) -> String {
        portico_client::metrics::text(&self.registry)
    }

    pub(crate) fn answered(
        &self,
        transport: &'static str,
        kind: Option<RecordType>,
        code: ResponseCode,
    ) {
        let query = Query {
            transport,
            record_type: type_name(kind),
            code: code_name(code),
        };
        self.queries.get_or_create(&query).inc();
    }
}

/// Clients must not be able to make as many series as there are types.
fn type_name(kind: Option<RecordType>) -> &'static str {
    match kind {
        Some(RecordType::A) => "A",
        Some(RecordType::AAAA) => "AAAA",
        Some(RecordType::SRV) => "SRV",
        Some(RecordType::CNAME) => "CNAME",
        Some(RecordType::NS) => "NS",
        Some(RecordType::SOA) => "SOA",
        Some(RecordType::ANY) => "ANY",
        Some(RecordType::AXFR) => "AXFR",
        Some(RecordType::IXFR) => "IXFR",
        _ => "other",
    }
}

fn code_name(code: ResponseCode) -> &'static str {
    match code {
        ResponseCode::NoError => "NOERROR",
        ResponseCode::FormErr => "FORMERR",
        ResponseCode::ServFail => "SERVFAIL",
        ResponseCode::NXDomain => "NXDOMAIN",
        ResponseCode::NotImp => "NOTIMP",
        ResponseCode::Refused => "REFUSED",
        ResponseCode::NotAuth => "NOTAUTH",
        ResponseCode::BADVERS => "BADVERS",
        _ => "other",
    }
}
