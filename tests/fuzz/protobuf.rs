//! Objects as Kubernetes protobuf: the Service by its field numbers, other kinds by their
//! metadata and noise.

use serde_json::Value;

use crate::common::random::Random;
use crate::common::{at, text};

/// The envelope with an object in it.
pub(crate) fn object(random: &mut Random, object: &Value) -> Vec<u8> {
    let mut raw = message(1, metadata(&object["metadata"]));
    if object["kind"] == "Service" {
        raw.extend(message(2, service_spec(&object["spec"])));
    } else {
        raw.extend(message(2, noise(random, 3)));
    }
    if random.one_in(4) {
        raw.extend(noise(random, 3));
    }
    let kind = [
        string(1, text(object, "apiVersion")),
        string(2, text(object, "kind")),
    ]
    .concat();
    [
        b"k8s\0".to_vec(),
        message(1, kind),
        message(2, raw),
        string(3, ""),
        string(4, ""),
    ]
    .concat()
}

fn metadata(metadata: &Value) -> Vec<u8> {
    let mut bytes = string(1, text(metadata, "name"));
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        bytes.extend(pair(11, key, value.as_str().unwrap_or_default()));
    }
    bytes
}

fn service_spec(spec: &Value) -> Vec<u8> {
    let mut bytes = vec![];
    for port in spec["ports"].as_array().into_iter().flatten() {
        let target = [
            number(1, 0),
            number(2, at(port, "targetPort").as_i64().unwrap_or_default()),
        ]
        .concat();
        let fields = [
            string(1, text(port, "name")),
            string(2, text(port, "protocol")),
            number(3, at(port, "port").as_i64().unwrap_or_default()),
            message(4, target),
            number(5, at(port, "nodePort").as_i64().unwrap_or_default()),
        ];
        bytes.extend(message(1, fields.concat()));
    }
    for (key, value) in spec["selector"].as_object().into_iter().flatten() {
        bytes.extend(pair(2, key, value.as_str().unwrap_or_default()));
    }
    for (field, name) in [
        (3, "clusterIP"),
        (4, "type"),
        (7, "sessionAffinity"),
        (10, "externalName"),
        (11, "externalTrafficPolicy"),
    ] {
        bytes.extend(string(field, text(spec, name)));
    }
    bytes.extend(number(
        12,
        at(spec, "healthCheckNodePort").as_i64().unwrap_or_default(),
    ));
    bytes
}

/// Random fields, nested.
fn noise(random: &mut Random, depth: usize) -> Vec<u8> {
    let mut bytes = vec![];
    for _ in 0..random.below(5) {
        let field = 1 + random.below(30) as u64;
        bytes.extend(match random.below(5) {
            0 => number(field, random.next() as i64),
            1 if depth > 0 => message(field, noise(random, depth - 1)),
            2 => [varint(field << 3 | 1), random.next().to_le_bytes().to_vec()].concat(),
            3 => [
                varint(field << 3 | random.below(8) as u64),
                vec![random.next() as u8],
            ]
            .concat(),
            _ => string(field, "x"),
        });
    }
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = vec![];
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn number(field: u64, value: i64) -> Vec<u8> {
    [varint(field << 3), varint(value as u64)].concat()
}

fn message(field: u64, content: Vec<u8>) -> Vec<u8> {
    [
        varint(field << 3 | 2),
        varint(content.len() as u64),
        content,
    ]
    .concat()
}

fn string(field: u64, text: &str) -> Vec<u8> {
    message(field, text.as_bytes().to_vec())
}

fn pair(field: u64, key: &str, value: &str) -> Vec<u8> {
    message(field, [string(1, key), string(2, value)].concat())
}
