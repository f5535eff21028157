//! Events on Services, about what the node finds in their way: a program listens where its node
//! port is, a health-check port is taken, a node port lies where the node takes the ports of its
//! own connections from.
//!
//! Nothing here is in the way of forwarding: what is too much, or may not be told, is only logged.

mod ports;

use crate::client::{self, RequestError};
use crate::watch;
use http::Request;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use portico_client::error::chain;
use portico_client::wait::Backoff;
use portico_model::key::ObjectKey;
use portico_model::static_services::is_static;
use portico_model::table::{NodePortAddresses, PerFamily, PortKey};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Events in one go, and how long until there is room for one more.
const BURST: u32 = 20;
const REFILL: Duration = Duration::from_secs(10);
/// A cluster full of trouble is told about so many Services, once each.
const MOST_TOLD: usize = 4096;
/// Names in the text of one Event.
const MOST_NAMED: usize = 5;

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// `None`: about the node.
    pub service: Option<ObjectKey>,
    pub warning: bool,
    pub reason: &'static str,
    pub text: String,
}

/// Where notices are left. What does not fit is dropped: it is in the log.
#[derive(Clone)]
pub(crate) struct Notices(mpsc::Sender<Notice>);

impl Notices {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Notice>) {
        let (sender, receiver) = mpsc::channel(256);
        (Self(sender), receiver)
    }

    pub(crate) fn tell(&self, notice: Notice) {
        match (&notice.service, notice.warning) {
            (Some(service), _) => {
                tracing::warn!(%service, reason = notice.reason, "{}", notice.text)
            }
            (None, true) => tracing::warn!(reason = notice.reason, "{}", notice.text),
            (None, false) => tracing::debug!(reason = notice.reason, "{}", notice.text),
        }
        // The API does not know Services that come from a file.
        if !notice
            .service
            .as_ref()
            .is_some_and(|service| is_static(&service.namespace))
        {
            let _ = self.0.try_send(notice);
        }
    }
}

/// A node port that this node has not answered on before, or not on these addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewNodePort {
    pub key: PortKey,
    pub port: u16,
    /// `None` for all that have node ports.
    pub addresses: Option<Vec<IpAddr>>,
}

/// Look at node ports that are new, below a root (`/`).
pub(crate) fn check_node_ports(
    root: &Path,
    new: &[NewNodePort],
    addresses: &PerFamily<NodePortAddresses>,
    notices: &Notices,
) {
    let listeners = ports::listeners(root);
    let mut told = BTreeSet::new();
    for NewNodePort {
        key,
        port,
        addresses: own,
    } in new
    {
        let own = own.clone().map(NodePortAddresses::Listed);
        let addresses = own.as_ref().unwrap_or(addresses.get(key.family));
        let found = listeners
            .iter()
            .find(|listener| listener.is_in_the_way(key, *port, addresses));
        if let Some(listener) = found.filter(|_| told.insert((&key.service, *port))) {
            let protocol = key.protocol.lower();
            let text = format!(
                "a program on this node listens on {protocol} {}: clients of node port {port} \
                 reach the Service instead",
                listener.address
            );
            let service = Some(key.service.clone());
            notices.tell(Notice {
                service,
                warning: true,
                reason: "NodePortInUse",
                text,
            });
        }
    }
    let ephemeral = ports::ephemeral(root);
    let overlapping: BTreeSet<String> = new
        .iter()
        .filter(|new| ephemeral.contains(new.port))
        .map(|new| format!("{} ({})", new.port, new.key.service))
        .collect();
    if !overlapping.is_empty() {
        let text = format!(
            "node ports {} lie in net.ipv4.ip_local_port_range of this node, so its own connections may take them: \
             put them into net.ipv4.ip_local_reserved_ports",
            some(&overlapping)
        );
        notices.tell(Notice {
            service: None,
            warning: true,
            reason: "NodePortsNotReserved",
            text,
        });
    }
}

