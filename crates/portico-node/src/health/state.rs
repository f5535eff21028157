//! Whether the node keeps up: decided from when changes came in and when they were applied. No
//! clock in here.

use jiff::Timestamp;
use portico_model::table::{Family, PerFamily};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// A moment on both clocks: the steady one for deciding (a step of the wall clock must not make a
/// node unhealthy), the wall clock for showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub steady: Instant,
    pub wall: Timestamp,
}

/// How long changes have waited, and whether load balancers may count on this node.
#[derive(Clone, Debug)]
pub(crate) struct Health {
    /// Changes that wait longer make the node unhealthy.
    limit: Duration,
    families: PerFamily<Option<Progress>>,
    eligible: bool,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    updated: Moment,
    /// At least once everything that came in was in the kernel.
    installed: bool,
    /// Since when the oldest change that is not applied has been waiting.
    waiting: Option<Instant>,
}

impl Health {
    /// Starting counts as an update: a node whose first table is never installed becomes unhealthy
    /// after `limit`.
    pub(crate) fn new(limit: Duration, served: &[Family], now: Moment) -> Self {
        let mut families = PerFamily::default();
        for family in served {
            *families.get_mut(*family) = Some(Progress {
                updated: now,
                installed: false,
                waiting: None,
            });
        }
        Self {
            limit,
            families,
            eligible: true,
        }
    }

    /// A change came in that is not in the kernel yet.
    pub(crate) fn queued(&mut self, family: Family, now: Instant) {
        if let Some(progress) = self.families.get_mut(family) {
            progress.waiting.get_or_insert(now);
        }
    }

    /// Notes that everything that came in is in the kernel.
    pub(crate) fn updated(&mut self, family: Family, now: Moment) {
        if let Some(progress) = self.families.get_mut(family) {
            *progress = Progress {
                updated: now,
                installed: true,
                waiting: None,
            };
        }
    }

    /// Whether the node is neither being deleted nor marked for it.
    pub(crate) fn set_eligible(&mut self, eligible: bool) {
        self.eligible = eligible;
    }

    /// Changes of every family are applied in time.
    pub(crate) fn healthy(&self, now: Moment) -> bool {
        Family::BOTH.iter().all(|family| {
            self.families
                .get(*family)
                .is_none_or(|progress| self.in_time(&progress, now))
        })
    }

    fn in_time(&self, progress: &Progress, now: Moment) -> bool {
        progress
            .waiting
            .is_none_or(|since| now.steady.saturating_duration_since(since) < self.limit)
    }

    /// What `/healthz` answers: fit for new connections from outside.
    pub(crate) fn healthz(&self, now: Moment) -> Verdict {
        self.verdict(now, self.healthy(now) && self.eligible, Some(self.eligible))
    }

    /// What `/livez` answers: there is no reason to restart the daemon. A node on its way out is
    /// alive.
    pub(crate) fn livez(&self, now: Moment) -> Verdict {
        self.verdict(now, self.healthy(now), None)
    }

    /// What `/readyz` answers: the rules of all Services are in the kernel, so a rollout may go on
    /// to the next node.
    pub(crate) fn readyz(&self, now: Moment) -> Verdict {
        let installed = Family::BOTH
            .iter()
            .all(|family| self.families.get(*family).is_none_or(|p| p.installed));
        let mut verdict = self.verdict(now, installed && self.healthy(now), None);
        if !installed {
            verdict.body = json!({
                "currentTime": now.wall.to_string(),
                "healthy": false,
                "reason": "the rules of the Services are not in the kernel yet",
            })
            .to_string();
        }
        verdict
    }

    fn verdict(&self, now: Moment, good: bool, eligible: Option<bool>) -> Verdict {
        // Clients of old take `lastUpdated` for the time of the last look, so that it is recent
        // while all is well.
        let updated = Family::BOTH
            .iter()
            .filter_map(|family| self.families.get(*family).map(|p| p.updated.wall))
            .max();
        let last = if good {
            now.wall
        } else {
            updated.unwrap_or(now.wall)
        };
        let mut body = json!({
            "lastUpdated": last.to_string(),
            "currentTime": now.wall.to_string(),
            "healthy": self.healthy(now),
        });
        if let Some(eligible) = eligible {
            body["nodeEligible"] = eligible.into();
        }
        let status = self.status(now);
        if !status.is_empty() {
            body["status"] = status.into();
        }
        Verdict {
            good,
            body: body.to_string(),
        }
    }

    fn status(&self, now: Moment) -> Map<String, Value> {
        let of_family = |family: Family| {
            let progress = (*self.families.get(family))?;
            let name = match family {
                Family::V4 => "IPv4",
                Family::V6 => "IPv6",
            };
            let updated = progress.updated.wall.to_string();
            Some((
                name.to_owned(),
                json!({ "lastUpdated": updated, "healthy": self.in_time(&progress, now) }),
            ))
        };
        Family::BOTH.into_iter().filter_map(of_family).collect()
    }
}

/// An answer: 200 if `good`, otherwise 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub good: bool,
    pub body: String,
}

#[cfg(test)]
mod tests;
