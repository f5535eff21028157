//! The `kubernetes` Service in `default` and its endpoints: one for each API server that lives.
//!
//! Servers that share a store write a heartbeat there. A peer counts as alive while its heartbeat
//! keeps changing, as seen by this server's own clock: their clocks need not agree.

use super::{ensure, put};
use crate::registry::Registry;
use memchr::memmem;
use portico_api::status::{ApiError, Result};
use portico_store::{Op, Range, Txn};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HEARTBEATS: &str = "apiservers/";
const BEAT_EVERY: Duration = Duration::from_secs(3);
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// How this server is reached.
#[derive(Clone, Debug)]
pub(crate) struct Advertised {
    pub address: SocketAddr,
    /// The Service's own addresses: the first of each service range.
    pub service_ips: Vec<IpAddr>,
    /// Whether other servers may share the store.
    pub shared_store: bool,
}

/// Create the Service and its endpoints, and return what keeps them true from then on.
pub(crate) async fn keep(
    registry: Arc<Registry>,
    advertised: Advertised,
) -> impl Future<Output = ()> {
    let mut peers = Peers::default();
    try_once(&registry, &advertised, &mut peers).await;
    async move {
        loop {
            tokio::time::sleep(BEAT_EVERY).await;
            try_once(&registry, &advertised, &mut peers).await;
        }
    }
}

async fn try_once(registry: &Registry, advertised: &Advertised, peers: &mut Peers) {
    if let Err(error) = once(registry, advertised, peers).await {
        tracing::warn!(%error, "cannot keep the kubernetes Service");
    }
}

/// Take this server out of the endpoints: it stops.
pub(crate) async fn leave(registry: &Registry, advertised: &Advertised) {
    let gone = Txn {
        checks: Vec::new(),
        ops: vec![Op::Delete {
            key: heartbeat_key(advertised),
        }],
    };
    let _ = registry.store.commit(gone).await;
    if advertised.shared_store {
        let others = heartbeats(registry)
            .keys()
            .filter_map(|key| key.parse().ok())
            .collect();
        let _ = write_endpoints(registry, others).await;
    }
}

fn heartbeat_key(advertised: &Advertised) -> String {
    format!("{HEARTBEATS}{}", advertised.address)
}

async fn once(registry: &Registry, advertised: &Advertised, peers: &mut Peers) -> Result<()> {
    ensure(
        registry,
        registry.core_kind("services")?.as_ref(),
        service(advertised),
    )
    .await?;
    let mut alive = vec![advertised.address];
    if advertised.shared_store {
        let beat = crate::clock::now_micros_text();
        let txn = Txn {
            checks: Vec::new(),
            ops: vec![Op::Put {
                key: heartbeat_key(advertised),
                value: beat.into(),
            }],
        };
        registry
            .store
            .commit(txn)
            .await
            .map_err(|error| ApiError::unavailable(error.to_string()))?;
        alive.extend(
            peers
                .alive(&heartbeats(registry), Instant::now())
                .iter()
                .filter_map(|peer| peer.parse::<SocketAddr>().ok()),
        );
    }
    write_endpoints(registry, alive).await
}

fn heartbeats(registry: &Registry) -> BTreeMap<String, u64> {
    let found = registry.store.range(Range {
        prefix: HEARTBEATS,
        after: None,
        limit: 0,
        at: None,
    });
    let entries = found.map(|found| found.entries).unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| {
            Some((
                entry.key.strip_prefix(HEARTBEATS)?.to_owned(),
                entry.modified,
            ))
        })
        .collect()
}

/// What this server knows of the others: the last heartbeat it saw, and when.
#[derive(Debug, Default)]
struct Peers(BTreeMap<String, (u64, Instant)>);

impl Peers {
    /// The servers whose heartbeat changed not long ago. One that is seen for the first time
    /// counts.
    fn alive(&mut self, beats: &BTreeMap<String, u64>, now: Instant) -> Vec<String> {
        self.0.retain(|peer, _| beats.contains_key(peer));
        for (peer, beat) in beats {
            let seen = self.0.entry(peer.clone()).or_insert((*beat, now));
            if seen.0 != *beat {
                *seen = (*beat, now);
            }
        }
        let fresh = |seen: &Instant| now.duration_since(*seen) < DEAD_AFTER;
        self.0
            .iter()
            .filter(|(_, (_, seen))| fresh(seen))
            .map(|(peer, _)| peer.clone())
            .collect()
    }
}