fn some(names: &BTreeSet<String>) -> String {
    let mut text = names
        .iter()
        .take(MOST_NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > MOST_NAMED {
        text.push_str(&format!(" and {} more", names.len() - MOST_NAMED));
    }
    text
}

/// Sends Events until the last sender of notices is dropped.
pub(crate) async fn send(client: Client, node: Arc<str>, mut notices: mpsc::Receiver<Notice>) {
    let mut sender = Sender {
        client,
        node,
        told: BTreeSet::new(),
        room: Room::new(Instant::now()),
    };
    while let Some(notice) = notices.recv().await {
        sender.send(notice).await;
    }
}

struct Sender {
    client: Client,
    node: Arc<str>,
    told: BTreeSet<(Option<ObjectKey>, &'static str, String)>,
    room: Room,
}

impl Sender {
    /// Sends a notice once there is room and the API server takes it: a notice that comes once must
    /// not be lost.
    async fn send(&mut self, notice: Notice) {
        let key = (notice.service.clone(), notice.reason, notice.text.clone());
        if self.told.len() >= MOST_TOLD || !self.told.insert(key) {
            return;
        }
        let (noticed, mut backoff) = (Timestamp::now(), Backoff::of_nodes());
        while let Err(rest) = self.room.take(Instant::now()) {
            tokio::time::sleep(rest).await;
        }
        while let Err(error) = self.write(&notice, noticed).await {
            tracing::info!(error = %chain(&error), reason = notice.reason, "cannot write an Event");
            if !error.may_pass() {
                return;
            }
            backoff.wait().await;
        }
    }

    async fn write(&self, notice: &Notice, noticed: Timestamp) -> Result<(), RequestError> {
        let uid = match &notice.service {
            Some(service) => self.uid(service).await?,
            None => self.node.to_string(),
        };
        let (namespace, event) = event(notice, &self.node, &uid, noticed);
        let request = Request::post(format!("/api/v1/namespaces/{namespace}/events"))
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(event.to_string().into_bytes()));
        let request = request.map_err(|error| RequestError::Send(kube::Error::HttpError(error)))?;
        client::ask(&self.client, request).await.map(drop)
    }

    /// `kubectl describe` finds Events by it. Who may not see it writes one without.
    async fn uid(&self, service: &ObjectKey) -> Result<String, RequestError> {
        let path = watch::list_of_one(&service.namespace, &service.name);
        let body = match client::get(&self.client, &path).await {
            Err(error) if error.may_pass() => return Err(error),
            read => read.unwrap_or_default(),
        };
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(object
            .pointer("/items/0/metadata/uid")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned())
    }
}

/// How many Events may still be written.
struct Room {
    left: u32,
    since: Instant,
}

impl Room {
    fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            since: now,
        }
    }

    /// Or how long until there is any.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let more = u32::try_from(now.duration_since(self.since).as_secs() / REFILL.as_secs())
            .unwrap_or(BURST);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = now;
        }
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| (self.since + REFILL).saturating_duration_since(now))?;
        Ok(())
    }
}

/// The namespace and the object.
fn event(notice: &Notice, node: &str, uid: &str, now: Timestamp) -> (String, Value) {
    let (namespace, about) = match &notice.service {
        Some(service) => (
            service.namespace.to_string(),
            json!({"apiVersion": "v1", "kind": "Service", "namespace": &*service.namespace, "name": &*service.name, "uid": uid}),
        ),
        None => (
            "default".to_owned(),
            json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}),
        ),
    };
    let name = notice
        .service
        .as_ref()
        .map_or(node, |service| &service.name);
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{name}.{:x}", now.as_nanosecond()), "namespace": namespace},
        "involvedObject": about,
        "type": if notice.warning { "Warning" } else { "Normal" },
        "reason": notice.reason,
        "message": notice.text,
        "source": {"component": "portico-node", "host": node},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    });
    (namespace, event)
}

#[cfg(test)]
mod tests;
