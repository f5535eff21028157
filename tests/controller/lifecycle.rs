//! The life of a load balancer, with a provider that does what it should.

use crate::common::{at, eventually, items, text};
use crate::rig::{Rig, Running, condition, finalizers, options, run};
use portico_client::lease::{LeaseOptions, lead};
use portico_controller::balancers::{self, FINALIZER};
use portico_controller::cluster::Cluster;
use portico_providers::Abilities;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const NODES: Abilities = Abilities {
    uses_nodes: true,
    uses_endpoints: false,
    announced_by_nodes: false,
    needs_health_check_port: false,
};

#[tokio::test]
async fn from_creation_to_deletion() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    let _running = rig.control(&cloud).await;
    let uid = text(&rig.create("web").await, "metadata.uid").to_owned();
    assert_eq!(rig.address("web").await, "192.0.2.1");
    let service = rig.get("web").await.unwrap();
    assert_eq!(finalizers(&service), [FINALIZER, "portico.dev/scripted"]);
    assert_eq!(
        text(&service, "status.loadBalancer.ingress.0.ipMode"),
        "VIP"
    );
    assert_eq!(condition(&service, "Allocated").unwrap()["status"], "True");
    // Nobody reports and nothing is served: said, and in nobody's way.
    rig.condition("web", "Programmed", "NotReported").await;
    rig.condition("web", "Announced", "ByProvider").await;
    rig.condition("web", "Reachable", "NoEndpoints").await;
    rig.node("a").await;
    rig.endpoint("web", "a").await;
    rig.condition("web", "Reachable", "EndpointsReady").await;
    rig.delete("web").await;
    rig.is_gone("web").await;
    assert!(cloud.made().is_empty());
    assert_eq!(cloud.calls(), ["ensure web", "delete web"]);
    let expected = [
        "DeletedLoadBalancer",
        "DeletingLoadBalancer",
        "EnsuredLoadBalancer",
        "EnsuringLoadBalancer",
    ];
    eventually("all of it is told", || async {
        let events = rig
            .api
            .get("/api/v1/namespaces/default/events")
            .await
            .expect(200);
        let own = items(&events)
            .iter()
            .filter(|event| text(event, "involvedObject.uid") == uid);
        let mut reasons: Vec<&str> = own.map(|event| text(event, "reason")).collect();
        reasons.sort_unstable();
        assert!(
            items(&events)
                .iter()
                .all(|event| text(event, "source.component") == "service-controller")
        );
        (reasons == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn others_conditions_and_services_are_left_alone() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    rig.create("mine").await;
    let foreign = json!({"status": {"conditions": [{"type": "LoadBalancerPortsError", "status": "True", "reason": "X",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    rig.api
        .patch(
            &format!("{}/status", crate::rig::path("mine")),
            crate::common::client::MERGE,
            &foreign,
        )
        .await
        .expect(200);
    rig.create_with("theirs", json!({"loadBalancerClass": "example.com/x"}))
        .await;
    let held = json!({"metadata": {"finalizers": [FINALIZER]}});
    rig.change("theirs", held).await;
    rig.delete("theirs").await;
    let _running = rig.control(&cloud).await;
    rig.address("mine").await;
    rig.condition("mine", "Reachable", "NoEndpoints").await;
    let service = rig.get("mine").await.unwrap();
    assert_eq!(
        condition(&service, "LoadBalancerPortsError").unwrap()["status"],
        "True"
    );
    let theirs = rig
        .get("theirs")
        .await
        .expect("its finalizer is not ours to remove");
    assert_eq!(finalizers(&theirs), [FINALIZER]);
    rig.delete("mine").await;
    rig.is_gone("mine").await;
    assert!(
        cloud.calls().iter().all(|call| call.ends_with(" mine")),
        "{:?}",
        cloud.calls()
    );
}

#[tokio::test]
async fn another_type_cleans_up_and_another_class_takes_over() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    let running = rig.control(&cloud).await;
    rig.create("web").await;
    rig.address("web").await;
    rig.change("web", json!({"spec": {"type": "NodePort"}}))
        .await;
    let service = eventually("web is let go", || async {
        rig.get("web")
            .await
            .filter(|service| finalizers(service).is_empty())
    })
    .await;
    assert!(cloud.made().is_empty());
    assert!(
        at(&service, "status.loadBalancer.ingress").is_null()
            && condition(&service, "Allocated").is_none(),
        "{service}"
    );
    // Back again, and while nobody looks to another class.
    rig.change("web", json!({"spec": {"type": "LoadBalancer"}}))
        .await;
    rig.address("web").await;
    running.kill().await;
    rig.change("web", json!({"spec": {"type": "NodePort"}}))
        .await;
    rig.change(
        "web",
        json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/x"}}),
    )
    .await;
    let _running = rig.control(&cloud).await;
    let service = eventually("web is handed over", || async {
        rig.get("web")
            .await
            .filter(|service| !finalizers(service).contains(&"portico.dev/scripted".to_owned()))
    })
    .await;
    assert_eq!(
        finalizers(&service),
        [FINALIZER],
        "it may be the other's by now"
    );
    assert!(cloud.made().is_empty());
}

#[tokio::test]
async fn one_made_anew_under_its_name_gets_its_own() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    let running = rig.control(&cloud).await;
    rig.create("web").await;
    let first = rig.address("web").await;
    running.kill().await;
    let running = rig.control(&cloud).await;
    eventually("it is known again", || async {
        (cloud.calls().len() == 2).then_some(())
    })
    .await;
    // Somebody takes the finalizers away.
    rig.change("web", json!({"metadata": {"finalizers": []}}))
        .await;
    rig.delete("web").await;
    rig.is_gone("web").await;
    rig.create("web").await;
    eventually("the second is made and the first is gone", || async {
        let made = cloud.made();
        (made.len() == 1 && made.values().all(|made| made.address.to_string() != first))
            .then_some(())
    })
    .await;
    cloud.check();
    running.stop().await;
}

#[tokio::test]
async fn nodes_that_come_and_go_are_one_update_for_whom_they_concern() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(NODES).await;
    rig.node("a").await;
    let _running = rig.control(&cloud).await;
    rig.create("web").await;
    rig.address("web").await;
    cloud.forget_calls();
    for name in ["b", "c", "d"] {
        rig.node(name).await;
    }
    let nodes = async || {
        cloud
            .made()
            .values()
            .next()
            .map(|made| made.nodes.clone())
            .unwrap_or_default()
    };
    eventually("four nodes", || async {
        (nodes().await == ["a", "b", "c", "d"]).then_some(())
    })
    .await;
    assert!(cloud.calls().len() <= 2, "{:?}", cloud.calls());
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    rig.api
        .patch(
            "/api/v1/nodes/a/status",
            crate::common::client::MERGE,
            &not_ready,
        )
        .await
        .expect(200);
    let exclude = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
    rig.api
        .patch("/api/v1/nodes/b", crate::common::client::MERGE, &exclude)
        .await
        .expect(200);
    eventually("one is out", || async {
        (nodes().await == ["a", "c", "d"]).then_some(())
    })
    .await;
    cloud.forget_calls();
    // A provider that uses no nodes is not told.
    let other = rig.cloud(Abilities::default()).await;
    let options = balancers::Options {
        class: Some("example.com/y".to_owned()),
        ..options()
    };
    let _other = run(rig.kube().await, &other, options);
    rig.create_with("quiet", json!({"loadBalancerClass": "example.com/y"}))
        .await;
    rig.address("quiet").await;
    rig.api.delete("/api/v1/nodes/d").await.expect(200);
    eventually("another is out", || async {
        (nodes().await == ["a", "c"]).then_some(())
    })
    .await;
    assert_eq!(
        (cloud.calls(), other.calls()),
        (
            vec!["update web".to_owned()],
            vec!["ensure quiet".to_owned()]
        )
    );
}

#[tokio::test]
async fn what_cannot_be_done_is_said_and_tried_again() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    cloud.refuse(true);
    let _running = rig.control(&cloud).await;
    rig.create("web").await;
    let refused = rig.condition("web", "Allocated", "PoolsExhausted").await;
    assert_eq!(refused["status"], "False");
    let told = |attempt: usize| {
        let rig = &rig;
        async move {
            let condition = rig.condition("web", "Allocated", "PoolsExhausted").await;
            text(&condition, "message")
                .contains(&format!("(attempt {attempt})"))
                .then_some(())
        }
    };
    eventually("the third try is told", || told(3)).await;
    cloud.refuse(false);
    rig.address("web").await;
    rig.condition("web", "Allocated", "Allocated").await;
}

#[tokio::test]
async fn what_was_removed_behind_its_back_is_made_again() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    let _running = run(
        rig.kube().await,
        &cloud,
        balancers::Options {
            resync: Duration::from_millis(300),
            ..options()
        },
    );
    let uid = text(&rig.create("web").await, "metadata.uid").to_owned();
    rig.address("web").await;
    cloud.lose(&uid);
    eventually("it is there again", || async {
        cloud.made().contains_key(&uid).then_some(())
    })
    .await;
    cloud.check();
}

#[tokio::test]
async fn a_status_that_somebody_else_changed_is_put_right() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    let _running = rig.control(&cloud).await;
    rig.create("web").await;
    rig.address("web").await;
    let wrong =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}, "conditions": []}});
    rig.api
        .patch(
            &format!("{}/status", crate::rig::path("web")),
            crate::common::client::MERGE,
            &wrong,
        )
        .await
        .expect(200);
    eventually("the address is right again", || async {
        (rig.address("web").await == "192.0.2.1").then_some(())
    })
    .await;
    rig.condition("web", "Allocated", "Allocated").await;
}

