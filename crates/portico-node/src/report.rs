//! Tells the API server how far this node is: one small Lease, written when something changed and
//! renewed otherwise, as often as `portico_view::pace` allows it in a cluster of this size.
//!
//! Nothing waits for it. The newest state is written, what came before it is skipped.

use crate::aligned_timer::AlignedTimer;
use crate::client::{self, RequestError};
use crate::metrics::recent::Recent;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use ipnet::IpNet;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use portico_client::error::chain;
use portico_client::wait::fraction;
use portico_model::report::{
    self, Announcing, Behind, NodeReport, PartitionAddresses, Programming,
};
use portico_view::pace::Pace;
use schedule::Schedule;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

mod schedule;

/// The nodes of the cluster are counted once in so many renewals.
const COUNT: u32 = 10;
/// The answer has the first of them, and how many more there are.
const NODES: &str = "/api/v1/nodes?limit=1";
/// At most this long between tries that fail, and where the server does not let us.
const RETRY: Duration = Duration::from_secs(5);
const DENIED: Duration = Duration::from_secs(300);

/// What is in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Everything up to these resource versions, but for `behind`.
    pub services: u64,
    pub slices: u64,
    pub behind: Vec<Behind>,
    pub more_behind: usize,
    /// Where node ports answer.
    pub node_ports: Vec<IpNet>,
    /// What of that is in port partitions.
    pub partitions: Vec<(Arc<str>, Vec<IpNet>)>,
    /// Why nothing later is, for people.
    pub trouble: String,
    /// Grows with each change that a user waits for.
    pub awaited: u64,
}

/// What stays as it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub mode: &'static str,
    pub healthz_port: Option<u16>,
}

/// Report until dropped.
pub(crate) async fn send(
    client: Client,
    node: Arc<str>,
    about: About,
    mut installed: watch::Receiver<Option<Installed>>,
    mut announcing: watch::Receiver<Option<Announcing>>,
    recent: Recent,
    timer: AlignedTimer,
) {
    if installed.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let writer = Writer {
        client,
        lease: report::lease_name(&node),
        node,
    };
    let mut denied = false;
    let mut pace = Pace::slowest();
    let mut count_at = Instant::now();
    loop {
        if count_at <= Instant::now() {
            let (counted, again) = follow_size(&writer.client).await;
            pace = counted.unwrap_or(pace);
            count_at = Instant::now() + again;
        }
        let (state, announced) = (
            installed.borrow_and_update().clone(),
            announcing.borrow_and_update().clone(),
        );
        let Some(state) = state else { return };
        let report = content(&state, about, announced, recent.summary());
        let wait = match writer.write(&report, pace.lasts()).await {
            Ok(()) => {
                denied = false;
                let schedule = Schedule::new(timer, pace, Instant::now().into());
                let changes = wait(schedule, state.awaited, &mut installed, &mut announcing);
                // Or until it is time to count again.
                let _ = tokio::time::timeout_at(count_at, changes).await;
                continue;
            }
            Err(error) if error.is_denied() => {
                if !std::mem::replace(&mut denied, true) {
                    tracing::warn!(error = %chain(&error), "what this node serves cannot be reported: it needs the rights to \
                                            create and patch Leases in {}", report::NAMESPACE);
                }
                DENIED
            }
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot report, will try again");
                pace.renew.min(RETRY)
            }
        };
        tokio::time::sleep(wait.mul_f64(0.5 + fraction())).await;
    }
}

/// The pace for as many nodes as there are now, if that can be known, and when to count again.
async fn follow_size(client: &Client) -> (Option<Pace>, Duration) {
    match count_nodes(client).await {
        Ok(nodes) => {
            let pace = Pace::of(nodes);
            (Some(pace), pace.renew * COUNT)
        }
        Err(error) => {
            tracing::debug!(error = %chain(&error), "cannot count the nodes, will try again");
            (None, if error.is_denied() { DENIED } else { RETRY })
        }
    }
}

