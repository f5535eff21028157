//! A daemon that is neither a node nor a controller, as it tells by its Lease that it lives.

use crate::life::{self, WatchedLease};
use crate::text::age;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use portico_model::report::DAEMON_LABEL;
use serde::Serialize;
use std::fmt;

/// A daemon that is neither a node nor a controller, by the Lease that it renews.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonView {
    /// The command that runs: `dns`.
    pub command: String,
    /// The name of its Lease.
    pub lease: String,
    /// Host and process.
    pub holder: String,
    /// Since its Lease was renewed, by the clock of the one that asks.
    pub renewed_seconds_ago: i64,
    /// Whether the Lease is renewed in time.
    pub lives: bool,
}

impl DaemonView {
    /// `None` for a Lease of something else, and of a daemon that was stopped.
    pub fn of(watched: &WatchedLease, clock: Timestamp) -> Option<Self> {
        let lease = &watched.lease;
        let command = command(lease)?.to_owned();
        let holder = lease.spec.as_ref()?.holder_identity.clone()?;
        if holder.is_empty() {
            return None;
        }
        Some(Self {
            command,
            lease: lease.metadata.name.clone().unwrap_or_default(),
            holder,
            renewed_seconds_ago: life::renewed_ago(lease, clock).unwrap_or_default(),
            lives: watched.is_alive(clock),
        })
    }
}

/// What a Lease says which daemon it is of.
pub(crate) fn command(lease: &Lease) -> Option<&str> {
    let labels = lease.metadata.labels.as_ref()?;
    labels.get(DAEMON_LABEL).map(String::as_str)
}

impl fmt::Display for DaemonView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ago = age(self.renewed_seconds_ago);
        let (lease, holder) = (&self.lease, &self.holder);
        match self.lives {
            true => write!(f, "{lease}: {holder}, renewed {ago} ago"),
            false => write!(f, "{lease}: {holder} has been silent for {ago}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, NOW, THEN};

    #[test]
    fn a_daemon_lives_is_dead_or_was_stopped() {
        let daemon = |holder: &str, renewed: &str| {
            let mut lease = samples::lease("portico-dns-x", holder, renewed);
            lease.metadata.labels = Some([(DAEMON_LABEL.to_owned(), "dns".to_owned())].into());
            let mut fleet = samples::fleet();
            fleet.apply(lease.into(), NOW.parse().unwrap());
            let leaders = fleet.leaders(NOW.parse().unwrap());
            assert_eq!(leaders.len(), 1, "a daemon leads nothing");
            let daemons = fleet.daemons(NOW.parse().unwrap());
            daemons.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(daemon("h_1", THEN), ["portico-dns-x: h_1, renewed 2s ago"]);
        assert_eq!(
            daemon("h_1", "2025-12-31T23:00:00.000000Z"),
            ["portico-dns-x: h_1 has been silent for 60m"]
        );
        assert!(daemon("", THEN).is_empty());
    }
}