#[tokio::test]
async fn no_more_than_so_many_at_a_time() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    for number in 0..30 {
        rig.create(&format!("web-{number}")).await;
    }
    let _running = run(
        rig.kube().await,
        &cloud,
        balancers::Options {
            concurrency: 3,
            ..options()
        },
    );
    eventually("all are made", || async {
        (cloud.made().len() == 30).then_some(())
    })
    .await;
    assert!(cloud.most_busy() <= 3, "{}", cloud.most_busy());
    cloud.check();
}

#[tokio::test]
async fn leadership_is_handed_over() {
    let rig = Rig::start().await;
    let cloud = rig.cloud(Abilities::default()).await;
    let client = rig.kube().await;
    let candidate = |identity: &'static str| {
        let (client, cloud) = (client.clone(), Arc::new(cloud.clone()));
        let lease = LeaseOptions {
            lease_duration: Duration::from_secs(1),
            renew_deadline: Duration::from_millis(700),
            retry_period: Duration::from_millis(100),
            ..LeaseOptions::new("kube-system", "portico-controller", identity)
        };
        Running::new(move |stop| async move {
            let work = |stop| {
                balancers::run(
                    Cluster::new(client.clone()),
                    Arc::clone(&cloud) as Arc<_>,
                    options(),
                    stop,
                )
            };
            lead(client.clone(), lease, stop, work).await;
        })
    };
    let first = candidate("first");
    rig.create("one").await;
    rig.address("one").await;
    let second = candidate("second");
    first.kill().await;
    cloud.restart();
    rig.create("two").await;
    rig.address("two").await;
    let third = candidate("third");
    second.stop().await;
    rig.create("three").await;
    rig.address("three").await;
    let lease = rig
        .api
        .get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/portico-controller")
        .await
        .expect(200);
    assert_eq!(text(&lease, "spec.holderIdentity"), "third");
    cloud.check();
    third.stop().await;
}

