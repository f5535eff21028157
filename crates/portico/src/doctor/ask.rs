//! Asks the API server and the nodes.

use super::facts::{Cluster, Node};
use crate::client::Reader;
use crate::fetch;
use http::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use k8s_openapi::api::coordination::v1::Lease;
use portico_client::access;
use portico_client::error::chain;
use portico_model::objects;
use portico_model::report::{self, NodeReport};
use portico_view::{ReportView, life};
use portico_vip::config::STATUS_PORT;
use portico_vip::status::Status;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
const HEALTHZ_PORT: u16 = 10256;

/// The election of the control plane's address, as the daemon on this machine tells it.
pub(super) async fn vip() -> Result<Status, String> {
    let at = SocketAddr::from(([127, 0, 0, 1], STATUS_PORT));
    let answer = fetch::get(at, "/status", PATIENCE)
        .await
        .map_err(|error| format!("{at}: {error:#}"))?;
    serde_json::from_str(&answer.body).map_err(|error| format!("{at}: {error}"))
}

/// Asks the API server; `None` where none is known and none was given.
pub(super) async fn cluster(kubeconfig: Option<PathBuf>) -> Option<Result<Cluster, String>> {
    let asked_for = kubeconfig.is_some();
    let client = match access::client(kubeconfig.as_deref()).await {
        Ok(client) => client,
        Err(_) if !asked_for => return None,
        Err(error) => return Some(Err(chain(&error))),
    };
    let reader = Reader {
        client,
        authorization: None,
    };
    let asked = tokio::time::timeout(10 * PATIENCE, look(&reader));
    Some(match asked.await {
        Ok(found) => found.map_err(|error| format!("{error:#}")),
        Err(_) => Err(format!("no answer within {:?}", 10 * PATIENCE)),
    })
}

async fn look(reader: &Reader) -> anyhow::Result<Cluster> {
    let answer = reader.get("/version").await?;
    let date = answer
        .headers()
        .get(DATE)
        .and_then(|date| date.to_str().ok());
    let theirs = date.and_then(|date| rfc2822::parse(date).ok());
    let ahead = theirs.map(|theirs| theirs.timestamp().as_second() - Timestamp::now().as_second());
    let nodes: Vec<objects::Node> = reader.list("/api/v1/nodes").await?;
    let reports = reports(reader).await.map_err(|error| format!("{error:#}"));
    let mut asked = tokio::task::JoinSet::new();
    for node in nodes {
        let report = match &reports {
            Ok(reports) => Ok(reports.get(&*node.metadata.name).cloned()),
            Err(error) => Err(error.clone()),
        };
        asked.spawn(look_at(node, report));
    }
    let mut nodes = asked.join_all().await;
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Cluster { ahead, nodes })
}

async fn look_at(node: objects::Node, report: Result<Option<NodeReport>, String>) -> Node {
    let reports = report.as_ref().map(Option::is_some).map_err(String::clone);
    let report = report.ok().flatten();
    let addresses = node.status.addresses.iter();
    let internal = addresses
        .filter(|address| address.type_ == "InternalIP")
        .find_map(|address| address.address.parse().ok());
    let port = report
        .as_ref()
        .and_then(|report| report.healthz_port)
        .unwrap_or(HEALTHZ_PORT);
    let healthz = internal.map(|address| SocketAddr::new(address, port));
    let answer = match healthz {
        None => Err("the Node has no InternalIP".to_owned()),
        Some(at) => fetch::get(at, "/healthz", PATIENCE)
            .await
            .map(|answer| answer.code)
            .map_err(|error| format!("{error:#}")),
    };
    let trouble = report
        .as_ref()
        .map(|report| report.trouble.clone())
        .unwrap_or_default();
    Node {
        name: node.metadata.name.to_string(),
        healthz,
        answer,
        reports,
        trouble,
    }
}

/// The reports of nodes that are alive.
async fn reports(reader: &Reader) -> anyhow::Result<BTreeMap<String, NodeReport>> {
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases?labelSelector={}",
        report::NAMESPACE,
        report::LABEL
    );
    let leases: Vec<Lease> = reader.list(&path).await?;
    let now = Timestamp::now();
    let of = |lease: &Lease| {
        let node = report::node_of_lease(lease.metadata.name.as_deref()?)?;
        let is_alive = life::life(lease, now).is_alive();
        let report = ReportView::of(lease, is_alive, 0, now).filter(|report| report.fresh)?;
        Some((node.to_owned(), report.content))
    };
    Ok(leases.iter().filter_map(of).collect())
}
