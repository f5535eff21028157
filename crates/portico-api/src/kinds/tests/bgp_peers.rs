//! BGP peers.

use super::*;

const PEERS: &str = "portico.dev/bgppeers";

fn peer() -> Value {
    json!({"spec": {"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1"}})
}

#[test]
fn a_new_peer_has_its_defaults() {
    let created = create(
        PEERS,
        with(&peer(), &[("spec.passwordSecret", json!({"name": "bgp"}))]),
    )
    .unwrap();
    let spec = &created["spec"];
    assert_eq!(
        (&spec["peerPort"], &spec["gracefulRestart"]),
        (&json!(179), &json!(true))
    );
    let times = ["holdTime", "connectTime", "restartTime"].map(|key| spec[key].as_str().unwrap());
    assert_eq!(times, ["90s", "10s", "120s"]);
    assert_eq!(
        spec["passwordSecret"],
        json!({"namespace": "kube-system", "name": "bgp", "key": "password"})
    );
    assert_eq!(
        cells(PEERS, &created),
        ["a", "64513", "192.0.2.1", "64512", "10m"]
    );
    let off = create(
        PEERS,
        with(&peer(), &[("spec.gracefulRestart", json!(false))]),
    )
    .unwrap();
    assert_eq!(off["spec"]["gracefulRestart"], false);
}

#[test]
fn refused_peers() {
    refuses(
        PEERS,
        &peer(),
        &[
            ("spec.myASN", json!(0), "spec.myASN", INVALID),
            (
                "spec.peerASN",
                json!(4_294_967_296_i64),
                "spec.peerASN",
                INVALID,
            ),
            ("spec.peerASN", json!(-1), "spec.peerASN", INVALID),
            ("spec.peerAddress", json!(""), "spec.peerAddress", REQUIRED),
            (
                "spec.peerAddress",
                json!("router"),
                "spec.peerAddress",
                INVALID,
            ),
            ("spec.peerPort", json!(65536), "spec.peerPort", INVALID),
            (
                "spec.sourceAddress",
                json!("2001:db8::1"),
                "spec.sourceAddress",
                INVALID,
            ),
            (
                "spec.sourceAddress",
                json!("x"),
                "spec.sourceAddress",
                INVALID,
            ),
            (
                "spec.routerID",
                json!("2001:db8::1"),
                "spec.routerID",
                INVALID,
            ),
            ("spec.routerID", json!("0.0.0.0"), "spec.routerID", INVALID),
            ("spec.holdTime", json!("1s"), "spec.holdTime", INVALID),
            ("spec.holdTime", json!("2s"), "spec.holdTime", INVALID),
            ("spec.holdTime", json!("90"), "spec.holdTime", INVALID),
            ("spec.holdTime", json!("90ms"), "spec.holdTime", INVALID),
            ("spec.holdTime", json!("65536s"), "spec.holdTime", INVALID),
            (
                "spec.keepaliveTime",
                json!("90s"),
                "spec.keepaliveTime",
                INVALID,
            ),
            (
                "spec.keepaliveTime",
                json!("0s"),
                "spec.keepaliveTime",
                INVALID,
            ),
            ("spec.connectTime", json!("0s"), "spec.connectTime", INVALID),
            (
                "spec.restartTime",
                json!("4096s"),
                "spec.restartTime",
                INVALID,
            ),
            (
                "spec.passwordSecret",
                json!({"namespace": "a"}),
                "spec.passwordSecret.name",
                REQUIRED,
            ),
            (
                "spec.passwordSecret",
                json!({"name": "a", "key": "a b"}),
                "spec.passwordSecret.key",
                INVALID,
            ),
            (
                "spec.nodeSelector",
                json!({"matchLabels": {"a b": "c"}}),
                "spec.nodeSelector.matchLabels",
                INVALID,
            ),
        ],
    );
    for (path, value) in [
        ("spec.holdTime", json!("0s")),
        ("spec.holdTime", json!("3s")),
        ("spec.holdTime", json!("1m30s")),
        ("spec.keepaliveTime", json!("30s")),
        ("spec.peerASN", json!(4_294_967_295_i64)),
        ("spec.ebgpMultiHop", json!(true)),
        ("spec.sourceAddress", json!("192.0.2.9")),
    ] {
        create(PEERS, with(&peer(), &[(path, value)])).unwrap();
    }
    let internal = [
        ("spec.ebgpMultiHop", json!(true)),
        ("spec.peerASN", json!(64512)),
    ];
    let found = create(PEERS, with(&peer(), &internal));
    assert_eq!(
        found,
        Err(vec![("spec.ebgpMultiHop".to_owned(), FORBIDDEN)])
    );
}
