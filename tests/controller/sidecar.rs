//! Services of a class that is not ours: another program makes their load balancer and says so in
//! their status.

use crate::common::{Client, at, eventually};
use crate::rig::{Rig, finalizers, path};
use portico_providers::Abilities;
use serde_json::{Value, json};

/// What the other program does when it is done.
async fn report(api: &Client, name: &str) -> Value {
    let status = json!({"metadata": {"finalizers": ["example.com/cleanup"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.5", "ipMode": "Proxy"}]}}});
    let merge = crate::common::client::MERGE;
    api.patch(&path(name), merge, &json!({"metadata": status["metadata"]}))
        .await
        .expect(200);
    api.patch(
        &format!("{}/status", path(name)),
        merge,
        &json!({"status": status["status"]}),
    )
    .await
    .expect(200)
}

#[tokio::test]
async fn what_is_not_ours_gets_ports_and_is_left_alone() {
    let rig = Rig::start().await;
    let cloud = rig
        .cloud(Abilities {
            uses_nodes: true,
            ..Abilities::default()
        })
        .await;
    let _running = rig.control(&cloud).await;
    let local =
        json!({"loadBalancerClass": "example.com/outside", "externalTrafficPolicy": "Local"});
    let theirs = rig.create_with("theirs", local).await;
    assert!(
        at(&theirs, "spec.ports.0.nodePort")
            .as_u64()
            .is_some_and(|port| port >= 30_000),
        "{theirs}"
    );
    assert!(
        at(&theirs, "spec.healthCheckNodePort")
            .as_u64()
            .is_some_and(|port| port >= 30_000),
        "{theirs}"
    );
    // Whoever comes later is served, so the other one has been looked at.
    rig.create("first").await;
    rig.address("first").await;
    let looked_at = rig.get("theirs").await.unwrap();
    assert_eq!(looked_at, theirs, "nothing was written");

    let reported = report(&rig.api, "theirs").await;
    rig.change("theirs", json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    rig.node("a").await;
    rig.create("second").await;
    rig.address("second").await;
    let kept = rig.get("theirs").await.unwrap();
    assert_eq!(kept["status"], reported["status"]);
    assert_eq!(finalizers(&kept), ["example.com/cleanup"]);

    rig.delete("theirs").await;
    rig.create("third").await;
    rig.address("third").await;
    let going = rig
        .get("theirs")
        .await
        .expect("the other program has not let go");
    assert_eq!(
        (finalizers(&going), &going["status"]),
        (vec!["example.com/cleanup".to_owned()], &reported["status"])
    );
    rig.change("theirs", json!({"metadata": {"finalizers": []}}))
        .await;
    eventually("it is gone", || async {
        rig.get("theirs").await.is_none().then_some(())
    })
    .await;
    assert!(
        cloud.calls().iter().all(|call| !call.ends_with("theirs")),
        "{:?}",
        cloud.calls()
    );
}
