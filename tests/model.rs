//! The recorded scenarios of the dataplane, walked through the tables of three nodes instead of
//! through a kernel: what was seen of real packets is what `explain` says of them.
#![expect(
    clippy::unwrap_used,
    reason = "a scenario that is not as it should be is to fail the test"
)]

#[path = "model/cluster.rs"]
#[allow(dead_code, reason = "what is held against a kernel uses the rest")]
mod cluster;
#[path = "dataplane/objects.rs"]
#[allow(dead_code, reason = "an API server needs more of it than a table")]
mod objects;

use cluster::{Cluster, Question, agrees};
use ipnet::IpNet;
use portico_model::index::{DetectLocal, NodePortSetting, Settings};
use serde_json::Value;
use std::path::Path;

/// Steps that do something to a running process or to the kernel, of which a table knows nothing.
const BEYOND_TABLES: [&str; 4] = [
    "stop-proxy",
    "cleanup-proxy",
    "flush-rules",
    "foreign-rules",
];
/// So many there were when this was written; fewer means that something is no longer looked at.
const LEAST_PROBES: usize = 450;

#[test]
fn what_was_recorded_is_what_the_tables_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/dataplane/scenarios");
    let mut probes = 0;
    let mut wrong = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let topic: Value = serde_json::from_str(&text).unwrap();
        for scenario in topic["scenarios"].as_array().unwrap() {
            probes += run(scenario, &mut wrong);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {probes} probes\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(probes >= LEAST_PROBES, "only {probes} probes");
}

fn run(scenario: &Value, wrong: &mut Vec<String>) -> usize {
    let mut cluster =
        Cluster::new("nftables", |node| settings(node, &scenario["proxyConfig"])).with_nodes();
    let mut probes = 0;
    for step in scenario["steps"].as_array().unwrap() {
        for action in step["do"].as_array().into_iter().flatten() {
            if BEYOND_TABLES.iter().any(|name| action.get(name).is_some()) {
                return probes;
            }
            cluster.act(action);
        }
        let connects = step["probes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|probe| probe["kind"] == "connect");
        for probe in connects {
            probes += 1;
            let text = |field: &str| probe[field].as_str();
            let (from, to) = (text("from").unwrap(), text("to").unwrap());
            let question = Question {
                from,
                to,
                protocol: text("proto"),
                via: text("via"),
                source: None,
            };
            let (seen, why) = cluster.connect(&question);
            if !agrees(&probe["expect"], &seen, false) {
                wrong.push(format!(
                    "{}: {probe}\n  seen {seen}\n{why}",
                    scenario["name"]
                ));
            }
        }
    }
    probes
}

fn settings(node: &str, config: &Value) -> Settings {
    let text = |value: &Value| value.as_str().unwrap_or_default().into();
    let detect_local = match config["detectLocalMode"].as_str() {
        Some("NodeCIDR") => DetectLocal::NodeCidr,
        Some("BridgeInterface") => {
            DetectLocal::Bridge(text(&config["detectLocal"]["bridgeInterface"]))
        }
        Some("InterfaceNamePrefix") => {
            DetectLocal::InterfacePrefix(text(&config["detectLocal"]["interfaceNamePrefix"]))
        }
        _ => DetectLocal::ClusterCidr(vec![
            "10.244.0.0/16".parse().unwrap(),
            "fd00:10:244::/48".parse().unwrap(),
        ]),
    };
    let networks = config["nodePortAddresses"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let networks: Vec<IpNet> = networks
        .filter_map(|network| network.parse().ok())
        .collect();
    Settings {
        node_name: node.into(),
        own_address: config["bindAddress"]
            .as_str()
            .map(|address| address.parse().unwrap()),
        detect_local,
        node_ports: match networks.is_empty() {
            true => NodePortSetting::Primary,
            false => NodePortSetting::Networks {
                networks,
                loopback: false,
            },
        },
        masquerade_all: config["nftables"]["masqueradeAll"] == true,
        masquerade_mark: 0x4000,
        external_ips: config["featureGates"]["AllowServiceExternalIPs"] != false,
        load_balancer_ip_mode: config["featureGates"]["LoadBalancerIPMode"] != false,
    }
}
