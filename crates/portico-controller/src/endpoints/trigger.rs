//! When the change happened that the next write of a Service publishes: the earliest change of a
//! Pod's readiness since the last look, or the creation of the Service.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::{ObjectKey, Snapshot};

#[derive(Debug, Default)]
pub(super) struct TriggerTimes {
    services: HashMap<ObjectKey, Seen>,
}

#[derive(Debug)]
struct Seen {
    service_created: Option<Timestamp>,
    pods: BTreeMap<ObjectKey, Timestamp>,
}

impl TriggerTimes {
    /// Looks at the Service as it is now; None if nothing with a known time has changed since the
    /// last look.
    pub(super) fn look(&mut self, key: &ObjectKey, snapshot: &Snapshot<'_>) -> Option<Timestamp> {
        let Some(service) = snapshot.service else {
            self.services.remove(key);
            return None;
        };
        let now = Seen {
            service_created: service
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
            pods: snapshot
                .pods
                .iter()
                .filter_map(|pod| Some((pod.key.clone(), pod.ready_since?)))
                .collect(),
        };
        let created = now.service_created;
        let changed = self
            .services
            .get(key)
            .map(|before| now.earliest_change_since(before));
        self.services.insert(key.clone(), now);
        changed.unwrap_or(created)
    }
}

impl Seen {
    fn earliest_change_since(&self, before: &Self) -> Option<Timestamp> {
        let pods = self
            .pods
            .iter()
            .filter(|(pod, time)| before.pods.get(pod).is_none_or(|then| *time > then));
        let service = self
            .service_created
            .filter(|time| before.service_created.is_none_or(|then| *time > then));
        pods.map(|(_, time)| *time).chain(service).min()
    }
}
