//! Node ports in port partitions, and on addresses that a Service selects.

use super::harness::*;
use crate::explain::{Origin, Packet, explain};
use crate::index::{Index, NodePortSetting, Settings};
use crate::objects::{Node, Service};
use crate::partitions::{NODE_PORT_ADDRESSES, PORT_PARTITION};
use crate::report::{NodePortReach, NodeReport, PartitionAddresses};
use crate::table::{Family, FrontendKind, NodePortAddresses, Protocol};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::IpAddr;

const ADDRESSES: [&str; 6] = [
    "127.0.0.1",
    "172.30.0.11",
    "172.31.0.11",
    "172.31.0.12",
    "fd00:30::11",
    "fd00:31::11",
];

fn all() -> Settings {
    Settings {
        node_ports: NodePortSetting::Networks {
            networks: Vec::new(),
            loopback: true,
        },
        ..settings()
    }
}

fn node() -> Value {
    json!({"metadata": {"name": "here", "labels": {"edge": "a"}},
           "status": {"addresses": [{"type": "InternalIP", "address": "172.30.0.11"}]}})
}

fn partition(name: &str, created: &str, spec: Value) -> Value {
    json!({"kind": "PortPartition", "metadata": {"name": name, "creationTimestamp": created}, "spec": spec})
}

fn left() -> Value {
    let spec = json!({"addresses": ["172.31.0.11/32", "fd00:31::/64"]});
    partition("left", "2026-01-01T00:00:00Z", spec)
}

/// A public Service with node port 30080, and a slice for it.
fn public(name: &str, annotations: Value) -> [Value; 2] {
    let last = name.as_bytes()[0];
    let spec = json!({"clusterIPs": [format!("10.96.0.{last}"), format!("fd00:96::{last}")],
        "ipFamilies": ["IPv4", "IPv6"], "type": "NodePort",
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}]});
    let mut object = renamed(service(spec), name);
    object["metadata"]["annotations"] = annotations;
    let mut slice = slice(&format!("{name}-1"), json!([here("10.244.0.5")]));
    slice["metadata"]["labels"]["kubernetes.io/service-name"] = json!(name);
    [object, slice]
}

fn in_partition(name: &str) -> Value {
    json!({ PORT_PARTITION: name })
}

fn known(settings: Settings, objects: &[Value]) -> (Index, Vec<String>) {
    let mut index = Index::new(settings);
    apply(&mut index, &node());
    index.set_addresses(parsed(&ADDRESSES));
    objects.iter().for_each(|object| apply(&mut index, object));
    let problems = index.take().problems;
    (index, problems.iter().map(ToString::to_string).collect())
}

fn parsed(addresses: &[&str]) -> Vec<IpAddr> {
    addresses.iter().map(|text| text.parse().unwrap()).collect()
}

/// Where the node port of a Service answers: `*` for wherever those of most do.
fn answers(index: &Index, service: &str) -> Vec<String> {
    let mut found = Vec::new();
    for family in Family::BOTH {
        let mut key = key("", Protocol::Tcp, family);
        key.service = name(service);
        let port = index.table().ports.get(&key).cloned().unwrap_or_default();
        let node_ports = port
            .frontends
            .iter()
            .filter(|frontend| frontend.kind == FrontendKind::NodePort);
        found.extend(node_ports.map(|frontend| match frontend.address {
            Some(address) => format!("{address}:{}", frontend.port),
            None => "*".to_owned(),
        }));
    }
    found
}

