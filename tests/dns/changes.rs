//! What happens in the cluster is in the zone soon after: changes of Services, of endpoints, of
//! nodes and of their health.

use crate::common::eventually;
use crate::rig::{Dns, Rig, ZONE};
use serde_json::json;
use std::time::{Duration, Instant};

const HEALTH_PORT: u16 = 32111;

fn on(port: u16, nodes: &[u8]) -> Vec<String> {
    nodes
        .iter()
        .map(|node| format!("0 1 {port} n{node}.node.{ZONE}."))
        .collect()
}

async fn awaits(rig: &Rig, name: &str, kind: &str, wanted: &[String]) {
    rig.dig
        .awaits(
            name,
            kind,
            &wanted.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
}

async fn serial(rig: &Rig) -> u32 {
    rig.dig.answers("", "SOA").await[0]
        .split(' ')
        .nth(2)
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_are_followed() {
    let rig = Rig::start(&[]).await;
    let web =
        json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]});
    let began = Instant::now();
    rig.service("web", web).await;
    awaits(&rig, "_http._tcp.web.shop.svc", "SRV", &on(30080, &[1, 2])).await;
    println!(
        "from the Service to its answer: {:?}, dig included",
        began.elapsed()
    );
    rig.balancer("web", json!([{"ip": "192.0.2.9"}])).await;
    rig.dig
        .awaits(
            "_http._tcp.web.shop.svc",
            "SRV",
            &[&format!("0 1 80 web.shop.lb.{ZONE}.")],
        )
        .await;
    rig.dig.awaits("web.shop.lb", "A", &["192.0.2.9"]).await;
    rig.balancer("web", json!([{"hostname": "lb.example.net"}]))
        .await;
    rig.dig
        .awaits("web.shop.svc", "A", &["lb.example.net."])
        .await;
    rig.balancer("web", json!([])).await;
    awaits(&rig, "_http._tcp.web.shop.svc", "SRV", &on(30080, &[1, 2])).await;
    let renamed =
        json!({"type": "NodePort", "ports": [{"name": "main", "port": 80, "nodePort": 30090}]});
    rig.service("web", renamed).await;
    awaits(&rig, "_main._tcp.web.shop.svc", "SRV", &on(30090, &[1, 2])).await;
    assert_eq!(
        rig.dig
            .ask("_http._tcp.web.shop.svc", "SRV", &[])
            .await
            .status,
        "NXDOMAIN"
    );
    let before = serial(&rig).await;
    rig.admin()
        .delete("/api/v1/namespaces/shop/services/web")
        .await
        .expect(200);
    rig.dig.awaits("web.shop.svc", "A", &[]).await;
    assert_eq!(
        rig.dig.ask("svc", "A", &[]).await.status,
        "NXDOMAIN",
        "nothing is below it any more"
    );
    eventually("the serial grows", || async {
        (serial(&rig).await > before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_fit_nodes_are_given() {
    let mut rig = Rig::start(&[]).await;
    rig.service(
        "web",
        json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
    )
    .await;
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1), rig.ip(2)]).await;
    let healthz = rig.healthz_port;
    let began = Instant::now();
    rig.set_health(1, healthz, false);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(2)]).await;
    println!(
        "from bad health to its answer: {:?} (two probes)",
        began.elapsed()
    );
    awaits(&rig, "_http._tcp.web.shop.svc", "SRV", &on(30080, &[2])).await;
    awaits(&rig, "n1.node", "A", &[rig.ip(1)]).await;
    let why = rig.page("/nodes").await;
    assert!(
        why.contains("n1\tnot given\t") && why.contains("is bad: answered 503"),
        "{why}"
    );
    assert_eq!(rig.metric("portico_dns_node_given{node=\"n1\"}").await, 0.0);
    rig.set_health(2, healthz, false);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1), rig.ip(2)]).await;
    assert_eq!(rig.metric("portico_dns_nobody_fit").await, 1.0);
    assert!(rig.dns.log().contains("all are given rather than none"));
    rig.set_health(1, healthz, true);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1)]).await;
    rig.set_health(2, healthz, true);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1), rig.ip(2)]).await;
    // A node that nobody answers at is not given, one that comes and answers is, one that goes is
    // not.
    rig.add_node(3).await;
    awaits(
        &rig,
        "web.shop.svc",
        "A",
        &[rig.ip(1), rig.ip(2), rig.ip(3)],
    )
    .await;
    let excluded = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}});
    rig.admin()
        .patch("/api/v1/nodes/n3", crate::common::client::MERGE, &excluded)
        .await
        .expect(200);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1), rig.ip(2)]).await;
    rig.admin().delete("/api/v1/nodes/n2").await.expect(200);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1)]).await;
    assert_eq!(rig.dig.ask("n2.node", "A", &[]).await.status, "NXDOMAIN");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_services_are_given_where_they_are() {
    let mut rig = Rig::start(&[]).await;
    rig.add_node(3).await;
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
    rig.service(
        "web",
        json!({"type": "NodePort", "externalTrafficPolicy": "Local", "ports": ports}),
    )
    .await;
    rig.endpoints("web", &[2]).await;
    awaits(&rig, "_http._tcp.web.shop.svc", "SRV", &on(30080, &[2])).await;
    rig.endpoints("web", &[1, 3]).await;
    awaits(&rig, "_http._tcp.web.shop.svc", "SRV", &on(30080, &[1, 3])).await;
    rig.endpoints("web", &[3, 3]).await;
    let twice = format!("0 2 30080 n3.node.{ZONE}.");
    awaits(&rig, "_http._tcp.web.shop.svc", "SRV", &[twice]).await;

    for node in [1, 2] {
        rig.answer_at(node, HEALTH_PORT, true).await;
    }
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30081}]);
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": HEALTH_PORT, "ports": ports});
    rig.service("api", spec).await;
    rig.endpoints("api", &[1, 2]).await;
    awaits(&rig, "_http._tcp.api.shop.svc", "SRV", &on(30081, &[1, 2])).await;
    rig.set_health(1, HEALTH_PORT, false);
    awaits(&rig, "_http._tcp.api.shop.svc", "SRV", &on(30081, &[2])).await;
    let why = rig.page("/nodes").await;
    assert!(
        why.contains(&format!(
            "shop/api\tnot given\t{}:{HEALTH_PORT} is bad: answered 503",
            rig.ip(1)
        )),
        "{why}"
    );
    rig.set_health(1, HEALTH_PORT, true);
    awaits(&rig, "_http._tcp.api.shop.svc", "SRV", &on(30081, &[1, 2])).await;
    // Three nodes, and two health-check ports: not one for each Service and node.
    assert_eq!(rig.metric("portico_dns_probed_addresses").await, 5.0);
    rig.balancer("api", json!([{"ip": "192.0.2.9"}])).await;
    eventually("nobody asks for what the balancer asks for", || async {
        (rig.metric("portico_dns_probed_addresses").await == 3.0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_tells_its_port() {
    let mut rig = Rig::start(&[]).await;
    rig.service(
        "web",
        json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
    )
    .await;
    let other = 32222;
    rig.answer_at(1, other, true).await;
    rig.set_health(1, rig.healthz_port, false);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(2)]).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "portico-node-n1", "annotations": {"portico.dev/report": json!({"healthzPort": other}).to_string()}},
        "spec": {}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    rig.admin().post(path, &lease).await.expect(201);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1), rig.ip(2)]).await;
    rig.admin()
        .delete(&format!("{path}/portico-node-n1"))
        .await
        .expect(200);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(2)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_go_on_without_the_api_server() {
    let mut rig = Rig::start(&[]).await;
    rig.service(
        "web",
        json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
    )
    .await;
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(1), rig.ip(2)]).await;
    rig.server.kill();
    eventually("it notices", || async {
        rig.dns.log().contains("cannot follow").then_some(())
    })
    .await;
    awaits(&rig, "_http._tcp.web.shop.svc", "SRV", &on(30080, &[1, 2])).await;
    // Nodes are still probed.
    rig.set_health(1, rig.healthz_port, false);
    awaits(&rig, "web.shop.svc", "A", &[rig.ip(2)]).await;
    rig.set_health(1, rig.healthz_port, true);
    rig.server.restart(None).await;
    rig.admin()
        .delete("/api/v1/namespaces/shop/services/web")
        .await
        .expect(200);
    rig.dig.awaits("web.shop.svc", "A", &[]).await;
    rig.service(
        "api",
        json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30081}]}),
    )
    .await;
    awaits(&rig, "api.shop.svc", "A", &[rig.ip(1), rig.ip(2)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_everything_is_known_nothing_is_said() {
    let mut rig = Rig::start(&[]).await;
    let before = serial(&rig).await;
    rig.dns.kill();
    rig.server.kill();
    rig.dns = Dns::start_at(
        &rig.server,
        rig.dns.port,
        rig.dns.metrics,
        rig.healthz_port,
        &[],
    );
    let said = eventually("it answers", || async {
        let reply = rig.dig.ask("n1.node", "A", &["+tries=1", "+time=1"]).await;
        (reply.status != "none").then_some(reply)
    })
    .await;
    assert_eq!(
        said.status, "SERVFAIL",
        "not that there is no such name: {}",
        said.text
    );
    assert!(rig.page("/readyz").await.contains("not complete"));
    rig.server.restart(None).await;
    rig.dns.ready().await;
    awaits(&rig, "n1.node", "A", &[rig.ip(1)]).await;
    assert!(serial(&rig).await > before, "serials grow over restarts");
    tokio::time::timeout(Duration::from_secs(1), rig.dig.ask("n1.node", "A", &[]))
        .await
        .unwrap();
}
