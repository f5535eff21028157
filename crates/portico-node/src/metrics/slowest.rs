//! The Services that took longest to install, by name. There is a label for each, so there are only
//! a few.

use portico_model::key::ObjectKey;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const MOST: usize = 10;
/// What is older says nothing about now.
const KEPT: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, Default)]
pub(super) struct Slowest(Arc<Mutex<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    service: ObjectKey,
    took: Duration,
    seen: Instant,
}

impl Slowest {
    pub(super) fn saw(&self, service: &ObjectKey, took: Duration, now: Instant) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| now.saturating_duration_since(entry.seen) < KEPT);
        if let Some(known) = entries.iter_mut().find(|entry| entry.service == *service) {
            (known.took, known.seen) = (known.took.max(took), now);
        } else if entries.len() < MOST || entries.last().is_some_and(|last| last.took < took) {
            entries.push(Entry {
                service: service.clone(),
                took,
                seen: now,
            });
        } else {
            return;
        }
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.took));
        entries.truncate(MOST);
    }
}

impl Collector for Slowest {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = "portico_service_programming_slowest_seconds";
        let help = "The longest time from an event of the API server to its being installed, of the \
                    slowest Services";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for entry in entries.iter() {
            let labels = [
                ("namespace", &*entry.service.namespace),
                ("service", &*entry.service.name),
            ];
            ConstGauge::new(entry.took.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
