use super::*;
use serde_json::json;

fn spec(extra: serde_json::Value) -> Result<BgpPeerSpec, String> {
    let mut spec = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1"});
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    serde_json::from_value(spec).map_err(|error| error.to_string())
}

fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn of(extra: serde_json::Value, secret: Option<Values>) -> Wanted {
    wanted(
        &BTreeMap::from([("tor".to_owned(), spec(extra))]),
        &labels(&[("rack", "1")]),
        |_| secret.as_ref(),
    )
}

#[test]
fn what_is_not_said_has_its_usual_value() {
    let wanted = of(json!({}), None);
    let peer = &wanted.peers[0];
    assert_eq!(
        (peer.hold_time, peer.keepalive_time, peer.restart_time),
        (90, None, Some(120))
    );
    assert_eq!(peer.address, "192.0.2.1:179".parse().unwrap());
    assert_eq!(peer.connect_time, Duration::from_secs(10));
    assert!(peer.password.is_none() && !peer.ebgp_multihop && peer.source.is_none());
}

#[test]
fn everything_can_be_said() {
    let wanted = of(
        json!({
            "peerAddress": "2001:db8::1", "peerPort": 1790, "sourceAddress": "2001:db8::2", "routerID": "192.0.2.9",
            "holdTime": "9s", "keepaliveTime": "2s", "connectTime": "1m", "ebgpMultiHop": true, "gracefulRestart": false,
        }),
        None,
    );
    let peer = &wanted.peers[0];
    assert_eq!(peer.address, "[2001:db8::1]:1790".parse().unwrap());
    assert_eq!(peer.source, Some("2001:db8::2".parse().unwrap()));
    assert_eq!(peer.router_id, Some("192.0.2.9".parse().unwrap()));
    assert_eq!(
        (peer.hold_time, peer.keepalive_time, peer.restart_time),
        (9, Some(2), None)
    );
    assert_eq!(peer.connect_time, Duration::from_secs(60));
    assert!(peer.ebgp_multihop);
}

#[test]
fn other_nodes_have_other_peers() {
    assert_eq!(
        of(
            json!({"nodeSelector": {"matchLabels": {"rack": "1"}}}),
            None
        )
        .peers
        .len(),
        1
    );
    assert_eq!(
        of(
            json!({"nodeSelector": {"matchLabels": {"rack": "2"}}}),
            None
        ),
        Wanted::default()
    );
    assert_eq!(of(json!({"nodeSelector": {}}), None).peers.len(), 1);
}

#[test]
fn without_its_password_a_peer_is_not_tried_and_the_reason_is_told() {
    let secret = json!({"passwordSecret": {"name": "bgp"}});
    let with = |key: &str, value: &str| {
        Some(Some(BTreeMap::from([(
            key.to_owned(),
            value.as_bytes().to_vec(),
        )])))
    };
    let long = "x".repeat(81);
    for (values, reason) in [
        (
            None,
            "the Secret kube-system/bgp with the password has not been read yet",
        ),
        (
            Some(None),
            "the Secret kube-system/bgp with the password is not there",
        ),
        (
            with("other", "x"),
            "the Secret kube-system/bgp has no key \"password\"",
        ),
        (
            with("password", ""),
            "the password in the Secret kube-system/bgp is not of 1 to 80 octets of text",
        ),
        (
            with("password", &long),
            "the password in the Secret kube-system/bgp is not of 1 to 80 octets of text",
        ),
    ] {
        let wanted = of(secret.clone(), values);
        assert!(wanted.peers.is_empty());
        assert_eq!(wanted.broken[0].trouble, reason);
    }
    let good = of(secret, with("password", "s3cret\n"));
    assert_eq!(good.peers[0].password, Password::new("s3cret"));
}

#[test]
fn what_makes_no_sense_is_told() {
    for (wrong, part) in [
        (
            json!({"peerAddress": "router.example"}),
            "peerAddress \"router.example\"",
        ),
        (json!({"sourceAddress": "eth0"}), "sourceAddress \"eth0\""),
        (json!({"routerID": "seven"}), "routerID \"seven\""),
        (json!({"myASN": 0}), "myASN"),
        (json!({"myASN": "many"}), "invalid type"),
    ] {
        let wanted = of(wrong, None);
        assert!(
            wanted.peers.is_empty() && wanted.broken[0].trouble.contains(part),
            "{:?}",
            wanted.broken
        );
    }
}
