use super::*;
use serde_json::json;
use std::collections::BTreeMap;

#[test]
fn ranges_as_people_write_them() {
    for (text, first, last) in [
        ("192.0.2.0/30", "192.0.2.0", "192.0.2.3"),
        ("192.0.2.9/32", "192.0.2.9", "192.0.2.9"),
        ("192.0.2.1 - 192.0.2.5", "192.0.2.1", "192.0.2.5"),
        ("2001:db8::/120", "2001:db8::", "2001:db8::ff"),
    ] {
        let range: AddressRange = text.parse().unwrap();
        assert_eq!(
            (range.first().to_string(), range.last().to_string()),
            (first.into(), last.into())
        );
        assert!(range.contains(range.first()) && range.contains(range.last()));
    }
    for text in [
        "",
        "web",
        "192.0.2.1",
        "192.0.2.5-192.0.2.1",
        "192.0.2.1-::1",
        "1-2-3",
        "192.0.2.0/33",
    ] {
        assert!(text.parse::<AddressRange>().is_err(), "{text}");
    }
}

#[test]
fn blocks_have_names_that_objects_can_have() {
    for (address, name) in [
        ("192.0.2.77", "192.0.2.0-24"),
        ("2001:db8::1ff", "2001-db8-0-0-0-0-0-100-120"),
        ("::", "0-0-0-0-0-0-0-0-120"),
    ] {
        let block = block_of(address.parse().unwrap());
        assert_eq!(block_name(block), name);
        assert!(block.contains(&address.parse::<IpAddr>().unwrap()));
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let pool: AddressPoolSpec =
        serde_json::from_value(json!({"addresses": ["192.0.2.0/24", "x"]})).unwrap();
    assert!(pool.auto_assign && pool.announces(Announce::Bgp) && pool.announces(Announce::Layer2));
    let (good, bad) = pool.ranges();
    assert_eq!((good.len(), bad.len()), (1, 1));
    let peer: BgpPeerSpec = serde_json::from_value(
        json!({"myASN": 1, "peerASN": 2, "peerAddress": "::1", "holdTime": "9s"}),
    )
    .unwrap();
    assert_eq!(
        (
            peer.hold().as_secs(),
            peer.keepalive().as_secs(),
            peer.peer_port
        ),
        (9, 3, 179)
    );
    assert!(peer.graceful_restart);
}

#[test]
fn selectors() {
    let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    for (selector, wanted) in [
        (json!({}), true),
        (json!({"matchLabels": {"a": "1"}}), true),
        (json!({"matchLabels": {"a": "1", "b": "2"}}), false),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["0", "1"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}),
            false,
        ),
    ] {
        let read: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
        assert_eq!(read.matches(&labels), wanted, "{selector}");
    }
}