fn shared(index: &Index, family: Family) -> Vec<String> {
    match index.table().rules.node_ports.get(family) {
        NodePortAddresses::AllLocal { .. } => vec!["*".to_owned()],
        NodePortAddresses::Listed(listed) => listed.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_port_is_one_services_in_each_partition() {
    let objects = [
        vec![left()],
        vec![partition(
            "right",
            "2026-01-02T00:00:00Z",
            json!({"addresses": ["172.31.0.12-172.31.0.99"]}),
        )],
        public("plain", json!({})).to_vec(),
        public("a", in_partition("left")).to_vec(),
        public("b", in_partition("right")).to_vec(),
    ];
    let (index, problems) = known(all(), &objects.concat());
    assert_eq!(problems, [""; 0]);
    assert_eq!(answers(&index, "plain"), ["*", "*"]);
    assert_eq!(
        answers(&index, "a"),
        ["172.31.0.11:30080", "[fd00:31::11]:30080"].map(|text| text.replace(['[', ']'], ""))
    );
    assert_eq!(answers(&index, "b"), ["172.31.0.12:30080"]);
    // Those of no partition answer on the rest, with loopback as before.
    assert_eq!(shared(&index, Family::V4), ["127.0.0.1", "172.30.0.11"]);
    assert_eq!(shared(&index, Family::V6), ["fd00:30::11"]);
    assert_eq!(index.conflicts(), []);
}

#[test]
fn without_an_address_here_a_partition_changes_nothing() {
    let elsewhere = [
        partition(
            "left",
            "2026-01-01T00:00:00Z",
            json!({"addresses": ["192.0.2.0/24"]}),
        ),
        partition(
            "b",
            "2026-01-01T00:00:00Z",
            json!({"nodeSelector": {"matchLabels": {"edge": "b"}}}),
        ),
    ];
    let [service, slice] = public("a", in_partition("left"));
    let (index, problems) = known(all(), &[&elsewhere[..], &[service, slice]].concat());
    assert_eq!((answers(&index, "a"), problems), (vec![], vec![]));
    assert_eq!(shared(&index, Family::V4), ["*"]);
    assert_eq!(index.partition_networks(), []);
}

#[test]
fn by_the_labels_of_the_node() {
    let edge = |value: &str, addresses: Value| {
        let selector = json!({"matchLabels": {"edge": value}});
        let spec = json!({"nodeSelector": selector, "addresses": addresses});
        partition("left", "2026-01-01T00:00:00Z", spec)
    };
    let of = |partition: Value| {
        let [service, slice] = public("a", in_partition("left"));
        let (index, problems) = known(settings(), &[partition, service, slice]);
        assert_eq!(problems, [""; 0]);
        answers(&index, "a")
    };
    // Of what the operator lets node ports answer on: the primary address, and any of IPv6.
    let whole = [
        "172.30.0.11:30080",
        "fd00:30::11:30080",
        "fd00:31::11:30080",
    ];
    assert_eq!(of(edge("a", json!([]))), whole);
    assert_eq!(of(edge("a", json!(["172.30.0.0/16"]))), whole[..1]);
    assert_eq!(of(edge("a", json!(["172.31.0.0/16"]))), [""; 0]);
    assert_eq!(of(edge("b", json!([]))), [""; 0]);
    // What cannot be read is no address, rather than all of them.
    let unreadable = edge("a", json!(["everything"]));
    let (index, problems) = known(settings(), &[unreadable]);
    assert_eq!(index.partition_networks(), []);
    assert!(
        problems[0].starts_with("PortPartition left: address \"everything\": neither a network")
    );
}

#[test]
fn an_address_in_two_partitions_is_that_of_the_older_and_told_once() {
    let late = |name| {
        partition(
            name,
            "2026-02-02T00:00:00Z",
            json!({"addresses": ["172.31.0.0/24"]}),
        )
    };
    let objects = [
        vec![late("a-wide-one"), left()],
        public("a", in_partition("left")).to_vec(),
        public("b", in_partition("a-wide-one")).to_vec(),
    ];
    let (mut index, problems) = known(all(), &objects.concat());
    assert_eq!(
        problems,
        [
            "PortPartition a-wide-one: 172.31.0.11 is in port partition left as well, which is older, \
          so node ports of a-wide-one do not answer there; take it out of one of them"
        ]
    );
    assert_eq!(answers(&index, "b"), ["172.31.0.12:30080"]);
    apply(&mut index, &node());
    assert_eq!(index.take().problems, []);
    // Of the same age the name decides, on every node alike.
    apply(
        &mut index,
        &partition("left", "2026-02-02T00:00:00Z", left()["spec"].clone()),
    );
    index.take();
    assert_eq!(
        answers(&index, "b"),
        ["172.31.0.11:30080", "172.31.0.12:30080"]
    );
}

#[test]
fn a_service_whose_partition_is_missing_says_so_and_answers_nowhere() {
    let [service, slice] = public("a", in_partition("left"));
    let (mut index, problems) = known(all(), &[service, slice]);
    let text = "Service default/a: node port 30080/tcp is not served for default/a: there is no PortPartition of \
                the name in its annotation portico.dev/port-partition, or this node may not read them; create it, name another, or \
                let the node list and watch portpartitions";
    assert_eq!(problems, [text, text], "in each family");
    assert_eq!(answers(&index, "a"), [""; 0]);
    assert_eq!(index.table().frontends.refusals().count(), 2);
    apply(&mut index, &left());
    assert_eq!(index.take().problems, []);
    assert_eq!(index.table().frontends.refusals().count(), 0);
    assert_eq!(
        answers(&index, "a"),
        ["172.31.0.11:30080", "fd00:31::11:30080"]
    );
    index.delete_port_partition("left");
    assert_eq!(index.take().changes.len(), 2);
    assert_eq!(answers(&index, "a"), [""; 0]);
}

#[test]
fn addresses_that_a_service_selects() {
    let on = |ranges: &str| json!({ NODE_PORT_ADDRESSES: ranges });
    let of = |annotations: Value| {
        let [service, slice] = public("a", annotations);
        let (index, problems) = known(all(), &[left(), service, slice]);
        (answers(&index, "a"), problems)
    };
    assert_eq!(
        of(on("172.30.0.0/16, fd00:30::1-fd00:30::ff")).0,
        ["172.30.0.11:30080", "fd00:30::11:30080"]
    );
    // What a partition has is not to be had without it.
    assert_eq!(of(on("172.31.0.0/24")).0, ["172.31.0.12:30080"]);
    let both = merged(in_partition("left"), on("172.31.0.0/24"));
    assert_eq!(of(both).0, ["172.31.0.11:30080"]);
    // Fewer addresses were wanted: a slip of the pen does not give all of them.
    let (answers, problems) = of(on("172.30.0.11"));
    assert_eq!(answers, [""; 0]);
    assert!(
        problems[0].contains("portico.dev/node-port-addresses")
            && problems[0].ends_with("answer nowhere")
    );
    assert_eq!(of(on(" ")).0, ["*", "*"]);
}

#[test]
fn health_checks_answer_in_the_partition() {
    let check = |annotations: Value| {
        let [mut service, slice] = public("a", annotations);
        service["spec"]["type"] = json!("LoadBalancer");
        service["spec"]["externalTrafficPolicy"] = json!("Local");
        service["spec"]["healthCheckNodePort"] = json!(32000);
        let (index, _) = known(all(), &[left(), service, slice]);
        index.health_checks()[&name("a")].addresses.clone()
    };
    assert_eq!(check(json!({})), None);
    assert_eq!(
        check(in_partition("left")).as_deref(),
        Some(&parsed(&["172.31.0.11", "fd00:31::11"])[..])
    );
    assert_eq!(check(in_partition("right")).as_deref(), Some(&[][..]));
}

#[test]
fn what_is_told_of_partitions_says_where_their_ports_answer() {
    let rest = json!({"nodeSelector": {"matchLabels": {"edge": "a"}}});
    let objects = [left(), partition("rest", "2026-02-02T00:00:00Z", rest)];
    let (index, _) = known(all(), &objects);
    let partitions = index.partition_networks().into_iter();
    let report = NodeReport {
        node_ports: Some(
            index
                .node_port_networks()
                .iter()
                .map(ToString::to_string)
                .collect(),
        ),
        partitions: partitions
            .map(|(name, networks)| PartitionAddresses {
                name: name.to_string(),
                addresses: networks.iter().map(ToString::to_string).collect(),
            })
            .collect(),
        ..NodeReport::default()
    };
    let reach = NodePortReach::from(&report);
    for (address, partition) in [
        ("172.31.0.11", "left"),
        ("fd00:31::11", "left"),
        ("172.30.0.11", "rest"),
        // An address of the Node object that is translated on the way to it.
        ("198.51.100.1", "rest"),
    ] {
        let address = address.parse().unwrap();
        assert!(reach.answers_at(address, Some(partition)), "{address}");
        assert!(!reach.answers_at(address, None), "{address}");
    }
}

#[test]
fn a_partition_that_changes_touches_only_its_services() {
    let objects = [
        vec![left()],
        public("plain", json!({})).to_vec(),
        public("a", in_partition("left")).to_vec(),
    ];
    let (mut index, _) = known(all(), &objects.concat());
    apply(
        &mut index,
        &partition(
            "left",
            "2026-01-01T00:00:00Z",
            json!({"addresses": ["172.31.0.12/32"]}),
        ),
    );
    let update = index.take();
    assert!(update.rules);
    let changed: Vec<&str> = update
        .changes
        .iter()
        .map(|change| &*change.key.service.name)
        .collect();
    assert_eq!(changed, ["a", "a"]);
    index.set_addresses(parsed(&ADDRESSES[..3]));
    assert_eq!(index.take().changes.len(), 1);
    assert_eq!(answers(&index, "a"), [""; 0]);
}

#[test]
fn explain_names_the_partition() {
    let objects = [
        vec![left()],
        public("plain", json!({})).to_vec(),
        public("a", in_partition("left")).to_vec(),
        public("b", in_partition("nowhere")).to_vec(),
    ];
    let (index, _) = known(all(), &objects.concat());
    let told = |destination: &str, port| {
        let packet = Packet {
            source_port: None,
            origin: Origin::Interface("eth0".into()),
            source: [192, 0, 2, 1].into(),
            destination: destination.parse().unwrap(),
            port,
            protocol: Protocol::Tcp,
            local: parsed(&ADDRESSES).into(),
        };
        explain(index.table(), &packet).to_string()
    };
    let text = told("172.31.0.11", 30080);
    assert!(
        text.contains("172.31.0.11 is in port partition left"),
        "{text}"
    );
    assert!(text.contains("is a node port of default/a"), "{text}");
    let text = told("172.31.0.11", 30081);
    let words =
        "172.31.0.11 is in port partition left, in which no Service has node port 30081/tcp";
    assert!(text.contains(words), "{text}");
    let text = told("172.30.0.11", 30080);
    assert!(
        text.contains("node port 30080/tcp is a node port of default/plain"),
        "{text}"
    );
    // The port of a Service whose partition is missing.
    let mut alone = Index::new(all());
    alone.set_addresses(parsed(&ADDRESSES));
    public("b", in_partition("nowhere"))
        .iter()
        .for_each(|object| apply(&mut alone, object));
    alone.take();
    let packet = Packet {
        source_port: None,
        origin: Origin::Node,
        source: [172, 30, 0, 11].into(),
        destination: [172, 30, 0, 11].into(),
        port: 30080,
        protocol: Protocol::Tcp,
        local: parsed(&ADDRESSES).into(),
    };
    let text = explain(alone.table(), &packet).to_string();
    assert!(
        text.contains("there is no PortPartition of the name"),
        "{text}"
    );
}

proptest! {
    /// Whatever comes in which order, the table is what an index makes that is told only the end.
    #[test]
    fn the_way_does_not_matter(steps in proptest::collection::vec((0..4_u8, 0..3_usize, 0..4_usize), 1..25)) {
        let partitions = ["p", "q", "r"];
        let specs = [
            json!({"addresses": ["172.31.0.0/24"]}),
            json!({"addresses": ["172.30.0.11/32", "fd00:31::/64"]}),
            json!({"nodeSelector": {"matchLabels": {"edge": "a"}}}),
            json!({"nodeSelector": {"matchLabels": {"edge": "b"}}}),
        ];
        let (mut index, _) = known(all(), &[]);
        let mut objects: std::collections::BTreeMap<String, Vec<Value>> = Default::default();
        let mut addresses = ADDRESSES.len();
        for (what, which, how) in steps {
            match what {
                0 => {
                    let object = partition(partitions[which], &format!("2026-01-0{}T00:00:00Z", how + 1), specs[how].clone());
                    apply(&mut index, &object);
                    objects.insert(format!("partition {which}"), vec![object]);
                }
                1 if objects.remove(&format!("partition {which}")).is_some() => index.delete_port_partition(partitions[which]),
                2 => {
                    let annotations = if how == 3 { json!({}) } else { in_partition(["p", "q", "s"][how]) };
                    let service = public(["a", "b", "c"][which], annotations).to_vec();
                    service.iter().for_each(|object| apply(&mut index, object));
                    objects.insert(format!("service {which}"), service);
                }
                _ => {
                    addresses = how + 3;
                    index.set_addresses(parsed(&ADDRESSES[..addresses]));
                }
            }
            index.take();
        }
        let mut fresh = Index::new(all());
        apply(&mut fresh, &node());
        fresh.set_addresses(parsed(&ADDRESSES[..addresses]));
        objects.values().flatten().for_each(|object| apply(&mut fresh, object));
        fresh.take();
        prop_assert_eq!(index.table(), fresh.table());
    }
}

#[test]
fn nodes_keep_all_their_labels_and_services_what_is_said_of_node_ports() {
    let node: Node = serde_json::from_value(node()).unwrap();
    assert_eq!(node.metadata.labels["edge"], "a");
    let again: Node = serde_json::from_str(&serde_json::to_string(&node).unwrap()).unwrap();
    assert_eq!(again, node);
    let [object, _] = public("a", json!({PORT_PARTITION: "left", "other": "x"}));
    let service: Service = serde_json::from_value(object).unwrap();
    assert_eq!(
        service.metadata.annotations.keys().collect::<Vec<_>>(),
        [PORT_PARTITION]
    );
}
