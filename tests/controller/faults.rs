//! Everything that can go wrong between the controller, its provider and the API server, one thing
//! at a time: whatever it was, nothing is left behind, nothing is made twice, and nothing is made
//! for a Service that could vanish.

use crate::cloud::{Cloud, Fault};
use crate::common::eventually;
use crate::cutter::{Cut, Cutter};
use crate::rig::{Rig, Running, options, run};
use portico_providers::Abilities;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

/// A Service comes, changes and goes, while somebody starts the controller again whenever it was
/// killed.
async fn story(rig: &Rig, cloud: &Cloud, name: &str) {
    rig.create(name).await;
    rig.address(name).await;
    let ports = json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]);
    rig.change(name, json!({"spec": {"ports": ports}})).await;
    eventually("the second port is served", || async {
        cloud
            .made()
            .values()
            .any(|made| made.ports == [80, 443])
            .then_some(())
    })
    .await;
    rig.delete(name).await;
    rig.is_gone(name).await;
    eventually("nothing is left", || async {
        cloud.made().is_empty().then_some(())
    })
    .await;
    cloud.check();
}

/// Tells the story, and kills and restarts the controller whenever it is said to die.
async fn with_kills(
    rig: &Rig,
    cloud: &Cloud,
    name: &str,
    kill: &Arc<Notify>,
    start: impl Fn() -> Running,
) {
    let mut running = start();
    let telling = story(rig, cloud, name);
    tokio::pin!(telling);
    loop {
        tokio::select! {
            () = &mut telling => return running.kill().await,
            () = kill.notified() => {
                running.kill().await;
                cloud.restart();
                running = start();
            }
        }
    }
}

#[tokio::test]
async fn every_call_of_the_provider_fails_in_every_way() {
    let rig = Rig::start().await;
    let client = rig.kube().await;
    for fault in Fault::ALL {
        for call in 0..3 {
            let cloud = rig.cloud(Abilities::default()).await;
            cloud.fail(call, fault);
            let name = format!("web-{call}-{}", format!("{fault:?}").to_lowercase());
            with_kills(&rig, &cloud, &name, &cloud.kill, || {
                run(client.clone(), &cloud, options())
            })
            .await;
            assert!(
                cloud.fault_is_over(),
                "{fault:?} of call {call} never came: {:?}",
                cloud.calls()
            );
        }
    }
}

#[tokio::test]
async fn every_write_is_cut_off_before_and_after_it_arrives() {
    let rig = Rig::start().await;
    let cutter = Cutter::start(rig.api.clone()).await;
    let config = kube::Config::new(cutter.url.parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    // How many writes the story has when nothing goes wrong.
    let cloud = rig.cloud(Abilities::default()).await;
    cutter.cut(None);
    with_kills(&rig, &cloud, "web", &cutter.tripped, || {
        run(client.clone(), &cloud, options())
    })
    .await;
    let writes = cutter.writes();
    assert!((3..=7).contains(&writes.len()), "{writes:?}");
    for number in 0..writes.len() {
        for cut in [Cut::Before(number), Cut::After(number)] {
            let cloud = rig.cloud(Abilities::default()).await;
            cutter.cut(Some(cut));
            let name = format!(
                "web-{number}-{}",
                if cut == Cut::Before(number) {
                    "before"
                } else {
                    "after"
                }
            );
            with_kills(&rig, &cloud, &name, &cutter.tripped, || {
                run(client.clone(), &cloud, options())
            })
            .await;
        }
    }
}
