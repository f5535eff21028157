//! The ranges ports and addresses come from.

use serde_json::{Value, json};

use crate::SERVICES;
use crate::common::ports::assert_no_port_leaked;
use crate::common::{Client, Server, Store, at};

fn node_port(port: Option<u64>) -> Value {
    let mut spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
    if let Some(port) = port {
        spec["ports"][0]["nodePort"] = json!(port);
    }
    spec
}

async fn port_of(client: &Client, name: &str) -> Option<u64> {
    let answer = client.create_service(name, node_port(None)).await;
    at(&answer.json(), "spec.ports.0.nodePort").as_u64()
}

#[tokio::test]
async fn the_null_range_gives_no_ports() {
    let server = Server::start(Store::Embedded, &["--service-node-port-range=0-0"]).await;
    let client = server.admin();
    for (name, spec) in [("any", node_port(None)), ("one", node_port(Some(30000)))] {
        let refused = client.create_service(name, spec).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
    }
    client
        .create_service("cluster", json!({"ports": [{"port": 80}]}))
        .await
        .expect(201);
    let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]});
    client.create_service("balanced", spec).await.expect(201);
}

#[tokio::test]
async fn disjoint_ranges_are_used_to_the_last_port() {
    let server = Server::start(
        Store::Embedded,
        &["--service-node-port-range=10000-10001,30000-30001"],
    )
    .await;
    let client = server.admin();
    let mut ports = vec![];
    for n in 0..4 {
        ports.push(port_of(&client, &format!("s{n}")).await.unwrap());
    }
    ports.sort_unstable();
    assert_eq!(ports, [10000, 10001, 30000, 30001]);
    let full = client.create_service("full", node_port(None)).await;
    assert!(
        (400..500).contains(&full.status),
        "{} {}",
        full.status,
        full.text()
    );
    assert!(full.text().contains("full"), "{}", full.text());
    let between = client
        .create_service("between", node_port(Some(20000)))
        .await
        .expect(422);
    assert!(
        between["message"]
            .as_str()
            .unwrap()
            .contains("not in the valid range"),
        "{between}"
    );
    client.delete(&format!("{SERVICES}/s2")).await.expect(200);
    assert!(
        port_of(&client, "again").await.is_some(),
        "a port that is given back can be had"
    );
}

#[tokio::test]
async fn a_refused_service_takes_nothing() {
    let server = Server::start(Store::Embedded, &["--service-node-port-range=30000-30003"]).await;
    let client = server.admin();
    client
        .create_service("a", node_port(Some(30000)))
        .await
        .expect(201);
    let ports = |second: u64| json!([{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 81, "nodePort": second}]);
    for second in [30000, 40000] {
        client
            .create_service("b", json!({"type": "NodePort", "ports": ports(second)}))
            .await
            .expect(422);
    }
    let many: Vec<_> = (0..4)
        .map(|n| json!({"name": format!("p{n}"), "port": 80 + n}))
        .collect();
    let refused = client
        .create_service("c", json!({"type": "NodePort", "ports": many}))
        .await;
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    let invalid = json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 80}]});
    client.create_service("d", invalid).await.expect(422);
    let dry = client
        .post(
            &format!("{SERVICES}?dryRun=All"),
            &crate::common::client::service("e", node_port(None)),
        )
        .await;
    dry.expect(201);
    assert_no_port_leaked(&client, 30000..=30003).await;
}

#[tokio::test]
async fn a_port_outside_a_narrowed_range_stays_with_its_service() {
    let mut server =
        Server::start(Store::Embedded, &["--service-node-port-range=30000-30010"]).await;
    let client = server.admin();
    client
        .create_service("a", node_port(Some(30010)))
        .await
        .expect(201);
    server
        .restart(Some(&["--service-node-port-range=30000-30003"]))
        .await;
    let a = client.get(&format!("{SERVICES}/a")).await.expect(200);
    assert_eq!(at(&a, "spec.ports.0.nodePort"), 30010);
    assert_no_port_leaked(&client, 30000..=30003).await;
}

#[tokio::test]
async fn nonsense_is_refused_at_startup() {
    for flag in [
        "--service-node-port-range=all",
        "--service-node-port-range=2-1",
        "--service-node-port-range=1-70000",
        "--service-cluster-ip-range=10.0.0.0/33",
        "--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24",
    ] {
        let log = Server::refuses(&[flag]).await;
        assert!(!log.contains("panicked"), "{flag}: {log}");
    }
}
