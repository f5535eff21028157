//! Since when changes have been waiting to be installed, for the metrics.

use crate::metrics::Metrics;
use crate::objects::{Name, Object, SERVICE_NAME, TRIGGER_TIME};
use portico_model::hash::Map;
use portico_model::key::ObjectKey;
use portico_model::table::{Change, Family};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// At most one entry for each Service and slice.
#[derive(Default)]
pub(super) struct Waiting {
    services: Map<ObjectKey, Instant>,
    triggers: Map<Arc<str>, (Family, SystemTime)>,
}

impl Waiting {
    pub(super) fn applied(&mut self, object: &Object, heard: Instant) {
        let metadata = object.metadata();
        match object {
            Object::Service(_) => self.service(&metadata.namespace, &metadata.name, heard),
            Object::Slice(slice) => {
                if let Some(service) = metadata.labels.get(SERVICE_NAME) {
                    self.service(&metadata.namespace, service, heard);
                }
                let family = if slice.address_type == "IPv6" {
                    Family::V6
                } else {
                    Family::V4
                };
                let trigger = metadata
                    .annotations
                    .get(TRIGGER_TIME)
                    .and_then(|text| text.parse().ok());
                if let Some(trigger) =
                    trigger.map(|trigger: jiff::Timestamp| SystemTime::from(trigger))
                {
                    let key = format!("{}/{}", metadata.namespace, metadata.name).into();
                    self.triggers.entry(key).or_insert((family, trigger));
                }
            }
            Object::Node(_) | Object::Cidr(_) | Object::Pod(_) | Object::Partition(_) => {}
        }
    }

    /// A slice that is gone leaves no hint of its Service.
    pub(super) fn deleted(&mut self, name: &Name, heard: Instant) {
        self.service(&name.namespace, &name.name, heard);
    }

    fn service(&mut self, namespace: &str, name: &str, heard: Instant) {
        let service = ObjectKey::new(namespace, name);
        self.services.entry(service).or_insert(heard);
    }

    /// Notes that everything is installed. Objects that changed nothing do not count.
    pub(super) fn installed(&mut self, changes: &[Change], now: Instant, metrics: &Metrics) {
        let mut told = None;
        for change in changes
            .iter()
            .filter(|change| !change_is_of(told.replace(&change.key.service), change))
        {
            if let Some(heard) = self.services.get(&change.key.service) {
                metrics.programmed(
                    &change.key.service,
                    now.saturating_duration_since(*heard),
                    now,
                );
            }
        }
        for (family, trigger) in std::mem::take(&mut self.triggers).into_values() {
            metrics.network_programmed(family, trigger);
        }
        self.clear();
    }

    pub(super) fn clear(&mut self) {
        self.services.clear();
        self.triggers.clear();
    }
}

/// Changes are in the order of their keys, so those of one Service follow each other.
fn change_is_of(service: Option<&ObjectKey>, change: &Change) -> bool {
    service == Some(&change.key.service)
}
