//! Feature gates: KEP-4144 and KEP-1860, on, off, and flipped between two lives of a server.

use serde_json::{Value, json};

use crate::SERVICES;
use crate::common::client::{MERGE, service};
use crate::common::{Client, Server, Store, at, causes};

const KEP_4144_ON: &[&str] = &["--feature-gates=ServiceLBHealthCheckNodePortControl=true"];
const KEP_4144_OFF: &[&str] = &["--feature-gates=ServiceLBHealthCheckNodePortControl=false"];
const KEP_1860_OFF: &[&str] = &["--feature-gates=LoadBalancerIPMode=false"];
const FIELD: &str = "spec.allocateLoadBalancerHCNodePort";
const PORT: &str = "spec.healthCheckNodePort";

fn local(switch: Option<bool>) -> Value {
    let mut spec =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    if let Some(switch) = switch {
        spec["allocateLoadBalancerHCNodePort"] = json!(switch);
    }
    spec
}

async fn get(client: &Client, name: &str) -> Value {
    client.get(&format!("{SERVICES}/{name}")).await.expect(200)
}

async fn merge(client: &Client, name: &str, patch: Value) -> Value {
    client
        .patch(&format!("{SERVICES}/{name}"), MERGE, &patch)
        .await
        .expect(200)
}

#[tokio::test]
async fn health_check_ports_can_be_declined() {
    let server = Server::start(Store::Embedded, KEP_4144_ON).await;
    let client = server.admin();
    let usual = client
        .create_service("usual", local(None))
        .await
        .expect(201);
    assert_eq!(at(&usual, FIELD), true, "the default");
    assert!(at(&usual, PORT).is_u64());
    let wanted = client
        .create_service("wanted", local(Some(true)))
        .await
        .expect(201);
    assert!(at(&wanted, PORT).is_u64());
    let declined = client
        .create_service("declined", local(Some(false)))
        .await
        .expect(201);
    assert_eq!(at(&declined, FIELD), false);
    assert!(at(&declined, PORT).is_null(), "{declined}");
    // Only Services that would get a health check port have the switch.
    let other = client
        .create_service(
            "cluster",
            json!({"type": "LoadBalancer", "ports": [{"port": 80}]}),
        )
        .await;
    assert!(at(&other.expect(201), PORT).is_null());

    // Switching off keeps the port, until it is removed; then none comes back.
    let off = merge(
        &client,
        "usual",
        json!({"spec": {"allocateLoadBalancerHCNodePort": false}}),
    )
    .await;
    assert_eq!(at(&off, PORT), at(&usual, PORT));
    let removed = merge(
        &client,
        "usual",
        json!({"spec": {"healthCheckNodePort": null}}),
    )
    .await;
    assert!(at(&removed, PORT).is_null(), "{removed}");
    let free = at(&usual, PORT).clone();
    let mut spec = local(None);
    spec["healthCheckNodePort"] = free.clone();
    let taken = client.create_service("taker", spec).await.expect(201);
    assert_eq!(at(&taken, PORT), &free, "the port was free again");

    // Switching on again allocates.
    let on = merge(
        &client,
        "declined",
        json!({"spec": {"allocateLoadBalancerHCNodePort": true}}),
    )
    .await;
    assert!(at(&on, PORT).is_u64(), "{on}");
}

