//! How much the controllers of one process ask of the API server.

use crate::common::{Client, eventually};
use crate::pools;
use crate::rig::{Rig, Running, options};
use portico_controller::cluster::Cluster;
use portico_controller::{endpoints, health};
use portico_model::checks::Ranges;
use portico_providers::Abilities;
use serde_json::json;
use std::collections::BTreeMap;

/// All lists so far by resource, and the watches that are open.
async fn asked(api: &Client) -> (BTreeMap<String, f64>, f64) {
    let text = api.get("/metrics").await.text();
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    let lists = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{") && line.contains("\"list\""));
    let resource = |line: &str| {
        let rest = line.split_once("resource=\"").unwrap().1;
        rest.split_once('"').unwrap().0.to_owned()
    };
    let watches = text
        .lines()
        .find(|line| line.starts_with("apiserver_longrunning_requests"));
    (
        lists.map(|line| (resource(line), value(line))).collect(),
        watches.map(value).unwrap_or_default(),
    )
}

#[tokio::test]
async fn controllers_of_one_process_list_and_watch_each_kind_once() {
    let rig = Rig::start_with(&["--expose-health-checks=false"]).await;
    if rig.server.is_rival() {
        return;
    }
    let (before, _) = asked(&rig.api).await;
    let cluster = Cluster::new(rig.kube().await);
    let balancers = cluster.clone();
    let balancers = Running::new(move |stop| pools::control_cluster(balancers, options(), stop));
    let slices = cluster.clone();
    let slices = Running::new(move |stop| endpoints::run(slices, Default::default(), stop));
    let checks = Running::new(move |stop| {
        let options = health::Options {
            ranges: Ranges::from(vec!["cluster".parse().unwrap()]),
            ..health::Options::default()
        };
        health::run(cluster, options, stop)
    });
    rig.pool("public", json!({"addresses": ["192.0.2.0/24"]}))
        .await;
    rig.create("web").await;
    rig.address("web").await;
    let kinds = [
        "addressblocks",
        "addresspools",
        "endpoints",
        "endpointslices",
        "leases",
        "namespaces",
        "nodes",
        "pods",
        "services",
    ];
    eventually("each kind is listed once and watched once", || async {
        let (mut lists, watches) = asked(&rig.api).await;
        for (kind, count) in &mut lists {
            *count -= before.get(kind).copied().unwrap_or_default();
        }
        lists.retain(|_, count| *count > 0.0);
        let once = kinds.map(|kind| (kind.to_owned(), 1.0));
        assert!(watches <= 9.0, "{watches} watches");
        (lists == BTreeMap::from(once) && watches == 9.0).then_some(())
    })
    .await;
    // The others go on with the same watch when one stops, and the last one ends it.
    slices.stop().await;
    rig.create("other").await;
    rig.address("other").await;
    let (lists, _) = asked(&rig.api).await;
    let services = before.get("services").copied().unwrap_or_default();
    assert_eq!(lists["services"] - services, 1.0);
    balancers.stop().await;
    checks.stop().await;
    eventually("no watch is left", || async {
        (asked(&rig.api).await.1 == 0.0).then_some(())
    })
    .await;
    // And a controller that starts again hears of everything.
    let cloud = rig.cloud(Abilities::default()).await;
    let again = crate::rig::run(rig.kube().await, &cloud, options());
    rig.create("third").await;
    rig.address("third").await;
    drop(again);
}
