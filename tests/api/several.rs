//! Several servers on one etcd.

use std::collections::BTreeSet;

use serde_json::json;

use crate::common::client::{JSON, MERGE, service};
use crate::common::ports::Owners;
use crate::common::{Etcd, Server, at, eventually, items, text};
use crate::{SERVICES, SLICES};

#[tokio::test]
async fn two_servers_agree() {
    let etcd = Etcd::start().await;
    let one = Server::start_on(Some(etcd.clone()), &["--advertise-address=192.0.2.1"]).await;
    let two = Server::start_on(Some(etcd), &["--advertise-address=192.0.2.2"]).await;
    let (a, b) = (one.admin(), two.admin());
    let from = text(
        &b.get(SERVICES).await.expect(200),
        "metadata.resourceVersion",
    )
    .to_owned();
    let mut watch = b
        .watch(&format!("{SERVICES}?watch=1&resourceVersion={from}"))
        .await;
    let made = a
        .create_service("a", json!({"type": "NodePort", "ports": [{"port": 80}]}))
        .await
        .expect(201);
    let event = watch.next_change().await;
    assert_eq!(event["type"], "ADDED");
    assert_eq!(
        at(&event, "object.metadata.resourceVersion"),
        at(&made, "metadata.resourceVersion")
    );
    // A read without a version sees what was acknowledged anywhere before.
    for n in 0..50 {
        let patch = json!({"metadata": {"annotations": {"n": n.to_string()}}});
        let (writer, reader) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        writer
            .patch(&format!("{SERVICES}/a"), MERGE, &patch)
            .await
            .expect(200);
        let read = reader.get(&format!("{SERVICES}/a")).await.expect(200);
        assert_eq!(at(&read, "metadata.annotations.n"), n.to_string().as_str());
    }
    // Who writes with an old version loses, wherever the newer one was written.
    let old = a.get(&format!("{SERVICES}/a")).await.expect(200);
    b.patch(
        &format!("{SERVICES}/a"),
        MERGE,
        &json!({"metadata": {"labels": {"by": "b"}}}),
    )
    .await
    .expect(200);
    a.put(&format!("{SERVICES}/a"), &old).await.expect(409);
    let port = at(&made, "spec.ports.0.nodePort");
    let taken = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    b.create_service("b", taken).await.expect(422);
}

#[tokio::test]
async fn nothing_is_given_away_twice() {
    let etcd = Etcd::start().await;
    let flags = ["--service-node-port-range=30000-30031"];
    let servers = [
        Server::start_on(Some(etcd.clone()), &flags).await,
        Server::start_on(Some(etcd), &flags).await,
    ];
    let writers: Vec<_> = (0..16)
        .map(|n: usize| {
            let client = servers[n % 2].admin();
            tokio::spawn(async move {
                let mut made = 0;
                for m in 0..8 {
                    let mut body = service(
                        &format!("w{n}-{m}"),
                        json!({"type": "NodePort", "ports": [{"port": 80}]}),
                    );
                    if m % 2 == 1 {
                        body["metadata"]["annotations"] =
                            json!({"portico.dev/port-partition": "left"});
                    }
                    let answer = client
                        .call("POST", SERVICES, &[], Some((JSON, body.to_string().into())))
                        .await;
                    assert!(answer.status < 500, "{} {}", answer.status, answer.text());
                    made += usize::from(answer.status == 201);
                }
                made
            })
        })
        .collect();
    let mut made = 0;
    for writer in writers {
        made += writer.await.unwrap();
    }
    assert_eq!(made, 64, "every port of both spaces went to somebody");
    let list = servers[0].admin().get("/api/v1/services").await.expect(200);
    let owners = Owners::of(items(&list));
    assert_eq!(owners.twice(), Vec::<String>::new());
    assert_eq!((owners.ports.len(), owners.partition_ports.len()), (32, 32));
}

#[tokio::test]
async fn the_kubernetes_service_has_an_endpoint_for_each_server() {
    let etcd = Etcd::start().await;
    let one = Server::start_on(Some(etcd.clone()), &["--advertise-address=192.0.2.1"]).await;
    let mut two = Server::start_on(Some(etcd), &["--advertise-address=192.0.2.2"]).await;
    let client = one.admin();
    let addresses = || async {
        let list = client
            .get(&format!(
                "{SLICES}?labelSelector=kubernetes.io/service-name%3Dkubernetes"
            ))
            .await
            .expect(200);
        let slices = items(&list)
            .iter()
            .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        slices
            .map(|endpoint| text(&endpoint, "addresses.0").to_owned())
            .collect::<BTreeSet<_>>()
    };
    let both = BTreeSet::from(["192.0.2.1".to_owned(), "192.0.2.2".to_owned()]);
    eventually("both servers are endpoints", || async {
        (addresses().await == both).then_some(())
    })
    .await;
    two.stop().await;
    let left = BTreeSet::from(["192.0.2.1".to_owned()]);
    eventually("the server that left is none", || async {
        (addresses().await == left).then_some(())
    })
    .await;
}
