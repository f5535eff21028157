//! What `portico top` shows: the fleet as `portico-view` judges it, with what nodes were measured
//! to do. Pure.

use super::metrics::{Measured, seconds};
use crate::fleet::{News, WatchedFleet};
use jiff::Timestamp;
use portico_view::{EndpointState, EndpointView, NodeView, ServiceView};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    watched: WatchedFleet,
    /// The time by which the fleet is judged.
    clock: Timestamp,
    measured: BTreeMap<String, Result<Measured, String>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServiceRow {
    /// `namespace/name`
    pub name: String,
    #[serde(rename = "type")]
    pub type_: String,
    pub addresses: Vec<String>,
    pub ports: Vec<String>,
    pub ready: usize,
    pub endpoints: usize,
    /// By the name of the condition.
    pub conditions: BTreeMap<String, bool>,
    /// The worst of what is wrong with it.
    pub problem: String,
    /// `None` where no node counts connections.
    pub connections: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRow {
    pub name: String,
    pub address: String,
    /// Its report is alive.
    pub reports: bool,
    /// Services and slices of the API server are in its kernel up to these versions.
    pub installed: String,
    /// Half of all changes, and all but one in a hundred, were installed within these times.
    pub median: String,
    pub slowest: String,
    pub connections: Option<u64>,
    /// The worst of what is wrong with it.
    pub problem: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointRow {
    pub endpoint: String,
    pub node: String,
    pub state: EndpointState,
    pub connections: Option<u64>,
}

impl State {
    /// Came at the time that the clock was last set to.
    pub(super) fn apply(&mut self, news: News) {
        self.watched.apply(news, self.clock);
    }

    /// What comes, and what is shown, from now on is judged by this time.
    pub(super) fn set_clock(&mut self, clock: Timestamp) {
        self.clock = clock;
    }

    pub(super) fn is_complete(&self) -> bool {
        self.watched.is_complete()
    }

    /// How long it takes until it is known of all nodes whether they live.
    pub(super) fn doubt(&self) -> Option<Duration> {
        self.watched.fleet.doubt(self.clock)
    }

    /// Why what is shown may be old.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.watched.trouble.as_deref()
    }

    /// What was read from a node's metrics, or why it could not be read.
    pub(super) fn measure(&mut self, node: &str, measured: Result<Measured, String>) {
        self.measured.insert(node.to_owned(), measured);
    }

    /// Where the metrics of nodes may be.
    pub(super) fn metrics_addresses(&self, port: u16) -> Vec<(String, SocketAddr)> {
        let nodes = self.node_views().into_iter();
        nodes
            .filter_map(|node| {
                let address = node.addresses.first()?.parse().ok()?;
                Some((node.name, SocketAddr::new(address, port)))
            })
            .collect()
    }

    pub(super) fn services(&self) -> Vec<ServiceRow> {
        let counted = self.connections();
        let views = self.watched.fleet.services(self.clock);
        let row = |view: ServiceView| {
            let endpoints = self.watched.fleet.endpoints_of(&view.namespace, &view.name);
            let connections = endpoints.iter().map(|one| count(counted.as_ref(), one));
            ServiceRow {
                name: format!("{}/{}", view.namespace, view.name),
                ready: view.endpoints.ready,
                endpoints: view.endpoints.total,
                conditions: view
                    .conditions
                    .iter()
                    .map(|held| (held.type_.clone(), held.status == "True"))
                    .collect(),
                problem: view
                    .problems
                    .first()
                    .map(|problem| problem.what.clone())
                    .unwrap_or_default(),
                connections: match counted {
                    Some(_) => connections.sum(),
                    None => None,
                },
                type_: view.type_,
                addresses: view.addresses,
                ports: view.ports,
            }
        };
        views.into_iter().map(row).collect()
    }

    /// Those of the Service with this name (`namespace/name`).
    pub(super) fn endpoints(&self, service: &str) -> Vec<EndpointRow> {
        let counted = self.connections();
        let (namespace, name) = service.split_once('/').unwrap_or_default();
        let views = self.watched.fleet.endpoints_of(namespace, name);
        let row = |view: EndpointView| EndpointRow {
            connections: count(counted.as_ref(), &view),
            endpoint: view.address,
            node: view.node,
            state: view.state,
        };
        let mut rows: Vec<EndpointRow> = views.into_iter().map(row).collect();
        rows.sort_by(|one, other| one.endpoint.cmp(&other.endpoint));
        rows
    }

    pub(super) fn nodes(&self) -> Vec<NodeRow> {
        let views = self.node_views().into_iter();
        views.map(|view| self.node(view)).collect()
    }

    fn node(&self, view: NodeView) -> NodeRow {
        let measured = self.measured.get(&view.name);
        let known = measured.and_then(|measured| measured.as_ref().ok());
        let within = |share| {
            let time = known.and_then(|known| known.programmed_within(share));
            time.map(seconds).unwrap_or_default()
        };
        let problem = match (view.problems.first(), &view.report, measured) {
            (Some(problem), ..) => problem.what.clone(),
            (None, None, _) => "does not report".to_owned(),
            (None, Some(_), Some(Err(problem))) => format!("metrics: {problem}"),
            _ => String::new(),
        };
        let report = view.report.as_ref().map(|report| &report.content);
        NodeRow {
            address: view.addresses.first().cloned().unwrap_or_default(),
            reports: view.reports(),
            installed: report
                .map(|report| format!("{}/{}", report.services, report.slices))
                .unwrap_or_default(),
            median: within(0.5),
            slowest: within(0.99),
            connections: known.map(|known| known.connections.values().sum()),
            problem,
            name: view.name,
        }
    }

    fn node_views(&self) -> Vec<NodeView> {
        self.watched.fleet.nodes(self.clock)
    }

    /// By endpoint, over all nodes; `None` where no node counts.
    fn connections(&self) -> Option<BTreeMap<SocketAddr, u64>> {
        let counting = self
            .measured
            .values()
            .flatten()
            .filter(|measured| !measured.connections.is_empty());
        let mut sum: Option<BTreeMap<SocketAddr, u64>> = None;
        for (endpoint, count) in counting.flat_map(|measured| &measured.connections) {
            *sum.get_or_insert_default().entry(*endpoint).or_default() += count;
        }
        sum
    }
}

fn count(counted: Option<&BTreeMap<SocketAddr, u64>>, endpoint: &EndpointView) -> Option<u64> {
    let counted = counted?;
    let address: Option<SocketAddr> = endpoint.address.parse().ok();
    let count = address.and_then(|address| counted.get(&address));
    Some(count.copied().unwrap_or(0))
}
