//! What the controller has done, in numbers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use portico_client::metrics::{Feature, Show, show_features};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::state::Call;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

/// Shared by the controller and the metrics page.
pub struct Metrics {
    registry: Mutex<Registry>,
    syncs: Counter,
    calls: Family<Operation, Counter>,
    failed_calls: Family<Operation, Counter>,
    took: Family<Operation, Histogram>,
    node_passes: Histogram,
    node_updates: Histogram,
    failed_node_updates: Counter,
    writes: Family<Operation, Counter>,
    failed_writes: Family<Operation, Counter>,
    pub(super) events: Counter,
    pub(super) dropped_events: Counter,
    services: Gauge,
    queued: Gauge,
    failing: Gauge,
    leading: Gauge,
    pub(super) moves: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 2.0, 20));
        // As kube's own controller has them, so that its dashboards fit.
        let known = || Histogram::new(exponential_buckets(1.0, 2.0, 15));
        let metrics = Self {
            registry: Mutex::default(),
            syncs: Counter::default(),
            calls: Family::default(),
            failed_calls: Family::default(),
            took: Family::new_with_constructor(histogram),
            node_passes: known(),
            node_updates: known(),
            failed_node_updates: Counter::default(),
            writes: Family::default(),
            failed_writes: Family::default(),
            events: Counter::default(),
            dropped_events: Counter::default(),
            services: Gauge::default(),
            queued: Gauge::default(),
            failing: Gauge::default(),
            leading: Gauge::default(),
            moves: Counter::default(),
        };
        let mut registry = Registry::default();
        let m = &metrics;
        registry.show(
            "service_controller_loadbalancer_sync",
            "Times a Service was worked on",
            m.syncs.clone(),
        );
        registry.show(
            "service_controller_nodesync_latency_seconds",
            "How long it took until every load balancer knew of a change of nodes",
            m.node_passes.clone(),
        );
        registry.show(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "How long it took to tell one load balancer of other nodes",
            m.node_updates.clone(),
        );
        registry.show(
            "service_controller_nodesync_error",
            "Load balancers that could not be told of other nodes",
            m.failed_node_updates.clone(),
        );
        registry.show(
            "portico_balancer_provider_calls",
            "Calls of the provider",
            m.calls.clone(),
        );
        registry.show(
            "portico_balancer_provider_failures",
            "Calls of the provider that failed",
            m.failed_calls.clone(),
        );
        registry.show(
            "portico_balancer_provider_seconds",
            "How long calls of the provider took",
            m.took.clone(),
        );
        registry.show(
            "portico_balancer_writes",
            "Patches of Services",
            m.writes.clone(),
        );
        registry.show(
            "portico_balancer_write_failures",
            "Patches of Services that failed",
            m.failed_writes.clone(),
        );
        registry.show(
            "portico_balancer_address_moves",
            "Addresses for which another node answers than before",
            m.moves.clone(),
        );
        registry.show(
            "portico_balancer_events",
            "Events written",
            m.events.clone(),
        );
        registry.show(
            "portico_balancer_events_dropped",
            "Events that were too many",
            m.dropped_events.clone(),
        );
        registry.show(
            "portico_balancer_services",
            "Services that have or get a load balancer",
            m.services.clone(),
        );
        registry.show(
            "portico_balancer_queue",
            "Services that are worked on or wait for it",
            m.queued.clone(),
        );
        registry.show(
            "portico_balancer_failing",
            "Services whose last try failed",
            m.failing.clone(),
        );
        registry.show(
            "portico_balancer_leading",
            "1 where this controller is the one that works",
            m.leading.clone(),
        );
        metrics
            .registry
            .lock()
            .map(|mut shared| *shared = registry)
            .unwrap_or_default();
        metrics
    }
}

impl Metrics {
    /// The feature gates, shown from then on.
    pub fn show_features(&self, load_balancer_ip_mode: bool) {
        let feature = Feature {
            name: "LoadBalancerIPMode",
            stage: "BETA",
            enabled: load_balancer_ip_mode,
        };
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        show_features(&mut registry, &[feature]);
    }

    /// The answer of `/metrics`.
    pub fn text(&self) -> String {
        portico_client::metrics::text(&self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Metrics of others (a provider's) are shown on the same page.
    pub fn add(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes whether this replica leads.
    pub fn lead(&self, leading: bool) {
        self.leading.set(leading.into());
    }

    pub(super) fn synced(&self) {
        self.syncs.inc();
    }

    pub(super) fn node_pass(&self, took: Duration) {
        self.node_passes.observe(took.as_secs_f64());
    }

    pub(super) fn called(&self, call: Call, took: Duration, failed: bool) {
        let operation = Operation {
            operation: name(call),
        };
        self.calls.get_or_create(&operation).inc();
        self.took
            .get_or_create(&operation)
            .observe(took.as_secs_f64());
        if call == Call::UpdateNodes {
            self.node_updates.observe(took.as_secs_f64());
            self.failed_node_updates.inc_by(failed.into());
        }
        if failed {
            self.failed_calls.get_or_create(&operation).inc();
        }
    }

    pub(super) fn wrote(&self, operation: &'static str, failed: bool) {
        let family = if failed {
            &self.failed_writes
        } else {
            &self.writes
        };
        family.get_or_create(&Operation { operation }).inc();
    }

    pub(super) fn sizes(&self, services: usize, queued: usize, failing: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.services.set(number(services));
        self.queued.set(number(queued));
        self.failing.set(number(failing));
    }
}

fn name(call: Call) -> &'static str {
    match call {
        Call::Ensure => "ensure",
        Call::UpdateNodes => "update_nodes",
        Call::Resync => "resync",
        Call::Delete | Call::DeleteOrphan => "delete",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_dashboards_know() {
        let metrics = Metrics::default();
        metrics.synced();
        metrics.called(Call::UpdateNodes, Duration::from_secs(3), true);
        metrics.node_pass(Duration::from_secs(3));
        let text = metrics.text();
        for line in [
            "service_controller_loadbalancer_sync_total 1",
            "service_controller_nodesync_error_total 1",
            r#"service_controller_nodesync_latency_seconds_bucket{le="4.0"} 1"#,
            r#"service_controller_nodesync_latency_seconds_bucket{le="2.0"} 0"#,
            "service_controller_update_loadbalancer_host_latency_seconds_count 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} in {text}");
        }
        assert!(text.contains(r#"le="16384.0""#) && !text.contains(r#"le="32768.0""#));
    }
}
