//! Endpoints and Services come and go under load: no request fails.

use crate::common::random::Random;
use crate::endpoint::Endpoint;
use crate::load::Loads;
use crate::rig::{Rig, assert_tidy, get, request};
use futures_util::future::join_all;
use portico_providers::Provider;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

const CHANGES: usize = 1000;

/// Between two and all but two of them.
fn some(random: &mut Random, endpoints: &[Endpoint]) -> BTreeSet<SocketAddr> {
    let count = 2 + random.below(endpoints.len() - 4);
    let mut chosen = BTreeSet::new();
    while chosen.len() < count {
        chosen.insert(random.pick(endpoints).address);
    }
    chosen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_changes_of_endpoints_fail_no_request() {
    let rig = Rig::new("");
    let running = rig.start().await;
    let endpoints = rig.endpoints(12).await;
    let seed = Random::fresh_seed();
    let mut random = Random::seeded(seed);
    let (mut older, mut before) = (BTreeSet::new(), some(&mut random, &endpoints));
    running
        .ensure(&request("web", 80, before.iter().copied()))
        .await;
    let workers = rig.ask("show info").await;
    let loads = Loads::start(rig.frontend(80));
    let (begun, mut comings_and_goings) = (Instant::now(), 0);
    for _ in 0..CHANGES {
        let now = some(&mut random, &endpoints);
        comings_and_goings += before.symmetric_difference(&now).count();
        for endpoint in &endpoints {
            endpoint
                .retire(
                    [&older, &before, &now]
                        .iter()
                        .all(|some| !some.contains(&endpoint.address)),
                )
                .await;
        }
        running
            .haproxy
            .update_nodes(&request("web", 80, now.iter().copied()))
            .await
            .unwrap();
        (older, before) = (before, now);
    }
    let took = begun.elapsed();
    println!("{CHANGES} changes, {comings_and_goings} servers, in {took:.1?} (seed {seed})");
    loads.stop().await;
    assert_eq!(
        endpoints.iter().map(Endpoint::strays).sum::<u64>(),
        0,
        "connections to endpoints that were out"
    );
    let expected: Vec<String> = before
        .iter()
        .map(|address| format!("{}_{}", address.ip(), address.port()))
        .collect();
    assert_eq!(rig.servers().await, expected);
    let pid = |text: &str| {
        text.lines()
            .find(|line| line.starts_with("Pid:"))
            .map(str::to_owned)
    };
    assert_eq!(
        pid(&rig.ask("show info").await),
        pid(&workers),
        "without a reload"
    );
    assert_tidy(rig.path("").as_path());
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_come_and_go_fail_no_request_of_others() {
    let rig = Rig::new("");
    let running = rig.start().await;
    let endpoints = rig.endpoints(3).await;
    let addresses = || endpoints.iter().map(|endpoint| endpoint.address);
    running.ensure(&request("web", 80, addresses())).await;
    let loads = Loads::start(rig.frontend(80));
    let begun = Instant::now();
    for round in 0..10 {
        let names: Vec<String> = (0..4)
            .map(|number| format!("other-{round}-{number}"))
            .collect();
        let others: Vec<_> = (1000..)
            .zip(&names)
            .map(|(port, name)| request(name, port, addresses()))
            .collect();
        join_all(others.iter().map(|other| running.ensure(other))).await;
        for port in 1000..1004 {
            assert!(
                get(rig.address(2), rig.frontend(port)).await.is_some(),
                "{port}"
            );
        }
        let deleted = join_all(others.iter().map(|other| running.haproxy.delete(other))).await;
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
        assert_eq!(get(rig.address(2), rig.frontend(1000)).await, None);
    }
    let (master, took) = (rig.ask_master("show proc").await, begun.elapsed());
    let master = master.lines().find(|line| line.contains("master")).unwrap();
    let reloads: usize = master.split_whitespace().nth(2).unwrap().parse().unwrap();
    println!("40 Services came and went in {took:.1?} with {reloads} reloads");
    loads.stop().await;
    // Those that come at once are one, if they do not come much apart.
    assert!((21..=60).contains(&reloads), "{reloads} reloads");
}
