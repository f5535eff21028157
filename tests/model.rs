//! The recorded scenarios of the dataplane, walked through the tables of three nodes instead of through a kernel: what was
//! seen of real packets is what `explain` says of them.
#![expect(clippy::unwrap_used, reason = "a scenario that is not as it should be is to fail the test")]

#[path = "model/cluster.rs"]
mod cluster;
#[path = "dataplane/objects.rs"]
#[allow(dead_code, reason = "an API server needs more of it than a table")]
mod objects;

use cluster::Cluster;
use serde_json::Value;
use std::path::Path;

/// Steps that do something to a running process or to the kernel, of which a table knows nothing.
const BEYOND_TABLES: [&str; 4] = ["stop-proxy", "cleanup-proxy", "flush-rules", "foreign-rules"];
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
    assert!(wrong.is_empty(), "{} of {probes} probes\n{}", wrong.len(), wrong.join("\n"));
    assert!(probes >= LEAST_PROBES, "only {probes} probes");
}

fn run(scenario: &Value, wrong: &mut Vec<String>) -> usize {
    let mut cluster = Cluster::new(&scenario["proxyConfig"]);
    let mut probes = 0;
    for step in scenario["steps"].as_array().unwrap() {
        for action in step["do"].as_array().into_iter().flatten() {
            if BEYOND_TABLES.iter().any(|name| action.get(name).is_some()) {
                return probes;
            }
            cluster.act(action);
        }
        let connects = step["probes"].as_array().into_iter().flatten().filter(|probe| probe["kind"] == "connect");
        for probe in connects {
            probes += 1;
            let (seen, why) = cluster.connect(probe);
            if !agrees(&probe["expect"], &seen) {
                wrong.push(format!("{}: {probe}\n  seen {seen}\n{why}", scenario["name"]));
            }
        }
    }
    probes
}

fn agrees(expected: &Value, seen: &Value) -> bool {
    if let Some(fail) = expected.get("fail") {
        return seen.get("fail") == Some(fail);
    }
    let reached = seen["reach"].as_object().cloned().unwrap_or_default();
    let names: Vec<&str> = expected["reach"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    names.len() == reached.len()
        && names.iter().all(|name| {
            let of_endpoint = |field: &str| match &expected[field] {
                Value::Object(each) => each.get(*name).cloned().unwrap_or_default(),
                one => one.clone(),
            };
            let (source, port) = (of_endpoint("source"), of_endpoint("port"));
            let got = reached.get(*name).unwrap_or(&Value::Null);
            let any_node = source == "any-node" && got["source"].as_str().is_some_and(|s| s.starts_with("node"));
            let same_port = port.is_null() || port == got["port"] || port.as_str() == Some(&got["port"].to_string());
            (any_node || got["source"] == source) && same_port
        })
}
