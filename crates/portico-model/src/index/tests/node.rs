//! The rules of the node: pods, node ports, service CIDRs, fitness.

use super::harness::*;
use crate::index::{DetectLocal, Index, NodePortSetting, Settings};
use crate::table::{LocalPods, NodePortAddresses, PerFamily};
use serde_json::{Value, json};

fn node() -> Value {
    json!({"metadata": {"name": "here"}, "spec": {"podCIDRs": ["10.244.1.0/24", "fd00:10:1::/64"]},
           "status": {"addresses": [{"type": "Hostname", "address": "here"}, {"type": "ExternalIP", "address": "198.51.100.1"},
               {"type": "InternalIP", "address": "172.30.0.11"}, {"type": "InternalIP", "address": "172.30.0.99"},
               {"type": "InternalIP", "address": "fd00:30::11"}]}})
}

fn node_ports(setting: NodePortSetting, node: &Value) -> PerFamily<NodePortAddresses> {
    let mut index = Index::new(Settings {
        node_ports: setting,
        ..settings()
    });
    apply(&mut index, node);
    let interfaces = [
        "127.0.0.1",
        "::1",
        "172.30.0.11",
        "172.31.0.11",
        "10.244.1.1",
        "fd00:30::11",
        "fd00:31::11",
    ];
    index.set_addresses(interfaces.iter().map(|a| a.parse().unwrap()).collect());
    index.take();
    index.table().rules.node_ports.clone()
}

#[test]
fn node_port_addresses() {
    let listed = |list: &[&str]| {
        NodePortAddresses::Listed(list.iter().map(|a| a.parse().unwrap()).collect())
    };
    let all = |loopback| NodePortAddresses::AllLocal { loopback };
    let open = |list: &[&str], loopback| NodePortSetting::Networks {
        networks: list.iter().map(|n| n.parse().unwrap()).collect(),
        loopback,
    };
    let networks = |list: &[&str]| open(list, false);
    let and_loopback = |list: &[&str]| open(list, true);
    let both = json!({"metadata": {"name": "here"}, "status": {"addresses": [
        {"type": "ExternalIP", "address": "172.31.0.11"}, {"type": "InternalIP", "address": "172.30.0.11"},
        {"type": "InternalIP", "address": "fd00:30::11"}]}});
    let v4_only = json!({"metadata": {"name": "here"}, "status": {"addresses": [{"type": "InternalIP", "address": "172.30.0.11"}]}});
    let elsewhere = json!({"metadata": {"name": "here"}, "status": {"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}]}});
    for (rule, setting, node, v4, v6) in [
        (
            "primary",
            NodePortSetting::Primary,
            node(),
            listed(&["172.30.0.11"]),
            listed(&["fd00:30::11"]),
        ),
        (
            "all of the Node",
            NodePortSetting::Node,
            both.clone(),
            listed(&["172.30.0.11", "172.31.0.11"]),
            listed(&["fd00:30::11"]),
        ),
        (
            "primary of several",
            NodePortSetting::Primary,
            both.clone(),
            listed(&["172.30.0.11"]),
            listed(&["fd00:30::11"]),
        ),
        (
            "primary, one family",
            NodePortSetting::Primary,
            v4_only,
            listed(&["172.30.0.11"]),
            all(false),
        ),
        (
            "primary, on no interface",
            NodePortSetting::Primary,
            elsewhere,
            listed(&[]),
            all(false),
        ),
        (
            "all with loopback, which IPv6 never has",
            and_loopback(&[]),
            node(),
            all(true),
            all(false),
        ),
        (
            "networks of both families",
            networks(&["172.30.0.0/15", "fd00:31::/64"]),
            node(),
            listed(&["172.30.0.11", "172.31.0.11"]),
            listed(&["fd00:31::11"]),
        ),
        (
            "networks of one family",
            networks(&["172.30.0.0/24"]),
            node(),
            listed(&["172.30.0.11"]),
            all(false),
        ),
        (
            "networks without addresses",
            networks(&["192.0.2.0/24"]),
            node(),
            listed(&[]),
            all(false),
        ),
        (
            "the network of all addresses",
            networks(&["172.30.0.0/24", "0.0.0.0/0"]),
            node(),
            all(false),
            all(false),
        ),
        (
            "all addresses and loopback",
            and_loopback(&["0.0.0.0/0", "127.0.0.0/8", "::1/128"]),
            node(),
            all(true),
            listed(&[]),
        ),
        (
            "loopback",
            and_loopback(&["127.0.0.0/8"]),
            node(),
            listed(&["127.0.0.1"]),
            all(false),
        ),
        (
            "loopback, which is not wanted",
            networks(&["127.0.0.0/8"]),
            node(),
            listed(&[]),
            all(false),
        ),
        (
            "a network around loopback",
            and_loopback(&["64.0.0.0/2"]),
            node(),
            listed(&["127.0.0.1"]),
            all(false),
        ),
        (
            "networks beside loopback",
            and_loopback(&["172.30.0.0/24"]),
            node(),
            listed(&["172.30.0.11"]),
            all(false),
        ),
        (
            "networks of IPv6",
            and_loopback(&["fd00:31::/64"]),
            node(),
            all(true),
            listed(&["fd00:31::11"]),
        ),
        ("no networks", networks(&[]), node(), all(false), all(false)),
    ] {
        assert_eq!(node_ports(setting, &node), PerFamily { v4, v6 }, "{rule}");
    }
}

/// A node that routes packets to loopback addresses has to keep strangers away from them, whether
/// or not one of these addresses is there.
#[test]
fn who_routes_to_loopback_addresses_is_known_by_the_setting() {
    for (networks, loopback, routed) in [
        ("10.0.0.0/8,127.0.0.2/32", true, true),
        ("10.0.0.0/8,127.0.0.2/32", false, false),
        ("10.0.0.0/8", true, false),
    ] {
        let networks = networks
            .split(',')
            .map(|network| network.parse().unwrap())
            .collect();
        let node_ports = NodePortSetting::Networks { networks, loopback };
        let mut index = Index::new(Settings {
            node_ports,
            ..settings()
        });
        index.set_addresses(vec![
            "127.0.0.1".parse().unwrap(),
            "10.0.0.1".parse().unwrap(),
        ]);
        index.take();
        assert_eq!(index.table().rules.route_localnet, routed);
    }
}

#[test]
fn local_pods() {
    let sources = |net: &str| LocalPods::Sources(vec![net.parse().unwrap()]);
    for (detect_local, v4, v6) in [
        (
            settings().detect_local,
            sources("10.244.0.0/16"),
            sources("fd00:10::/32"),
        ),
        (
            DetectLocal::NodeCidr,
            sources("10.244.1.0/24"),
            sources("fd00:10:1::/64"),
        ),
        (
            DetectLocal::ClusterCidr(vec!["10.0.0.0/8".parse().unwrap()]),
            sources("10.0.0.0/8"),
            LocalPods::Unknown,
        ),
        (
            DetectLocal::ClusterCidr(vec![
                "10.244.0.0/16".parse().unwrap(),
                "10.0.0.0/8".parse().unwrap(),
            ]),
            sources("10.0.0.0/8"),
            LocalPods::Unknown,
        ),
        (
            DetectLocal::Bridge("cni0".into()),
            LocalPods::Interface("cni0".into()),
            LocalPods::Interface("cni0".into()),
        ),
        (
            DetectLocal::InterfacePrefix("".into()),
            LocalPods::Unknown,
            LocalPods::Unknown,
        ),
    ] {
        let index = index_with(
            Settings {
                detect_local,
                ..settings()
            },
            &[node()],
        )
        .0;
        assert_eq!(index.table().rules.local_pods, PerFamily { v4, v6 });
    }
}

#[test]
fn service_cidrs_are_put_together_and_given_up() {
    let mut index = index(&[]);
    let mut set = |name: &str, cidrs: Value| {
        index.apply_service_cidr(
            &serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}}))
                .unwrap(),
        );
    };
    set("kubernetes", json!(["10.96.0.0/12", "fd00:96::/112"]));
    set("more", json!(["10.96.0.0/16", "10.200.0.0/24", "x"]));
    let update = index.take();
    assert!(update.rules && update.problems.len() == 1);
    let shown = |index: &Index| {
        index
            .table()
            .rules
            .service_cidrs
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&index),
        ["10.96.0.0/12", "10.200.0.0/24", "fd00:96::/112"]
    );
    index.delete_service_cidr("more");
    assert!(index.take().rules && !index.take().rules);
    assert_eq!(shown(&index), ["10.96.0.0/12", "fd00:96::/112"]);
}