#[tokio::test]
async fn health_check_port_gate_flipped_between_lives() {
    let mut server = Server::start(Store::Embedded, KEP_4144_OFF).await;
    let client = server.admin();
    let dropped = client
        .create_service("dropped", local(Some(false)))
        .await
        .expect(201);
    assert!(
        at(&dropped, FIELD).is_null(),
        "the field is not there with the gate off: {dropped}"
    );
    assert!(at(&dropped, PORT).is_u64());

    server.restart(Some(KEP_4144_ON)).await;
    client
        .create_service("declined", local(Some(false)))
        .await
        .expect(201);
    assert!(at(&get(&client, "declined").await, PORT).is_null());
    // A Service from before can use the field as well.
    merge(
        &client,
        "dropped",
        json!({"spec": {"allocateLoadBalancerHCNodePort": false, "healthCheckNodePort": null}}),
    )
    .await;
    assert!(at(&get(&client, "dropped").await, PORT).is_null());

    server.restart(Some(KEP_4144_OFF)).await;
    assert_eq!(
        at(&get(&client, "declined").await, FIELD),
        false,
        "what is set stays"
    );
    let touched = merge(
        &client,
        "declined",
        json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .await;
    assert_eq!(at(&touched, FIELD), false);
    assert!(at(&touched, PORT).is_null(), "{touched}");
    let fresh = client
        .create_service("fresh", local(Some(false)))
        .await
        .expect(201);
    assert!(
        at(&fresh, FIELD).is_null() && at(&fresh, PORT).is_u64(),
        "{fresh}"
    );

    server.restart(Some(KEP_4144_ON)).await;
    assert_eq!(at(&get(&client, "declined").await, FIELD), false);
}

#[tokio::test]
async fn ip_mode_gate_off_then_on() {
    let mut server = Server::start(Store::Embedded, KEP_1860_OFF).await;
    let client = server.admin();
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    client.create_service("a", spec).await.expect(201);
    let status = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
    let path = format!("{SERVICES}/a/status");
    let proxy = status(json!({"ip": "192.0.2.1", "ipMode": "Proxy"}));
    let off = client.patch(&path, MERGE, &proxy).await.expect(200);
    assert!(
        at(&off, "status.loadBalancer.ingress.0.ipMode").is_null(),
        "{off}"
    );
    assert_eq!(at(&off, "status.loadBalancer.ingress.0.ip"), "192.0.2.1");

    server.restart(Some(&[])).await;
    let on = client.patch(&path, MERGE, &proxy).await.expect(200);
    assert_eq!(at(&on, "status.loadBalancer.ingress.0.ipMode"), "Proxy");
    let default = client
        .patch(&path, MERGE, &status(json!({"ip": "192.0.2.2"})))
        .await
        .expect(200);
    assert_eq!(
        at(&default, "status.loadBalancer.ingress.0.ipMode"),
        "VIP",
        "the default with an address"
    );
    let name = client
        .patch(&path, MERGE, &status(json!({"hostname": "lb.example.com"})))
        .await
        .expect(200);
    assert!(
        at(&name, "status.loadBalancer.ingress.0.ipMode").is_null(),
        "none without an address"
    );
    let bad = client
        .patch(
            &path,
            MERGE,
            &status(json!({"ip": "192.0.2.2", "ipMode": "Magic"})),
        )
        .await
        .expect(422);
    let expected = (
        "status.loadBalancer.ingress[0].ipMode".to_owned(),
        "FieldValueNotSupported".to_owned(),
    );
    assert_eq!(causes(&bad), [expected]);
    let without = client
        .patch(
            &path,
            MERGE,
            &status(json!({"hostname": "x.example.com", "ipMode": "VIP"})),
        )
        .await;
    assert_eq!(without.status, 422, "{}", without.text());

    // With the gate off again what is stored stays.
    client.patch(&path, MERGE, &proxy).await.expect(200);
    server.restart(Some(KEP_1860_OFF)).await;
    let kept = client
        .patch(&path, MERGE, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    assert_eq!(at(&kept, "status.loadBalancer.ingress.0.ipMode"), "Proxy");
}

#[tokio::test]
async fn an_unknown_gate_is_an_error_at_startup() {
    let log = Server::refuses(&["--feature-gates=NoSuchThing=true"]).await;
    assert!(log.contains("NoSuchThing"), "{log}");
    let log = Server::refuses(&["--feature-gates=LoadBalancerIPMode=perhaps"]).await;
    assert!(log.contains("LoadBalancerIPMode"), "{log}");
    let log = Server::refuses(&["--no-such-flag"]).await;
    assert!(log.contains("--no-such-flag"), "{log}");
}

#[tokio::test]
async fn a_switch_of_the_wrong_type_is_refused() {
    let server = Server::start(Store::Embedded, &[]).await;
    let mut spec = local(None);
    spec["allocateLoadBalancerHCNodePort"] = json!("no");
    let answer = server.admin().post(SERVICES, &service("a", spec)).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
}
