//! ServiceCIDRs.

use super::*;

const CIDRS: &str = "networking.k8s.io/servicecidrs";

fn dual() -> Value {
    json!({"spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}})
}

#[test]
fn a_new_range() {
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let created = create(CIDRS, with(&dual(), &[("status", status)])).unwrap();
    assert_eq!(
        created.get("status"),
        None,
        "the status is not for clients to create"
    );
    assert_eq!(
        cells(CIDRS, &created),
        ["a", "10.96.0.0/16,fd00:10:96::/112", "10m"]
    );
}

#[test]
fn refused_ranges() {
    let cases = [
        (json!([]), "spec.cidrs", REQUIRED),
        (
            json!(["10.0.0.0/8", "fd00::/112", "10.1.0.0/16"]),
            "spec.cidrs",
            INVALID,
        ),
        (
            json!(["10.0.0.0/8", "192.168.0.0/16"]),
            "spec.cidrs",
            INVALID,
        ),
        (json!(["fd00::/112", "fd01::/112"]), "spec.cidrs", INVALID),
        (json!(["10.0.0.1/8"]), "spec.cidrs[0]", INVALID),
        (json!(["10.0.0.0"]), "spec.cidrs[0]", INVALID),
        (json!(["10.0.0.0/33"]), "spec.cidrs[0]", INVALID),
        (json!(["010.0.0.0/8"]), "spec.cidrs[0]", INVALID),
        (
            json!(["10.0.0.0/8", "FD00::/112"]),
            "spec.cidrs[1]",
            INVALID,
        ),
        (json!(["fd00:0::/112"]), "spec.cidrs[0]", INVALID),
        (json!(["::ffff:10.0.0.0/112"]), "spec.cidrs[0]", INVALID),
    ];
    for (cidrs, field, reason) in cases {
        refuses(CIDRS, &dual(), &[("spec.cidrs", cidrs, field, reason)]);
    }
}

#[test]
fn ranges_stay_but_a_family_may_be_added() {
    let one = create(
        CIDRS,
        with(&dual(), &[("spec.cidrs", json!(["10.96.0.0/16"]))]),
    )
    .unwrap();
    let two = create(CIDRS, dual()).unwrap();
    let cases = [
        (&one, json!(["10.96.0.0/16", "fd00::/112"]), None),
        (
            &one,
            json!(["10.96.0.0/16", "10.0.0.0/16"]),
            Some("spec.cidrs"),
        ),
        (
            &one,
            json!(["10.0.0.0/16", "fd00::/112"]),
            Some("spec.cidrs[0]"),
        ),
        (&one, json!(["10.0.0.0/16"]), Some("spec.cidrs[0]")),
        (&one, json!([]), Some("spec.cidrs")),
        (&two, json!(["10.96.0.0/16"]), Some("spec.cidrs")),
        (
            &two,
            json!(["10.96.0.0/16", "fd00::/112"]),
            Some("spec.cidrs[1]"),
        ),
    ];
    for (old, cidrs, field) in cases {
        let found = update(CIDRS, with(old, &[("spec.cidrs", cidrs.clone())]), old);
        assert_eq!(
            found.err(),
            field.map(|field| vec![(field.to_owned(), INVALID)]),
            "{cidrs}"
        );
    }
    let labelled = update(
        CIDRS,
        with(&two, &[("metadata.labels", json!({"a": "b"}))]),
        &two,
    )
    .unwrap();
    assert_eq!(labelled["metadata"]["labels"], json!({"a": "b"}));
}

#[test]
fn the_status_is_changed_apart_from_the_rest() {
    let old = create(
        CIDRS,
        with(&dual(), &[("metadata.labels", json!({"a": "b"}))]),
    )
    .unwrap();
    let condition = json!({
        "type": "Ready", "status": "True", "lastTransitionTime": "2024-01-02T03:04:05Z", "reason": "", "message": "",
    });
    let changes = [
        ("status", json!({"conditions": [condition]})),
        ("metadata.labels", json!({"a": "c"})),
        ("spec.cidrs", json!(["10.0.0.0/8"])),
    ];
    let new = update_status(CIDRS, with(&old, &changes), &old).unwrap();
    assert_eq!(new["status"]["conditions"][0], condition);
    assert_eq!(new["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(new["spec"], old["spec"]);
    let after = update(CIDRS, with(&new, &[("status", json!({}))]), &new).unwrap();
    assert_eq!(after["status"], new["status"]);
}