#[test]
fn a_node_that_is_leaving_is_not_fit() {
    let mut index = Index::new(settings());
    assert!(!index.eligible(), "never seen");
    apply(&mut index, &renamed(node(), "another"));
    assert!(!index.eligible() && !index.take().eligible, "another node");
    for (rule, change, fit) in [
        ("seen", json!({}), true),
        (
            "tainted by the autoscaler",
            json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}}),
            false,
        ),
        (
            "tainted by others",
            json!({"spec": {"taints": [{"key": "example.com/other"}]}}),
            true,
        ),
        (
            "being deleted",
            json!({"metadata": {"name": "here", "deletionTimestamp": "2024-01-01T00:00:00Z"}}),
            false,
        ),
    ] {
        apply(&mut index, &merged(node(), change));
        assert_eq!(
            (index.take().eligible, index.eligible()),
            (true, fit),
            "{rule}"
        );
        assert!(!index.take().eligible, "{rule}");
    }
}

/// What others may publish: an external address may be translated before packets get here.
#[test]
fn networks_of_node_ports_as_others_see_them() {
    let v6_all = "::/0";
    for (setting, wanted) in [
        (
            NodePortSetting::Primary,
            vec!["172.30.0.11/32", "fd00:30::11/128"],
        ),
        (
            NodePortSetting::Node,
            vec![
                "172.30.0.11/32",
                "172.30.0.99/32",
                "198.51.100.1/32",
                "fd00:30::11/128",
            ],
        ),
        (
            NodePortSetting::Networks {
                networks: vec!["172.30.0.0/16".parse().unwrap()],
                loopback: false,
            },
            vec!["172.30.0.0/16", v6_all],
        ),
        (
            NodePortSetting::Networks {
                networks: Vec::new(),
                loopback: true,
            },
            vec!["0.0.0.0/0", v6_all],
        ),
    ] {
        let mut index = Index::new(Settings {
            node_ports: setting.clone(),
            ..settings()
        });
        apply(&mut index, &node());
        let networks: Vec<String> = index
            .node_port_networks()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(networks, wanted, "{setting:?}");
    }
}
