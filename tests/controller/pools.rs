//! Pools, and what is known of their addresses: who has which, by the AddressBlocks and by the
//! statuses.

use crate::common::client::MERGE;
use crate::common::{at, eventually, items, text};
use crate::rig::{Rig, Running, options};
use portico_controller::balancers;
use portico_controller::cluster::Cluster;
use portico_providers::Start;
use portico_providers::cloud::CallMetrics;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) const POOLS: &str = "/apis/portico.dev/v1/addresspools";
pub(crate) const BLOCKS: &str = "/apis/portico.dev/v1/addressblocks";

/// The controller with the provider metal, as `portico controller` runs it.
pub(crate) fn run_metal(client: kube::Client) -> Running {
    Running::new(move |stop| async move { control(client, stop).await })
}

pub(crate) async fn control(client: kube::Client, stop: portico_controller::Shutdown) {
    control_with(client, options(), stop).await;
}

pub(crate) async fn control_with(
    client: kube::Client,
    options: balancers::Options,
    stop: portico_controller::Shutdown,
) {
    control_cluster(Cluster::new(client), options, stop).await;
}

/// The same, with watches that others have, too.
pub(crate) async fn control_cluster(
    cluster: Cluster,
    options: balancers::Options,
    stop: portico_controller::Shutdown,
) {
    let start = Start {
        cluster: cluster.clone(),
        config: None,
        cluster_name: "test".to_owned(),
        metrics: CallMetrics::default(),
        shutdown: stop.clone(),
    };
    let provider = portico_providers::start("metal", start).await.unwrap();
    balancers::run(cluster, provider, options, stop).await;
}

impl Rig {
    pub(crate) async fn metal(&self) -> Running {
        run_metal(self.kube().await)
    }

    pub(crate) async fn pool(&self, name: &str, spec: Value) {
        let pool = json!({"apiVersion": "portico.dev/v1", "kind": "AddressPool", "metadata": {"name": name}, "spec": spec});
        self.api.post(POOLS, &pool).await.expect(201);
    }

    pub(crate) async fn change_pool(&self, name: &str, spec: Value) {
        self.api
            .patch(&format!("{POOLS}/{name}"), MERGE, &json!({"spec": spec}))
            .await
            .expect(200);
    }

    pub(crate) async fn pool_status(&self, name: &str) -> Value {
        self.api.get(&format!("{POOLS}/{name}")).await.expect(200)["status"].clone()
    }

    /// Who has which address, by the blocks: names, with the uid.
    pub(crate) async fn claims(&self) -> BTreeMap<String, Vec<(String, String)>> {
        let blocks = self.api.get(BLOCKS).await.expect(200);
        let claims = items(&blocks).iter().flat_map(|block| {
            at(block, "spec.claims")
                .as_array()
                .cloned()
                .unwrap_or_default()
        });
        let services = |claim: &Value| {
            let services = claim["services"].as_array().cloned().unwrap_or_default();
            services
                .iter()
                .map(|service| {
                    (
                        text(service, "name").to_owned(),
                        text(service, "uid").to_owned(),
                    )
                })
                .collect()
        };
        let mut all = BTreeMap::new();
        for claim in claims {
            let before = all.insert(text(&claim, "address").to_owned(), services(&claim));
            assert!(before.is_none(), "{claim} is there twice");
        }
        all
    }

    /// Who has which address, by the statuses.
    async fn shown(&self) -> BTreeMap<String, Vec<(String, String)>> {
        let services = self.api.get(crate::SERVICES).await.expect(200);
        let mut all: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for service in items(&services) {
            for ingress in at(service, "status.loadBalancer.ingress")
                .as_array()
                .into_iter()
                .flatten()
            {
                let owner = (
                    text(service, "metadata.name").to_owned(),
                    text(service, "metadata.uid").to_owned(),
                );
                all.entry(text(ingress, "ip").to_owned())
                    .or_default()
                    .push(owner);
            }
        }
        all
    }

    /// What is claimed is shown, and the other way round: nothing has leaked, and nothing is
    /// somebody else's. This may take a moment after the last change; that nobody shows the address
    /// of another is looked at every time.
    pub(crate) async fn books_balance(&self) {
        eventually("claims and statuses agree", || async {
            // In this order: a claim comes before the status and goes after it.
            let shown = self.shown().await;
            let claims = self.claims().await;
            for (address, owners) in &shown {
                let known = claims.get(address).cloned().unwrap_or_default();
                assert!(
                    owners.len() == 1 || owners.iter().all(|owner| known.contains(owner)),
                    "{address}: {owners:?} and {known:?}"
                );
            }
            let sorted = |all: BTreeMap<String, Vec<(String, String)>>| {
                let sort = |(address, mut owners): (String, Vec<(String, String)>)| {
                    owners.sort();
                    (address, owners)
                };
                all.into_iter().map(sort).collect::<Vec<_>>()
            };
            (sorted(shown) == sorted(claims)).then_some(())
        })
        .await;
    }
}