/// Until the next report is due.
async fn wait(
    mut schedule: Schedule,
    told: u64,
    installed: &mut watch::Receiver<Option<Installed>>,
    announcing: &mut watch::Receiver<Option<Announcing>>,
) {
    loop {
        let urgent = tokio::select! {
            () = tokio::time::sleep_until(schedule.due().into()) => return,
            () = change(announcing) => true,
            () = change(installed) => installed
                .borrow_and_update()
                .as_ref()
                .is_some_and(|now| now.awaited != told),
        };
        schedule.changed(urgent, Instant::now().into());
    }
}

/// How many there are.
async fn count_nodes(client: &Client) -> Result<usize, RequestError> {
    let answer = client::get(client, NODES).await?;
    let list: NodeList = serde_json::from_slice(&answer).map_err(RequestError::Decode)?;
    let more = list.metadata.remaining_item_count;
    let more = usize::try_from(more).unwrap_or(usize::MAX);
    Ok(list.items.len().saturating_add(more))
}

/// As much of a list as says how long it is.
#[derive(Deserialize)]
struct NodeList {
    #[serde(default)]
    metadata: ListMetadata,
    items: Vec<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    remaining_item_count: u64,
}

async fn change<T>(state: &mut watch::Receiver<T>) {
    if state.changed().await.is_err() {
        std::future::pending().await
    }
}

fn content(
    state: &Installed,
    about: About,
    announcing: Option<Announcing>,
    programming: Option<Programming>,
) -> NodeReport {
    NodeReport {
        services: state.services.to_string(),
        slices: state.slices.to_string(),
        behind: state.behind.clone(),
        more_behind: state.more_behind,
        trouble: state.trouble.clone(),
        mode: about.mode.to_owned(),
        healthz_port: about.healthz_port,
        node_ports: Some(state.node_ports.iter().map(ToString::to_string).collect()),
        partitions: state.partitions.iter().map(partition_addresses).collect(),
        announcing,
        programming,
    }
}

fn partition_addresses((name, networks): &(Arc<str>, Vec<IpNet>)) -> PartitionAddresses {
    PartitionAddresses {
        name: name.to_string(),
        addresses: networks.iter().map(ToString::to_string).collect(),
    }
}

struct Writer {
    client: Client,
    node: Arc<str>,
    lease: String,
}

impl Writer {
    async fn write(&self, report: &NodeReport, lasts: Duration) -> Result<(), RequestError> {
        let lease = self.lease(report, lasts, Timestamp::now())?;
        let path = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            report::NAMESPACE
        );
        match self
            .ask(
                Method::PATCH,
                &format!("{path}/{}", self.lease),
                "application/merge-patch+json",
                &lease,
            )
            .await
        {
            Err(RequestError::Status { code: 404, .. }) => {}
            answer => return answer.map(|_| ()),
        }
        let mut new = lease;
        if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".to_owned(), self.lease.clone().into());
            metadata.extend(
                self.owner()
                    .await
                    .map(|owner| ("ownerReferences".to_owned(), owner)),
            );
        }
        self.ask(Method::POST, &path, "application/json", &new)
            .await
            .map(|_| ())
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<Bytes, RequestError> {
        let body = Body::from(body.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, kind)
            .body(body);
        let request = request.map_err(|error| RequestError::Send(kube::Error::HttpError(error)))?;
        client::ask(&self.client, request).await
    }

    fn lease(
        &self,
        report: &NodeReport,
        lasts: Duration,
        now: Timestamp,
    ) -> Result<Value, RequestError> {
        let report = serde_json::to_string(report).map_err(RequestError::Decode)?;
        Ok(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"labels": {report::LABEL: ""}, "annotations": {report::ANNOTATION: report}},
            "spec": {
                "holderIdentity": &*self.node,
                "leaseDurationSeconds": lasts.as_secs(),
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            },
        }))
    }

    /// The Lease goes when its node goes.
    async fn owner(&self) -> Option<Value> {
        let body = client::get(&self.client, &format!("/api/v1/nodes/{}", self.node))
            .await
            .ok()?;
        let node: Value = serde_json::from_slice(&body).ok()?;
        let uid = node.pointer("/metadata/uid")?;
        Some(json!([{"apiVersion": "v1", "kind": "Node", "name": &*self.node, "uid": uid}]))
    }
}

#[cfg(test)]
mod tests;
