//! Calls of clouds, in numbers: by provider, operation and what was answered.

use std::time::Duration;

use portico_client::metrics::Show;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    provider: &'static str,
    operation: &'static str,
    /// 0 where there was no answer.
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    provider: &'static str,
    operation: &'static str,
}

/// Shared: clones count together.
#[derive(Clone)]
pub struct CallMetrics {
    calls: Family<Answered, Counter>,
    took: Family<Operation, Histogram, fn() -> Histogram>,
}

impl Default for CallMetrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(exponential_buckets(0.01, 2.0, 12));
        Self {
            calls: Family::default(),
            took: Family::new_with_constructor(histogram),
        }
    }
}

impl CallMetrics {
    /// Adds the metrics to the registry.
    pub fn register(&self, registry: &mut Registry) {
        let calls = "Requests to the cloud's API by operation and status (0: no answer)";
        registry.show("portico_cloud_requests", calls, self.calls.clone());
        let took = "How long the cloud's API took to answer";
        registry.show("portico_cloud_request_seconds", took, self.took.clone());
    }

    pub(super) fn called(
        &self,
        provider: &'static str,
        operation: &'static str,
        code: u16,
        took: Duration,
    ) {
        self.calls
            .get_or_create(&Answered {
                provider,
                operation,
                code,
            })
            .inc();
        self.took
            .get_or_create(&Operation {
                provider,
                operation,
            })
            .observe(took.as_secs_f64());
    }
}
