//! Endpoints, EndpointSlices and Leases.

use super::*;

const SLICES: &str = "discovery.k8s.io/endpointslices";
const LEASES: &str = "coordination.k8s.io/leases";

fn slice() -> Value {
    json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.0.1"]}], "ports": [{"port": 80}]})
}

#[test]
fn endpoints() {
    let good = json!({"subsets": [{"addresses": [{"ip": "10.1.0.1", "nodeName": "n", "hostname": "h"}], "ports": [{"port": 80}]}]});
    let created = create("endpoints", good.clone()).unwrap();
    assert_eq!(
        created["subsets"][0]["ports"],
        json!([{"port": 80, "protocol": "TCP"}])
    );
    refuses(
        "endpoints",
        &good,
        &[
            ("subsets.0.addresses", json!([]), "subsets[0]", REQUIRED),
            (
                "subsets.0.addresses.0.ip",
                json!("web"),
                "subsets[0].addresses[0].ip",
                INVALID,
            ),
            (
                "subsets.0.addresses.0.ip",
                json!("127.0.0.1"),
                "subsets[0].addresses[0].ip",
                INVALID,
            ),
            (
                "subsets.0.addresses.0.ip",
                json!("010.1.0.1"),
                "subsets[0].addresses[0].ip",
                INVALID,
            ),
            (
                "subsets.0.addresses.0.nodeName",
                json!("N"),
                "subsets[0].addresses[0].nodeName",
                INVALID,
            ),
            (
                "subsets.0.addresses.0.hostname",
                json!("a.b"),
                "subsets[0].addresses[0].hostname",
                INVALID,
            ),
            (
                "subsets.0.notReadyAddresses",
                json!([{"ip": "::1"}]),
                "subsets[0].notReadyAddresses[0].ip",
                INVALID,
            ),
            (
                "subsets.0.ports.0.port",
                json!(65536),
                "subsets[0].ports[0].port",
                INVALID,
            ),
            (
                "subsets.0.ports.0.protocol",
                json!("tcp"),
                "subsets[0].ports[0].protocol",
                UNSUPPORTED,
            ),
            (
                "subsets.0.ports.0.name",
                json!("A"),
                "subsets[0].ports[0].name",
                INVALID,
            ),
            (
                "subsets.0.ports.0.appProtocol",
                json!("a b"),
                "subsets[0].ports[0].appProtocol",
                INVALID,
            ),
            (
                "subsets.0.ports",
                json!([{"port": 80}, {"port": 81, "name": "b"}]),
                "subsets[0].ports[0].name",
                REQUIRED,
            ),
        ],
    );
}