#[tokio::test]
async fn what_nodes_report_becomes_programmed() {
    let rig = Rig::start().await;
    let cloud = rig
        .cloud(Abilities {
            announced_by_nodes: true,
            ..Abilities::default()
        })
        .await;
    for name in ["a", "b"] {
        rig.node(name).await;
    }
    report(&rig, "a", 1, None).await;
    report(&rig, "b", 1, None).await;
    let _running = rig.control(&cloud).await;
    rig.create("web").await;
    rig.endpoint("web", "a").await;
    rig.address("web").await;
    let behind = rig.condition("web", "Programmed", "NodesBehind").await;
    assert!(
        text(&behind, "message")
            .starts_with("live on 0 of 2 nodes; behind: a (has installed version 1"),
        "{behind}"
    );
    rig.condition("web", "Announced", "NobodyAnnounces").await;
    report(&rig, "a", u64::MAX, Some(json!({"members": ["a"]}))).await;
    eventually("one of two", || async {
        let condition = rig.condition("web", "Programmed", "NodesBehind").await;
        text(&condition, "message")
            .starts_with("live on 1 of 2 nodes; behind: b")
            .then_some(())
    })
    .await;
    report(&rig, "b", u64::MAX, None).await;
    let live = rig.condition("web", "Programmed", "Programmed").await;
    assert_eq!(
        (text(&live, "message"), text(&live, "status")),
        ("live on 2 of 2 nodes", "True")
    );
    rig.condition("web", "Announced", "Layer2").await;
    rig.condition("web", "Reachable", "EndpointsReady").await;
}

/// A node says how far it is.
async fn report(rig: &Rig, node: &str, services: u64, announcing: Option<Value>) {
    let report = json!({"services": services.to_string(), "slices": "1", "announcing": announcing})
        .to_string();
    let time = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": format!("portico-node-{node}"), "labels": {"portico.dev/node-report": ""},
            "annotations": {"portico.dev/report": report}},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 30, "renewTime": time}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let answer = rig.api.post(leases, &lease).await;
    if answer.status == 409 {
        let path = format!("{leases}/portico-node-{node}");
        rig.api
            .patch(&path, crate::common::client::MERGE, &lease)
            .await
            .expect(200);
    }
}