fn service(advertised: &Advertised) -> Value {
    let ip = advertised
        .service_ips
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": advertised.address.port()}],
        },
    })
}

/// Writes one slice for each port and address family, since a slice has one list of ports; the
/// first is named like the Service.
async fn write_endpoints(registry: &Registry, mut alive: Vec<SocketAddr>) -> Result<()> {
    alive.sort();
    alive.dedup();
    let mut groups: BTreeMap<(u16, bool), Vec<IpAddr>> = BTreeMap::new();
    for address in &alive {
        groups
            .entry((address.port(), address.is_ipv6()))
            .or_default()
            .push(address.ip());
    }
    let slices = registry
        .kind("discovery.k8s.io", "v1", "endpointslices")
        .ok_or_else(|| ApiError::internal("endpointslices are not served"))?;
    let mut wanted = Vec::new();
    for (index, ((port, v6), ips)) in groups.iter().enumerate() {
        let name = if index == 0 {
            "kubernetes".to_owned()
        } else {
            format!("kubernetes-{port}{}", if *v6 { "-v6" } else { "" })
        };
        put(registry, slices.as_ref(), slice(&name, *port, *v6, ips)).await?;
        wanted.push(name);
    }
    remove_others(registry, slices.as_ref(), &wanted).await?;
    put(
        registry,
        registry.core_kind("endpoints")?.as_ref(),
        endpoints(&groups),
    )
    .await
}

async fn remove_others(
    registry: &Registry,
    slices: &dyn portico_api::kinds::Kind,
    wanted: &[String],
) -> Result<()> {
    let prefix = format!("{}kubernetes", crate::registry::prefix(slices, "default"));
    let found = registry.store.range(Range {
        prefix: &prefix,
        after: None,
        limit: 0,
        at: None,
    });
    for entry in found.map(|found| found.entries).unwrap_or_default() {
        let Some(name) = entry.key.rsplit('/').next() else {
            continue;
        };
        let ours = memmem::find(&entry.value, OURS.as_bytes()).is_some();
        if ours && !wanted.iter().any(|wanted| wanted == name) {
            registry
                .delete(
                    slices,
                    "default",
                    name,
                    &crate::registry::DeleteOptions::default(),
                )
                .await
                .map(|_| ())
                .or_else(|error| {
                    if error.code == 404 {
                        Ok(())
                    } else {
                        Err(error)
                    }
                })?;
        }
    }
    Ok(())
}

/// Marks the slices that this file writes.
const OURS: &str = "\"endpointslice.kubernetes.io/managed-by\":\"portico-apiserver\"";

fn slice(name: &str, port: u16, v6: bool, ips: &[IpAddr]) -> Value {
    let endpoints: Vec<Value> = ips
        .iter()
        .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}))
        .collect();
    json!({
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes", "endpointslice.kubernetes.io/managed-by": "portico-apiserver"},
        },
        "addressType": if v6 { "IPv6" } else { "IPv4" },
        "endpoints": endpoints,
        "ports": [{"name": "https", "protocol": "TCP", "port": port}],
    })
}

fn endpoints(groups: &BTreeMap<(u16, bool), Vec<IpAddr>>) -> Value {
    let subsets: Vec<Value> = groups
        .iter()
        .map(|((port, _), ips)| {
            let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip.to_string()})).collect();
            json!({"addresses": addresses, "ports": [{"name": "https", "protocol": "TCP", "port": port}]})
        })
        .collect();
    json!({
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": subsets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_stops_beating_is_dropped_by_our_own_clock() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let beats = |beat| BTreeMap::from([("10.0.0.1:6443".to_owned(), beat)]);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(peers.alive(&beats(1), at(0)).len(), 1);
        assert_eq!(peers.alive(&beats(2), at(8)).len(), 1);
        assert_eq!(peers.alive(&beats(2), at(17)).len(), 1);
        assert_eq!(peers.alive(&beats(2), at(18)).len(), 0);
        assert_eq!(peers.alive(&beats(3), at(19)).len(), 1);
        assert_eq!(peers.alive(&BTreeMap::new(), at(20)).len(), 0);
    }
}
