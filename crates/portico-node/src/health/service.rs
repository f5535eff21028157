//! Health-check node ports: a load balancer asks whether a Service has endpoints on this node.
//!
//! One task for each address that a Service's port is bound to: what happens to one of them does
//! not touch the others.

use super::Monitor;
use super::listen::{self, Answer, Reach};
use hyper::header::{HeaderName, HeaderValue};
use portico_client::wait::Backoff;
use portico_model::key::ObjectKey;
use portico_model::table::{Family, HealthCheck, NodePortAddresses, PerFamily};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A port that cannot be listened on. Told once for each time it begins, for an Event on the
/// Service.
#[derive(Debug)]
pub(crate) struct Failure {
    pub service: ObjectKey,
    pub address: SocketAddr,
    pub error: io::Error,
}

pub(crate) type OnFailure = Arc<dyn Fn(&Failure) + Send + Sync>;

/// The listeners of all Services. Dropping it closes them.
pub(crate) struct ServiceChecks {
    monitor: Monitor,
    on_failure: OnFailure,
    addresses: PerFamily<NodePortAddresses>,
    checks: BTreeMap<ObjectKey, Check>,
}

struct Check {
    wanted: HealthCheck,
    ready: PerFamily<Arc<AtomicU32>>,
    listeners: BTreeMap<IpAddr, Listener>,
}

impl ServiceChecks {
    pub(crate) fn new(monitor: Monitor, on_failure: OnFailure) -> Self {
        Self {
            monitor,
            on_failure,
            addresses: PerFamily::default(),
            checks: BTreeMap::new(),
        }
    }

    /// Health checks that changed, with what they are now (`None`: gone).
    pub(crate) async fn sync(&mut self, changes: &[(ObjectKey, Option<HealthCheck>)]) {
        // Close first: a port may have moved from one Service to another.
        for (service, wanted) in changes {
            let port = self.checks.get(service).map(|check| check.wanted.port);
            if port.is_some()
                && port != wanted.as_ref().map(|wanted| wanted.port)
                && let Some(check) = self.checks.remove(service)
            {
                close(check.listeners).await;
            }
        }
        for (service, wanted) in changes {
            if let Some(wanted) = wanted {
                self.checks
                    .entry(service.clone())
                    .or_insert_with(|| Check::new(wanted.clone()))
                    .update(wanted.clone());
                self.listen(service).await;
            }
        }
    }

    /// The addresses on which node ports answer: listeners on others are closed, the rest stays as
    /// it is.
    pub(crate) async fn set_addresses(&mut self, addresses: &PerFamily<NodePortAddresses>) {
        if self.addresses == *addresses {
            return;
        }
        self.addresses = addresses.clone();
        let services: Vec<ObjectKey> = self.checks.keys().cloned().collect();
        for service in services {
            self.listen(&service).await;
        }
    }

    /// Make the listeners of one Service those that are wanted.
    async fn listen(&mut self, service: &ObjectKey) {
        let Some(check) = self.checks.get_mut(service) else {
            return;
        };
        let wanted = addresses_of(&check.wanted, &self.addresses);
        let (kept, gone) = std::mem::take(&mut check.listeners)
            .into_iter()
            .partition(|(at, _)| wanted.contains(at));
        check.listeners = kept;
        close(gone).await;
        for at in wanted {
            check.listeners.entry(at).or_insert_with(|| {
                let answering = Answering {
                    service: service.clone(),
                    address: SocketAddr::new(at, check.wanted.port),
                    ready: Arc::clone(check.ready.get(Family::of(at))),
                    monitor: self.monitor.clone(),
                };
                Listener(tokio::spawn(answering.run(Arc::clone(&self.on_failure))))
            });
        }
    }
}

impl Check {
    fn new(wanted: HealthCheck) -> Self {
        Self {
            wanted,
            ready: PerFamily::default(),
            listeners: BTreeMap::new(),
        }
    }

    fn update(&mut self, wanted: HealthCheck) {
        for family in Family::BOTH {
            self.ready
                .get(family)
                .store(*wanted.ready.get(family), Ordering::Relaxed);
        }
        self.wanted = wanted;
    }
}

/// Where a health check is to be listened for.
fn addresses_of(
    check: &HealthCheck,
    node_ports: &PerFamily<NodePortAddresses>,
) -> BTreeSet<IpAddr> {
    if let Some(addresses) = &check.addresses {
        let usable = |address: &IpAddr| {
            *check.families.get(Family::of(*address)) && !is_link_local(*address)
        };
        return addresses.iter().copied().filter(usable).collect();
    }
    let of_family = |family: Family| match node_ports.get(family) {
        NodePortAddresses::AllLocal { .. } => vec![any(family)],
        // A link-local address means nothing without its link; no load balancer asks there.
        NodePortAddresses::Listed(listed) => listed
            .iter()
            .copied()
            .filter(|address| !is_link_local(*address))
            .collect(),
    };
    Family::BOTH
        .into_iter()
        .filter(|family| *check.families.get(*family))
        .flat_map(of_family)
        .collect()
}

fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// A task that ends with its owner.
struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns when the ports are free again.
async fn close(listeners: BTreeMap<IpAddr, Listener>) {
    for mut listener in listeners.into_values() {
        listener.0.abort();
        let _ = (&mut listener.0).await;
    }
}

/// What one listener knows.
struct Answering {
    service: ObjectKey,
    address: SocketAddr,
    ready: Arc<AtomicU32>,
    monitor: Monitor,
}

impl Answering {
    /// Listen and answer. While the port is taken, which is told once, try again.
    async fn run(self, on_failure: OnFailure) {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        let listener = loop {
            let error = match listen::bind(self.address, Reach::OneFamily) {
                Ok(listener) => break listener,
                Err(error) => error,
            };
            if !backoff.is_failing() {
                tracing::error!(service = %self.service, address = %self.address, %error, "cannot serve a health check, will try again");
                on_failure(&Failure {
                    service: self.service.clone(),
                    address: self.address,
                    error,
                });
            }
            backoff.wait().await;
        };
        tracing::debug!(service = %self.service, address = %self.address, "serving a health check");
        listen::serve(listener, move |_| self.answer()).await;
    }

    /// Any path, any method.
    fn answer(&self) -> Answer {
        let (ready, healthy) = (self.ready.load(Ordering::Relaxed), self.monitor.healthy());
        let body = json!({
            "service": { "namespace": &*self.service.namespace, "name": &*self.service.name },
            "localEndpoints": ready,
            "serviceProxyHealthy": healthy,
        });
        let mut answer = listen::json(ready > 0 && healthy, body.to_string());
        let weight = HeaderName::from_static("x-load-balancing-endpoint-weight");
        answer
            .headers_mut()
            .insert(weight, HeaderValue::from(ready));
        answer
    }
}

#[cfg(test)]
mod tests;
