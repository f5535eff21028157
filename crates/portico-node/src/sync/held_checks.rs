//! Health-check node ports: a load balancer is told of endpoints on this node when the kernel leads
//! there, and at once of those that are gone.

use portico_model::key::ObjectKey;
use portico_model::table::{Family, HealthCheck};
use std::collections::BTreeMap;

/// What has not been told.
#[derive(Default)]
pub(super) struct HeldChecks(BTreeMap<ObjectKey, Option<HealthCheck>>);

impl HeldChecks {
    pub(super) fn hold(&mut self, changes: Vec<(ObjectKey, Option<HealthCheck>)>) {
        self.0.extend(changes);
    }

    /// What may be told: all of it if the kernel has everything.
    pub(super) fn release(&mut self, done: bool) -> Option<Vec<(ObjectKey, Option<HealthCheck>)>> {
        let may = |_: &ObjectKey, check: &mut Option<HealthCheck>| {
            done || !check.as_ref().is_some_and(attracts)
        };
        let released: Vec<_> = self.0.extract_if(.., may).collect();
        (!released.is_empty()).then_some(released)
    }
}

fn attracts(check: &HealthCheck) -> bool {
    Family::BOTH
        .iter()
        .any(|family| *check.ready.get(*family) > 0)
}
