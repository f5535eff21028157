//! Alerts and the dashboard, checked by Prometheus' own tool.

use crate::common::{at, text};
use crate::deploy;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn folder() -> PathBuf {
    deploy().join("monitoring")
}

/// `promtool` in the folder of the rules; what it said, where it finds fault.
fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").current_dir(folder()).args(arguments).output();
    let output = output.expect("promtool is installed: make deps");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
}

fn alerts() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&fs::read_to_string(folder().join("alerts.yaml")).unwrap()).unwrap();
    let groups = at(&file, "groups").as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

/// The queries of the dashboard, as Grafana would ask them.
fn queries() -> Vec<String> {
    let board: Value = serde_json::from_str(&fs::read_to_string(folder().join("dashboard.json")).unwrap()).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let asked = |target: &Value| {
        let query = text(target, "expr").replace("$__rate_interval", "5m").replace("$__range", "1h");
        query.replace("$instance", ".*")
    };
    targets.map(asked).collect()
}

#[test]
fn alerts_are_rules_that_fire_when_they_should() {
    promtool(&["check", "rules", "alerts.yaml"]);
    promtool(&["test", "rules", "alerts-test.yaml"]);
    let tests = fs::read_to_string(folder().join("alerts-test.yaml")).unwrap();
    for alert in alerts() {
        let name = text(&alert, "alert");
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} has no test");
        assert!(["critical", "warning"].contains(&text(&alert, "labels.severity")), "{name} has no severity");
        assert!(!text(&alert, "annotations.summary").is_empty(), "{name} does not say what it is about");
    }
}

/// As recording rules they are read by Prometheus.
#[test]
fn queries_of_the_dashboard_are_queries() {
    let queries = queries();
    assert!(queries.len() > 40, "there are {}", queries.len());
    let rule = |(number, query): (usize, &String)| json!({"record": format!("query:{number}"), "expr": query});
    let rules: Vec<Value> = queries.iter().enumerate().map(rule).collect();
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    fs::write(file.path(), json!({"groups": [{"name": "queries", "rules": rules}]}).to_string()).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()]);
}
