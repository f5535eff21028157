//! PortPartitions.

use super::*;

const PARTITIONS: &str = "portico.dev/portpartitions";

fn partition() -> Value {
    json!({"spec": {"addresses": ["192.0.2.0/25"], "nodeSelector": {"matchLabels": {"edge": "a"}}}})
}

#[test]
fn a_new_partition() {
    let created = create(PARTITIONS, partition()).unwrap();
    assert_eq!(cells(PARTITIONS, &created), ["a", "192.0.2.0/25", "10m"]);
    let by_addresses = with(&partition(), &[("spec.nodeSelector", Value::Null)]);
    let created = create(PARTITIONS, by_addresses).unwrap();
    assert_eq!(cells(PARTITIONS, &created), ["a", "192.0.2.0/25", "10m"]);
    let by_nodes = with(&partition(), &[("spec.addresses", Value::Null)]);
    let created = create(PARTITIONS, by_nodes).unwrap();
    assert_eq!(cells(PARTITIONS, &created), ["a", "all", "10m"]);
}

#[test]
fn refused_partitions() {
    refuses(
        PARTITIONS,
        &partition(),
        &[
            ("spec", json!({}), "spec.addresses", REQUIRED),
            (
                "spec.addresses",
                json!(["192.0.2.1"]),
                "spec.addresses[0]",
                INVALID,
            ),
            (
                "spec.addresses",
                json!(["10.0.0.0/8", "10.1.0.9-10.1.0.1"]),
                "spec.addresses[1]",
                INVALID,
            ),
            (
                "spec.addresses",
                vec!["10.0.0.0/8"; 257].into(),
                "spec.addresses",
                TOO_MANY,
            ),
            (
                "spec.nodeSelector.matchLabels",
                json!({"a b": "c"}),
                "spec.nodeSelector.matchLabels",
                INVALID,
            ),
        ],
    );
}
