//! Address pools and blocks.

use super::*;

const POOLS: &str = "portico.dev/addresspools";
const BLOCKS: &str = "portico.dev/addressblocks";

fn pool() -> Value {
    json!({"spec": {"addresses": ["192.0.2.0/24", "198.51.100.10-198.51.100.20", "2001:db8::/112"], "bgp": {}}})
}

fn block() -> Value {
    let service = json!({"namespace": "shop", "name": "web", "uid": "u1"});
    json!({"metadata": {"name": "192.0.2.0-24"}, "spec": {
        "cidr": "192.0.2.0/24", "claims": [{"address": "192.0.2.7", "services": [service]}],
    }})
}

#[test]
fn a_new_pool_has_its_defaults() {
    let created = create(POOLS, with(&pool(), &[("status", json!({"assigned": 5}))])).unwrap();
    assert_eq!(created.get("status"), None);
    assert_eq!(created["spec"]["autoAssign"], true);
    assert_eq!(created["spec"]["announce"], json!(["Layer2", "BGP"]));
    assert_eq!(
        created["spec"]["bgp"],
        json!({"aggregationLength": 32, "aggregationLengthV6": 128})
    );
    let ranges = "192.0.2.0/24,198.51.100.10-198.51.100.20,2001:db8::/112";
    assert_eq!(
        cells(POOLS, &created),
        ["a", ranges, "true", "0", "-", "-", "Layer2,BGP", "10m"]
    );
    let off = create(POOLS, with(&pool(), &[("spec.autoAssign", json!(false))])).unwrap();
    assert_eq!(off["spec"]["autoAssign"], false);
}

#[test]
fn the_status_has_a_door_of_its_own() {
    let old = create(POOLS, pool()).unwrap();
    let status = json!({"assigned": 3, "ipv4": {"capacity": 267, "assigned": 3, "available": 264}});
    let new = update_status(
        POOLS,
        with(&old, &[("status", status), ("spec.addresses", json!([]))]),
        &old,
    )
    .unwrap();
    assert_eq!(new["spec"], old["spec"]);
    assert_eq!(cells(POOLS, &new)[3..6], ["3", "264", "-"]);
    assert_eq!(
        update(POOLS, with(&new, &[("status", json!({}))]), &new).unwrap()["status"],
        new["status"]
    );
}

#[test]
fn refused_ranges() {
    let many: Vec<String> = (0..257)
        .map(|index| format!("10.{}.{}.0/24", index / 256, index % 256))
        .collect();
    let cases = [
        (json!([]), "spec.addresses", REQUIRED),
        (json!(many), "spec.addresses", TOO_MANY),
        (json!(["192.0.2.1"]), "spec.addresses[0]", INVALID),
        (json!(["web"]), "spec.addresses[0]", INVALID),
        (json!([""]), "spec.addresses[0]", INVALID),
        (json!(["192.0.2.1/24"]), "spec.addresses[0]", INVALID),
        (json!(["192.0.2.0/33"]), "spec.addresses[0]", INVALID),
        (
            json!(["192.0.2.20-192.0.2.10"]),
            "spec.addresses[0]",
            INVALID,
        ),
        (json!(["192.0.2.10-20"]), "spec.addresses[0]", INVALID),
        (
            json!(["192.0.2.10-192.0.2.11-192.0.2.12"]),
            "spec.addresses[0]",
            INVALID,
        ),
        (
            json!(["192.0.2.10-2001:db8::1"]),
            "spec.addresses[0]",
            INVALID,
        ),
        (
            json!(["192.0.2.0/24", "192.0.2.255-192.0.3.5"]),
            "spec.addresses[1]",
            INVALID,
        ),
        (
            json!(["2001:db8::/112", "192.0.2.0/24", "2001:db8::5-2001:db8::6"]),
            "spec.addresses[2]",
            INVALID,
        ),
        (json!(["10.0.0.0/7"]), "spec.addresses[0]", INVALID),
        (json!(["10.0.0.0-11.0.0.0"]), "spec.addresses[0]", INVALID),
        (json!(["2001:db8::/63"]), "spec.addresses[0]", INVALID),
        (json!(["::/0"]), "spec.addresses[0]", INVALID),
    ];
    for (addresses, field, reason) in cases {
        refuses(
            POOLS,
            &pool(),
            &[("spec.addresses", addresses, field, reason)],
        );
    }
    for good in [
        "10.0.0.0/8",
        "2001:db8::/64",
        "192.0.2.1 - 192.0.2.9",
        "192.0.2.1-192.0.2.1",
        "192.0.2.1/32",
    ] {
        create(POOLS, with(&pool(), &[("spec.addresses", json!([good]))])).unwrap();
    }
}

#[test]
fn ranges_are_refused_with_a_way_out() {
    let kind = kind(POOLS);
    for (range, wanted) in [
        ("192.0.2.9-192.0.2.1", "write 192.0.2.1-192.0.2.9"),
        ("192.0.2.1", "write 192.0.2.1/32"),
        ("10.0.0.0/7", "no more addresses than an IPv4 /8"),
    ] {
        let object = with(&pool(), &[("spec.addresses", json!([range]))]);
        let errors = kind.validate_create(&object, &Gates::default());
        assert!(
            errors.iter().any(|error| error.message.contains(wanted)),
            "{range}: {errors:?}"
        );
    }
}

