//! What a pool, a peer and a block may say: the same with the built-in kinds and, in a real
//! cluster, with the definitions of `deploy/`.

use crate::common::rival;
use crate::pools::{BLOCKS, POOLS};
use crate::rig::Rig;
use serde_json::{Value, json};

const PEERS: &str = "/apis/portico.dev/v1/bgppeers";

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "portico.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

async fn check(
    rig: &Rig,
    path: &str,
    kind: &str,
    named: Option<&str>,
    good: &[Value],
    bad: &[Value],
) {
    for (specs, status) in [(good, 201), (bad, 422)] {
        for (number, spec) in specs.iter().enumerate() {
            let own = format!("n{status}-{number}");
            let answer = rig
                .api
                .post(path, &object(kind, named.unwrap_or(&own), spec))
                .await;
            assert_eq!(answer.status, status, "{spec}: {}", answer.text());
            if status == 201 {
                rig.api
                    .delete(&format!("{path}/{}", named.unwrap_or(&own)))
                    .await
                    .expect(200);
            }
        }
    }
}

#[tokio::test]
async fn pools() {
    let rig = Rig::start().await;
    let pool = |more: Value| {
        let mut pool = json!({"addresses": ["192.0.2.0/24"]});
        pool.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        pool
    };
    let addresses = |addresses: &[&str]| json!({"addresses": addresses});
    let good = [
        addresses(&[
            "192.0.2.0/24",
            "198.51.100.10-198.51.100.20",
            "2001:db8::/112",
            "2001:db8:1::1 - 2001:db8:1::9",
        ]),
        pool(
            json!({"namespaces": ["shop"], "serviceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}),
        ),
        pool(
            json!({"announce": ["BGP"], "bgp": {"communities": ["64512:1", "64512:1:2", "no-export"], "localPreference": 4294967295_u32}}),
        ),
        pool(json!({"interfaces": ["eth0", "br-lan.7"], "priority": -1})),
    ];
    let bad = [
        json!({}),
        addresses(&[]),
        addresses(&["192.0.2.0"]),
        addresses(&["192.0.2.1/24"]),
        addresses(&["192.0.2.1-2001:db8::1"]),
        addresses(&["192.0.2.1-192.0.2.2-192.0.2.3"]),
        addresses(&["everything"]),
        pool(json!({"namespaces": ["Shop"]})),
        pool(json!({"announce": ["Shouting"]})),
        pool(json!({"announce": ["BGP", "BGP"]})),
        pool(json!({"interfaces": ["an interface"]})),
        pool(json!({"serviceSelector": {"matchExpressions": [{"key": "a", "operator": "Maybe"}]}})),
        pool(json!({"bgp": {"aggregationLength": 33}})),
        pool(json!({"bgp": {"communities": ["64512"]}})),
        pool(json!({"bgp": {"localPreference": -1}})),
    ];
    check(&rig, POOLS, "AddressPool", None, &good, &bad).await;
    // What is not said is filled in.
    let filled = rig
        .api
        .post(
            POOLS,
            &object("AddressPool", "filled", &pool(json!({"bgp": {}}))),
        )
        .await
        .expect(201);
    let expected = json!({"addresses": ["192.0.2.0/24"], "autoAssign": true, "announce": ["Layer2", "BGP"],
        "bgp": {"aggregationLength": 32, "aggregationLengthV6": 128}});
    assert_eq!(filled["spec"], expected);
}

#[tokio::test]
async fn peers() {
    let rig = Rig::start().await;
    let peer = |more: Value| {
        let mut peer = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1"});
        peer.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        peer
    };
    let good = [
        peer(
            json!({"holdTime": "1m30s", "keepaliveTime": "30s", "routerID": "10.0.0.1", "ebgpMultiHop": true}),
        ),
        peer(
            json!({"peerAddress": "2001:db8::1", "sourceAddress": "2001:db8::2", "peerASN": 4294967295_u32}),
        ),
        peer(json!({"holdTime": "0s", "passwordSecret": {"name": "router"}})),
    ];
    let bad = [
        json!({"myASN": 64512, "peerASN": 64513}),
        peer(json!({"myASN": 0})),
        peer(json!({"peerASN": 4294967296_u64})),
        peer(json!({"peerAddress": "router"})),
        peer(json!({"sourceAddress": "2001:db8::2"})),
        peer(json!({"routerID": "2001:db8::2"})),
        peer(json!({"peerPort": 65536})),
        peer(json!({"holdTime": "2s"})),
        peer(json!({"holdTime": "a while"})),
        peer(json!({"keepaliveTime": "90s"})),
        peer(json!({"connectTime": "0s"})),
        peer(json!({"restartTime": "4096s"})),
        peer(json!({"peerASN": 64512, "ebgpMultiHop": true})),
        peer(json!({"passwordSecret": {"key": "x"}})),
    ];
    check(&rig, PEERS, "BgpPeer", None, &good, &bad).await;
    let filled = rig
        .api
        .post(
            PEERS,
            &object(
                "BgpPeer",
                "filled",
                &peer(json!({"passwordSecret": {"name": "router"}})),
            ),
        )
        .await;
    let expected = peer(
        json!({"peerPort": 179, "holdTime": "90s", "connectTime": "10s", "restartTime": "120s", "gracefulRestart": true,
        "passwordSecret": {"namespace": "kube-system", "name": "router", "key": "password"}}),
    );
    assert_eq!(filled.expect(201)["spec"], expected);
}

#[tokio::test]
async fn blocks() {
    let rig = Rig::start().await;
    let service = |uid: &str| json!({"namespace": "shop", "name": "web", "uid": uid});
    let block = |claims: Value| json!({"cidr": "192.0.2.0/24", "claims": claims});
    let good = [
        block(json!([])),
        block(json!([{"address": "192.0.2.7", "services": [service("1")]}])),
        block(
            json!([{"address": "192.0.2.7", "sharingKey": "dns", "services": [service("1"), service("2")]}]),
        ),
    ];
    let mut bad = vec![
        json!({"cidr": "192.0.2.0/25"}),
        json!({"cidr": "198.51.100.0/24"}),
        block(json!([{"address": "198.51.100.7", "services": [service("1")]}])),
        block(json!([{"address": "192.0.2.7", "services": []}])),
        block(json!([{"address": "192.0.2.7", "services": [service("1"), service("2")]}])),
        block(
            json!([{"address": "192.0.2.7", "sharingKey": "dns", "services": [service("1"), service("1")]}]),
        ),
    ];
    if rival().is_none() {
        // A definition could say so only at a cost that grows with the square of the claims.
        let claim = |uid: &str| json!({"address": "192.0.2.7", "services": [service(uid)]});
        bad.push(block(json!([claim("1"), claim("2")])));
    }
    check(
        &rig,
        BLOCKS,
        "AddressBlock",
        Some("192.0.2.0-24"),
        &good,
        &bad,
    )
    .await;
    // Nobody writes over what they have not seen.
    let made = rig
        .api
        .post(BLOCKS, &object("AddressBlock", "192.0.2.0-24", &good[1]))
        .await
        .expect(201);
    let path = format!("{BLOCKS}/192.0.2.0-24");
    rig.api
        .put(&path, &object("AddressBlock", "192.0.2.0-24", &good[2]))
        .await
        .expect(422);
    let mut moved = made.clone();
    moved["spec"] = json!({"cidr": "192.0.3.0/24"});
    rig.api.put(&path, &moved).await.expect(422);
    let mut changed = made.clone();
    changed["spec"] = good[2].clone();
    rig.api.put(&path, &changed).await.expect(200);
    rig.api.put(&path, &changed).await.expect(409);
}
