//! Tells the API server how far this node is: one small Lease, written when something changed and
//! renewed otherwise.
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
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time between two writes while things change.
const EVERY: Duration = Duration::from_millis(500);
/// The time between two reports while no change is awaited.
const RENEW: Duration = Duration::from_secs(30);
/// A node that has not renewed its Lease for this long is not reporting.
const LASTS: Duration = Duration::from_secs(75);
/// The time between tries that fail, and where the server does not let us.
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
    loop {
        let (state, announced) = (
            installed.borrow_and_update().clone(),
            announcing.borrow_and_update().clone(),
        );
        let Some(state) = state else { return };
        let wait = match writer
            .write(&content(&state, about, announced, recent.summary()))
            .await
        {
            Ok(()) => {
                denied = false;
                let now = Instant::now();
                tokio::select! {
                    () = change(&mut installed) => {}
                    () = change(&mut announcing) => {}
                    () = tokio::time::sleep_until(timer.next(now.into(), RENEW).into()) => {}
                }
                tokio::time::sleep_until(now + EVERY).await;
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
                RETRY
            }
        };
        tokio::time::sleep(wait.mul_f64(0.5 + fraction())).await;
    }
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
    async fn write(&self, report: &NodeReport) -> Result<(), RequestError> {
        let lease = self.lease(report, Timestamp::now())?;
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

    fn lease(&self, report: &NodeReport, now: Timestamp) -> Result<Value, RequestError> {
        let report = serde_json::to_string(report).map_err(RequestError::Decode)?;
        Ok(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"labels": {report::LABEL: ""}, "annotations": {report::ANNOTATION: report}},
            "spec": {
                "holderIdentity": &*self.node,
                "leaseDurationSeconds": LASTS.as_secs(),
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
