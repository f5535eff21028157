//! Which of several controllers works.

use crate::daemon;
use crate::life::{self, WatchedLease};
use crate::text::age;
use k8s_openapi::jiff::Timestamp;
use portico_model::report;
use serde::Serialize;
use std::fmt;

/// An election of Portico's controllers, as its Lease says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderView {
    /// The name of the Lease.
    pub lease: String,
    /// Empty where none leads.
    pub holder: String,
    /// How long ago the holder renewed the Lease, in seconds.
    pub renewed_seconds_ago: i64,
    /// Whether the holder has renewed it in time.
    pub leads: bool,
}

impl LeaderView {
    /// `None` for a Lease that no controller of Portico uses.
    pub fn of(watched: &WatchedLease, clock: Timestamp) -> Option<Self> {
        let lease = &watched.lease;
        let name = lease.metadata.name.clone().unwrap_or_default();
        let leads_nothing =
            report::node_of_lease(&name).is_some() || daemon::command(lease).is_some();
        if !name.starts_with("portico-") || leads_nothing {
            return None;
        }
        let spec = lease.spec.as_ref();
        let holder = spec
            .and_then(|spec| spec.holder_identity.clone())
            .unwrap_or_default();
        Some(Self {
            lease: name,
            leads: !holder.is_empty() && watched.is_alive(clock),
            holder,
            renewed_seconds_ago: life::renewed_ago(lease, clock).unwrap_or_default(),
        })
    }
}

impl fmt::Display for LeaderView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ago = age(self.renewed_seconds_ago);
        match self.leads {
            true => write!(f, "{}: {}, renewed {ago} ago", self.lease, self.holder),
            false => write!(f, "{}: none leads since {ago}", self.lease),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{NOW, fleet};

    #[test]
    fn only_controllers_of_portico_lead() {
        let leaders = fleet().leaders(NOW.parse().unwrap());
        assert_eq!(leaders.len(), 1);
        assert!(leaders[0].leads && leaders[0].renewed_seconds_ago == 2);
        let later: Timestamp = "2026-01-01T00:00:30Z".parse().unwrap();
        assert_eq!(
            fleet().leaders(later)[0].to_string(),
            "portico-controller: none leads since 30s"
        );
    }
}
