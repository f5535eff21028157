//! What the API server knows of Services, nodes and those who work for them, put together for
//! people. `get`, `status` and others show parts of it.

mod endpoints;
mod leaders;
mod nodes;
mod pools;
mod services;

pub use endpoints::EndpointView;
pub use leaders::LeaderView;
pub use nodes::{NodeView, SILENT};
pub use pools::PoolView;
pub use services::ServiceView;

use crate::client::Reader;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portico_model::report;

/// Which Services: those of a namespace, or all.
pub type Scope<'a> = Option<&'a str>;

#[derive(Clone, Debug, Default)]
pub struct Fleet {
    pub services: Vec<Service>,
    pub slices: Vec<EndpointSlice>,
    pub nodes: Vec<Node>,
    pub leases: Vec<Lease>,
}

impl Fleet {
    /// Reports are read last, so that what they should have reached is older than they are.
    pub async fn read(reader: &Reader, scope: Scope<'_>) -> anyhow::Result<Fleet> {
        Ok(Fleet {
            services: reader.list(&path("/api/v1", scope, "services")).await?,
            slices: reader
                .list(&path("/apis/discovery.k8s.io/v1", scope, "endpointslices"))
                .await?,
            nodes: reader.list("/api/v1/nodes").await?,
            leases: reader
                .list(&path(
                    "/apis/coordination.k8s.io/v1",
                    Some(report::NAMESPACE),
                    "leases",
                ))
                .await?,
        })
    }

    pub fn nodes(&self, now: Timestamp) -> Vec<NodeView> {
        let newest = self.newest();
        self.nodes
            .iter()
            .map(|node| NodeView::of(node, &self.leases, newest, now))
            .collect()
    }

    pub fn services(&self, now: Timestamp) -> Vec<ServiceView> {
        let nodes = self.nodes(now);
        self.services
            .iter()
            .map(|service| ServiceView::of(service, &self.slices, &nodes))
            .collect()
    }

    /// In the order of Services.
    pub fn endpoints(&self) -> Vec<EndpointView> {
        self.slices.iter().flat_map(EndpointView::of).collect()
    }

    pub fn leaders(&self, now: Timestamp) -> Vec<LeaderView> {
        self.leases
            .iter()
            .filter_map(|lease| LeaderView::of(lease, now))
            .collect()
    }

    /// The version of the Service that was changed last: what nodes should have reached.
    fn newest(&self) -> u64 {
        self.services
            .iter()
            .map(|service| version(service.metadata.resource_version.as_deref()))
            .max()
            .unwrap_or(0)
    }
}

/// Of lists: `/api/v1/namespaces/shop/services` or `/api/v1/services`.
pub fn path(api: &str, scope: Scope<'_>, plural: &str) -> String {
    match scope {
        Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
        None => format!("{api}/{plural}"),
    }
}

/// Versions are compared as numbers: design/0015.
fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `3s`, `5m`, `2h`, `4d`.
pub fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..=119 => format!("{seconds}s"),
        seconds @ 120..=7199 => format!("{}m", seconds / 60),
        seconds @ 7200..=172_799 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
pub mod tests;
