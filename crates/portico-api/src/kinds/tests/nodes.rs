use super::*;

#[test]
fn pod_ranges() {
    for (spec, wanted) in [
        (json!({"podCIDR": "10.0.0.0/24"}), json!(["10.0.0.0/24"])),
        (
            json!({"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.1.0/24"]}),
            json!(["10.0.0.0/24"]),
        ),
        (
            json!({"podCIDRs": ["10.0.1.0/24", "fd00::/64"]}),
            json!(["10.0.1.0/24", "fd00::/64"]),
        ),
    ] {
        let node = create("nodes", json!({"spec": spec})).unwrap();
        assert_eq!(
            (&node["spec"]["podCIDRs"], &node["spec"]["podCIDR"]),
            (&wanted, &wanted[0])
        );
    }
}

#[test]
fn refused() {
    let good = json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}]}});
    refuses(
        "nodes",
        &good,
        &[
            ("metadata.name", json!("Bad_Node"), "metadata.name", INVALID),
            (
                "spec.podCIDRs",
                json!(["10.244.1.0"]),
                "spec.podCIDRs[0]",
                INVALID,
            ),
            (
                "spec.podCIDRs",
                json!(["10.244.1.1/24"]),
                "spec.podCIDRs[0]",
                INVALID,
            ),
            (
                "spec.podCIDRs",
                json!(["10.0.0.0/24", "10.0.1.0/24"]),
                "spec.podCIDRs",
                INVALID,
            ),
            (
                "spec.podCIDRs",
                json!(["10.0.0.0/24", "fd00::/64", "fd01::/64"]),
                "spec.podCIDRs",
                INVALID,
            ),
            (
                "spec.taints.0.key",
                json!("a b"),
                "metadata.taints[0].key",
                INVALID,
            ),
            (
                "spec.taints.0.effect",
                json!("x"),
                "metadata.taints[0].effect",
                UNSUPPORTED,
            ),
            (
                "spec.taints.1.effect",
                json!("NoExecute"),
                "metadata.taints[1]",
                DUPLICATE,
            ),
            (
                "status.allocatable.cpu",
                json!("-1"),
                "status.allocatable.cpu",
                INVALID,
            ),
        ],
    );
}

#[test]
fn what_changes() {
    let old = create(
        "nodes",
        json!({"spec": {"podCIDR": "10.0.0.0/24", "providerID": "x://1"}, "status": {"phase": "Running"}}),
    )
    .unwrap();
    for (path, value, field) in [
        ("spec.podCIDR", json!("10.0.1.0/24"), Some("spec.podCIDRs")),
        (
            "spec.podCIDRs",
            json!(["10.0.0.0/24", "fd00::/64"]),
            Some("spec.podCIDRs"),
        ),
        ("spec.providerID", json!("x://2"), Some("spec.providerID")),
        ("spec.externalID", json!("x"), Some("spec.externalID")),
        ("spec.unschedulable", json!(true), None),
        ("metadata.labels", json!({"a": "b"}), None),
    ] {
        let found = update("nodes", with(&old, &[(path, value)]), &old);
        assert_eq!(
            found.err(),
            field.map(|field| vec![(field.to_owned(), FORBIDDEN)]),
            "{path}"
        );
    }
    let new = update("nodes", with(&old, &[("status", json!({}))]), &old).unwrap();
    assert_eq!(
        new["status"]["phase"], "Running",
        "a node may be created with a status; an update leaves it"
    );
}

#[test]
fn status() {
    let old = create("nodes", json!({})).unwrap();
    let address = json!({"type": "InternalIP", "address": "192.0.2.1"});
    let new = with(
        &old,
        &[
            ("status.addresses", json!([address])),
            ("spec.unschedulable", json!(true)),
            ("status.capacity", json!({"cpu": "2"})),
        ],
    );
    let new = update_status("nodes", new, &old).unwrap();
    assert_eq!(
        (&new["spec"], &new["status"]["allocatable"]),
        (&old["spec"], &json!({"cpu": "2"}))
    );
    let twice = with(&old, &[("status.addresses", json!([address, address]))]);
    assert_eq!(
        update_status("nodes", twice, &old),
        Err(vec![("status.addresses[1]".to_owned(), DUPLICATE)])
    );
}

#[test]
fn row() {
    let node = create("nodes", json!({
        "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "False"}], "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "arm64"},
        },
    }))
    .unwrap();
    let wanted = [
        "a",
        "NotReady,SchedulingDisabled",
        "edge,worker",
        "10m",
        "v1",
        "192.0.2.1",
        "<none>",
        "<unknown>",
        "6.1 (arm64)",
        "<unknown>",
    ];
    assert_eq!(cells("nodes", &node), wanted);
    let bare = create("nodes", json!({})).unwrap();
    assert_eq!(cells("nodes", &bare)[1..4], ["Unknown", "<none>", "10m"]);
}
