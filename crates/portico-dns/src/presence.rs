//! Tells the API server that this server lives: a small Lease that is renewed, so that
//! `portico status` knows of a server that died.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use portico_model::report::{DAEMON_LABEL, NAMESPACE};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

/// There are few servers, so they tell as often as the nodes of a small cluster.
const RENEW: Duration = Duration::from_secs(1);
const LASTS: Duration = Duration::from_secs(3);
/// For an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between tries where the API server does not allow it.
const DENIED: Duration = Duration::from_secs(300);
/// Names of objects have at most 253 letters.
const LONGEST_ZONE: usize = 150;

#[derive(Clone)]
pub(crate) struct Presence {
    leases: Api<Lease>,
    name: String,
    holder: String,
}

impl Presence {
    /// Of the server of this zone at this address. Replicas that listen on the same address, in
    /// pods, are one to whoever asks them, and so they have one Lease.
    pub(crate) fn new(client: &Client, zone: &str, address: SocketAddr) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            leases: Api::namespaced(client.clone(), NAMESPACE),
            name: name(zone, address),
            holder: format!("{}_{}", host.trim(), std::process::id()),
        }
    }

    /// Tells it again and again.
    pub(crate) async fn keep(&self) {
        let mut is_denied = false;
        loop {
            let wait = match self.write(&self.holder).await {
                Ok(()) => RENEW,
                Err(kube::Error::Api(status)) if status.code == 401 || status.code == 403 => {
                    if !std::mem::replace(&mut is_denied, true) {
                        tracing::warn!(
                            error = %status.message,
                            "that this server lives cannot be told: it needs the rights to create \
                             and patch Leases in {NAMESPACE}"
                        );
                    }
                    DENIED
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot tell that this server lives, will try again");
                    RENEW
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// It was stopped, and is not dead.
    pub(crate) async fn leave(&self) {
        if let Err(error) = self.write("").await {
            tracing::debug!(%error, "cannot tell that this server was stopped");
        }
    }

    async fn write(&self, holder: &str) -> kube::Result<()> {
        let lease = lease(&self.name, holder, Timestamp::now());
        let parameters = PatchParams::apply("portico-dns").force();
        let patch = Patch::Apply(&lease);
        let written = self.leases.patch(&self.name, &parameters, &patch);
        match tokio::time::timeout(PATIENCE, written).await {
            Ok(answer) => answer.map(drop),
            Err(late) => Err(kube::Error::Service(late.into())),
        }
    }
}

fn name(zone: &str, address: SocketAddr) -> String {
    let zone: String = zone.trim_matches('.').chars().take(LONGEST_ZONE).collect();
    let ip = address.ip().to_string().replace(':', "-");
    format!("portico-dns-{zone}-{ip}-{}", address.port()).to_lowercase()
}

fn lease(name: &str, holder: &str, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "labels": {DAEMON_LABEL: "dns"}},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": LASTS.as_secs(),
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_of_a_zone_has_a_lease() {
        let named = |zone: &str, address: &str| name(zone, address.parse().unwrap());
        assert_eq!(
            named("Demo.example.", "192.0.2.2:53"),
            "portico-dns-demo.example-192.0.2.2-53"
        );
        assert_eq!(
            named("a.example", "[fd00::1]:5353"),
            "portico-dns-a.example-fd00--1-5353"
        );
        assert!(named(&"a".repeat(300), "192.0.2.2:53").len() < 253);
    }

    #[test]
    fn a_lease_says_what_holds_it_and_for_how_long() {
        let lease: Lease =
            serde_json::from_value(lease("x", "h_1", Timestamp::UNIX_EPOCH)).unwrap();
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("h_1"));
        assert_eq!(spec.lease_duration_seconds, Some(3));
        assert_eq!(spec.renew_time.unwrap().0.as_second(), 0);
    }
}