#[test]
fn refused_rules() {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
    refuses(
        POOLS,
        &pool(),
        &[
            (
                "spec.announce",
                json!(["Layer2", "ARP"]),
                "spec.announce[1]",
                UNSUPPORTED,
            ),
            (
                "spec.announce",
                json!(["BGP", "BGP"]),
                "spec.announce[1]",
                DUPLICATE,
            ),
            (
                "spec.namespaces",
                json!(["A"]),
                "spec.namespaces[0]",
                INVALID,
            ),
            (
                "spec.namespaces",
                json!(["a", "a"]),
                "spec.namespaces[1]",
                DUPLICATE,
            ),
            (
                "spec.interfaces",
                json!(["a/b"]),
                "spec.interfaces[0]",
                INVALID,
            ),
            (
                "spec.interfaces",
                json!(["sixteencharacter"]),
                "spec.interfaces[0]",
                INVALID,
            ),
            (
                "spec.namespaceSelector",
                selector.clone(),
                "spec.namespaceSelector.matchExpressions[0].operator",
                INVALID,
            ),
            (
                "spec.serviceSelector",
                selector.clone(),
                "spec.serviceSelector.matchExpressions[0].operator",
                INVALID,
            ),
            (
                "spec.nodeSelector",
                selector,
                "spec.nodeSelector.matchExpressions[0].operator",
                INVALID,
            ),
            (
                "spec.bgp.communities",
                json!(["64512:65536"]),
                "spec.bgp.communities[0]",
                INVALID,
            ),
            (
                "spec.bgp.communities",
                json!(["no-no"]),
                "spec.bgp.communities[0]",
                INVALID,
            ),
            (
                "spec.bgp.communities",
                json!(["1:2:3:4"]),
                "spec.bgp.communities[0]",
                INVALID,
            ),
            (
                "spec.bgp.communities",
                json!(["1:2", "1:2"]),
                "spec.bgp.communities[1]",
                DUPLICATE,
            ),
            ("spec.bgp.peers", json!(["A"]), "spec.bgp.peers[0]", INVALID),
            (
                "spec.bgp.localPreference",
                json!(4_294_967_296_i64),
                "spec.bgp.localPreference",
                INVALID,
            ),
            (
                "spec.bgp.aggregationLength",
                json!(33),
                "spec.bgp.aggregationLength",
                INVALID,
            ),
            (
                "spec.bgp.aggregationLengthV6",
                json!(-1),
                "spec.bgp.aggregationLengthV6",
                INVALID,
            ),
        ],
    );
    let good = json!(["64512:100", "64512:4294967295:2", "no-export"]);
    create(POOLS, with(&pool(), &[("spec.bgp.communities", good)])).unwrap();
}

#[test]
fn blocks() {
    let created = create(BLOCKS, block()).unwrap();
    assert_eq!(
        cells(BLOCKS, &created),
        ["192.0.2.0-24", "192.0.2.0/24", "1", "10m"]
    );
    let v6 = json!({"metadata": {"name": "2001-db8-0-0-0-0-0-100-120"}, "spec": {"cidr": "2001:db8::100/120"}});
    create(BLOCKS, v6).unwrap();
    let claim = |address: &str| json!({"address": address, "services": block()["spec"]["claims"][0]["services"]});
    let (one, two) = (
        json!({"namespace": "a", "name": "b", "uid": "1"}),
        json!({"namespace": "a", "name": "c", "uid": "2"}),
    );
    refuses(
        BLOCKS,
        &block(),
        &[
            (
                "metadata.name",
                json!("192.0.3.0-24"),
                "metadata.name",
                INVALID,
            ),
            ("spec.cidr", json!(""), "spec.cidr", REQUIRED),
            ("spec.cidr", json!("192.0.2.0/25"), "spec.cidr", INVALID),
            ("spec.cidr", json!("2001:db8::/112"), "spec.cidr", INVALID),
            (
                "spec.claims.0.address",
                json!("192.0.3.7"),
                "spec.claims[0].address",
                INVALID,
            ),
            (
                "spec.claims.0.address",
                json!("web"),
                "spec.claims[0].address",
                INVALID,
            ),
            (
                "spec.claims",
                json!([claim("192.0.2.1"), claim("192.0.2.1")]),
                "spec.claims[1].address",
                DUPLICATE,
            ),
            (
                "spec.claims.0.services",
                json!([]),
                "spec.claims[0].services",
                REQUIRED,
            ),
            (
                "spec.claims.0.services",
                json!([one, two]),
                "spec.claims[0].services",
                FORBIDDEN,
            ),
            (
                "spec.claims.0.services.0.uid",
                json!(""),
                "spec.claims[0].services[0].uid",
                REQUIRED,
            ),
        ],
    );
    let shared = [
        ("spec.claims.0.services", json!([one, two])),
        ("spec.claims.0.sharingKey", json!("k")),
    ];
    create(BLOCKS, with(&block(), &shared)).unwrap();
    let moved = update(
        BLOCKS,
        with(
            &created,
            &[
                ("spec.cidr", json!("192.0.3.0/24")),
                ("metadata.resourceVersion", json!("1")),
            ],
        ),
        &created,
    );
    assert_eq!(moved, Err(vec![("spec.cidr".to_owned(), INVALID)]));
}
