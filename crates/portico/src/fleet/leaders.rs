//! Who of several controllers works.

use super::age;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use portico_model::report;
use serde::Serialize;

/// Clocks of two machines may differ by so much before anybody worries.
const SLACK: i64 = 5;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderView {
    pub lease: String,
    /// Empty where nobody leads.
    pub holder: String,
    pub renewed_seconds_ago: i64,
    pub leads: bool,
}

impl LeaderView {
    /// `None` for a Lease that is not of a controller of Portico.
    pub fn of(lease: &Lease, now: Timestamp) -> Option<LeaderView> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        if !name.starts_with("portico-") || report::node_of_lease(&name).is_some() {
            return None;
        }
        let (ago, fresh) = renewal(lease, now);
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.clone())
            .unwrap_or_default();
        Some(LeaderView {
            lease: name,
            leads: fresh && !holder.is_empty(),
            holder,
            renewed_seconds_ago: ago,
        })
    }
}

impl std::fmt::Display for LeaderView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ago = age(self.renewed_seconds_ago);
        match self.leads {
            true => write!(f, "{}: {}, renewed {ago} ago", self.lease, self.holder),
            false => write!(f, "{}: nobody since {ago}", self.lease),
        }
    }
}

/// How many seconds ago a Lease was renewed, and whether it still holds.
pub fn renewal(lease: &Lease, now: Timestamp) -> (i64, bool) {
    let spec = lease.spec.as_ref();
    let renewed = spec
        .and_then(|spec| spec.renew_time.as_ref())
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let ago = now.as_second() - renewed.as_second();
    let lasts = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .unwrap_or(0);
    (ago, ago <= i64::from(lasts) + SLACK)
}
