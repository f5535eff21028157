//! Announces routes to BGP peers.

use super::RouteChanges;
use kube::Client;
use portico_model::report::Session;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// What it works with.
pub struct Parts {
    pub client: Client,
    pub node: Arc<str>,
    /// The labels of the own Node, for the selectors of peers.
    pub labels: watch::Receiver<BTreeMap<String, String>>,
    pub routes: mpsc::Receiver<RouteChanges>,
    /// How the sessions are, for the node's report.
    pub sessions: watch::Sender<Vec<Session>>,
}

/// Until nobody sends routes any more.
pub async fn run(mut parts: Parts) {
    while parts.routes.recv().await.is_some() {}
}