#[test]
fn endpoints_row() {
    let addresses = json!([{"ip": "10.1.0.1"}, {"ip": "10.1.0.2"}]);
    for (subsets, text) in [
        (json!([]), "<none>"),
        (
            json!([{"notReadyAddresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80}]}]),
            "",
        ),
        (json!([{"addresses": addresses}]), "10.1.0.1,10.1.0.2"),
        (
            json!([{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}]),
            "[fd00::1]:80",
        ),
        (
            json!([{"addresses": addresses, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}]),
            "10.1.0.1:80,10.1.0.2:80,10.1.0.1:81 + 1 more...",
        ),
    ] {
        let created = create("endpoints", json!({"subsets": subsets})).unwrap();
        assert_eq!(cells("endpoints", &created), ["a", text, "10m"]);
    }
}

#[test]
fn a_new_slice() {
    let topology = json!({"kubernetes.io/hostname": "n"});
    let created = create(
        SLICES,
        with(&slice(), &[("endpoints.0.deprecatedTopology", topology)]),
    )
    .unwrap();
    assert_eq!(
        created["ports"],
        json!([{"name": "", "port": 80, "protocol": "TCP"}])
    );
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(
        created["endpoints"],
        json!([{"addresses": ["10.1.0.1"], "conditions": {}}])
    );
    assert_eq!(
        cells(SLICES, &created),
        ["a", "IPv4", "80", "10.1.0.1", "10m"]
    );
}

#[test]
fn refused_slices() {
    let hints = |key: &str, names: &[&str]| json!({key: names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
    let addresses = |count: usize| {
        (0..count)
            .map(|index| format!("10.1.1.{index}"))
            .collect::<Vec<_>>()
    };
    let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    refuses(
        SLICES,
        &slice(),
        &[
            ("addressType", json!(""), "addressType", REQUIRED),
            ("addressType", json!("IP"), "addressType", UNSUPPORTED),
            (
                "endpoints.0.addresses",
                json!([]),
                "endpoints[0].addresses",
                REQUIRED,
            ),
            (
                "endpoints.0.addresses",
                json!(["fd01::1"]),
                "endpoints[0].addresses",
                INVALID,
            ),
            (
                "endpoints.0.addresses",
                json!(["127.0.0.1"]),
                "endpoints[0].addresses[0]",
                INVALID,
            ),
            (
                "endpoints.0.addresses",
                json!(["::ffff:1.2.3.4"]),
                "endpoints[0].addresses[0]",
                INVALID,
            ),
            (
                "endpoints.0.addresses",
                json!(addresses(101)),
                "endpoints[0].addresses",
                TOO_MANY,
            ),
            (
                "endpoints",
                json!(vec![json!({"addresses": ["10.1.0.1"]}); 1001]),
                "endpoints",
                TOO_MANY,
            ),
            (
                "endpoints.0.nodeName",
                json!("N"),
                "endpoints[0].nodeName",
                INVALID,
            ),
            (
                "endpoints.0.hostname",
                json!("a.b"),
                "endpoints[0].hostname",
                INVALID,
            ),
            (
                "endpoints.0.hints",
                hints("forZones", &nine),
                "endpoints[0].hints.forZones",
                TOO_MANY,
            ),
            (
                "endpoints.0.hints",
                hints("forZones", &["a", "a"]),
                "endpoints[0].hints.forZones[1].name",
                DUPLICATE,
            ),
            (
                "endpoints.0.hints",
                hints("forZones", &["-"]),
                "endpoints[0].hints.forZones[0].name",
                INVALID,
            ),
            (
                "endpoints.0.hints",
                hints("forNodes", &nine),
                "endpoints[0].hints.forNodes",
                TOO_MANY,
            ),
            (
                "endpoints.0.hints",
                hints("forNodes", &["N"]),
                "endpoints[0].hints.forNodes[0].name",
                INVALID,
            ),
            (
                "ports",
                json!([{"port": 80}, {"port": 81}]),
                "ports[1].name",
                DUPLICATE,
            ),
            ("ports.0.name", json!("A"), "ports[0].name", INVALID),
            (
                "ports.0.protocol",
                json!("tcp"),
                "ports[0].protocol",
                UNSUPPORTED,
            ),
            (
                "ports.0.protocol",
                json!(""),
                "ports[0].protocol",
                UNSUPPORTED,
            ),
            (
                "ports.0.appProtocol",
                json!("a b"),
                "ports[0].appProtocol",
                INVALID,
            ),
            (
                "ports",
                json!(vec![json!({"port": 80}); 20001]),
                "ports",
                TOO_MANY,
            ),
        ],
    );
}

#[test]
fn addresses_by_type() {
    for (kind, address, field) in [
        ("IPv6", "fd01::1", None),
        ("IPv6", "fd01:0::1", Some("endpoints[0].addresses[0]")),
        ("IPv6", "10.1.0.1", Some("endpoints[0].addresses")),
        ("IPv6", "fe80::1", Some("endpoints[0].addresses[0]")),
        ("FQDN", "a.example.com", None),
        ("FQDN", "a.example.com.", None),
        ("FQDN", "localhost", Some("endpoints[0].addresses[0]")),
        ("FQDN", "A.b", Some("endpoints[0].addresses[0]")),
    ] {
        let found = create(
            SLICES,
            with(
                &slice(),
                &[
                    ("addressType", json!(kind)),
                    ("endpoints.0.addresses", json!([address])),
                ],
            ),
        );
        assert_eq!(
            found.err(),
            field.map(|field| vec![(field.to_owned(), INVALID)]),
            "{kind} {address}"
        );
    }
}

#[test]
fn generations_of_slices() {
    let old = create(SLICES, slice()).unwrap();
    for (path, value, generation) in [
        ("metadata.annotations", json!({"a": "b"}), 1),
        ("metadata.generation", json!(7), 1),
        ("metadata.labels", json!({"a": "b"}), 2),
        ("endpoints.0.addresses", json!(["10.1.0.2"]), 2),
        ("ports.0.port", json!(81), 2),
    ] {
        let new = update(SLICES, with(&old, &[(path, value)]), &old).unwrap();
        assert_eq!(new["metadata"]["generation"], generation, "{path}");
    }
    let found = update(
        SLICES,
        with(
            &old,
            &[
                ("addressType", json!("IPv6")),
                ("endpoints.0.addresses", json!(["fd01::1"])),
            ],
        ),
        &old,
    );
    assert_eq!(found, Err(vec![("addressType".to_owned(), INVALID)]));
}

#[test]
fn leases() {
    let good = json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0, "strategy": "x"}});
    let created = create(LEASES, good.clone()).unwrap();
    assert_eq!(created["spec"].get("strategy"), None);
    assert_eq!(cells(LEASES, &created), ["a", "me", "10m"]);
    refuses(
        LEASES,
        &good,
        &[
            (
                "spec.leaseDurationSeconds",
                json!(0),
                "spec.leaseDurationSeconds",
                INVALID,
            ),
            (
                "spec.leaseTransitions",
                json!(-1),
                "spec.leaseTransitions",
                INVALID,
            ),
        ],
    );
}
