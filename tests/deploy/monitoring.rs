//! Alerts and the dashboard, checked by Prometheus' own tool.

use crate::common::{at, text};
use crate::deploy;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn folder() -> PathBuf {
    deploy().join("monitoring")
}

/// `promtool` in the folder of the rules; what it said, where it finds fault.
fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool")
        .current_dir(folder())
        .args(arguments)
        .output();
    let output = output.expect("promtool is installed: make deps");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "promtool {arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

fn alerts() -> Vec<Value> {
    let file: Value =
        serde_saphyr::from_str(&fs::read_to_string(folder().join("alerts.yaml")).unwrap()).unwrap();
    let groups = at(&file, "groups").as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .cloned()
        .collect()
}

/// The queries of the dashboard, as Grafana would ask them.
fn queries() -> Vec<String> {
    let board: Value =
        serde_json::from_str(&fs::read_to_string(folder().join("dashboard.json")).unwrap())
            .unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let asked = |target: &Value| {
        let query = text(target, "expr")
            .replace("$__rate_interval", "5m")
            .replace("$__range", "1h");
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
        assert!(
            tests.contains(&format!("alertname: {name}\n")),
            "{name} has no test"
        );
        assert!(
            ["critical", "warning"].contains(&text(&alert, "labels.severity")),
            "{name} has no severity"
        );
        assert!(
            !text(&alert, "annotations.summary").is_empty(),
            "{name} does not say what it is about"
        );
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
    fs::write(
        file.path(),
        json!({"groups": [{"name": "queries", "rules": rules}]}).to_string(),
    )
    .unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()]);
}

/// Names that a query asks for: what is left of it without labels, ranges, groupings and functions.
fn names(query: &str) -> Vec<String> {
    let query = Regex::new(r"\{[^}]*\}|\[[^\]]*\]|(by|without) \([^)]*\)")
        .unwrap()
        .replace_all(query, " ")
        .into_owned();
    let query = Regex::new(r"[a-z_]+ *\(")
        .unwrap()
        .replace_all(&query, " (")
        .into_owned();
    let words = Regex::new(r"[a-z][a-z0-9_]*").unwrap();
    let words = words.find_iter(&query).map(|word| word.as_str().to_owned());
    words
        .filter(|word| !["or", "and", "unless", "bool", "by"].contains(&word.as_str()))
        .collect()
}

#[test]
fn names_are_found_in_queries() {
    let query = r#"sum by (le) (rate(a_bucket{x=~"y|z"}[5m])) / max(b) > bool 1 or vector(0)"#;
    assert_eq!(names(query), ["a_bucket", "b"]);
}

/// The page of metrics is what the daemons serve (tests/observability.rs), so what is on it exists.
#[test]
fn queries_ask_for_metrics_that_exist() {
    let page = fs::read_to_string(deploy().join("../docs/reference/metrics.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `([a-z0-9_]+)` \| ([a-z]+) \|").unwrap();
    let mut known = BTreeSet::from(["up".to_owned()]);
    for (_, [name, kind]) in row.captures_iter(&page).map(|found| found.extract()) {
        match kind {
            "histogram" => {
                known.extend(["bucket", "count", "sum"].map(|part| format!("{name}_{part}")))
            }
            _ => drop(known.insert(name.to_owned())),
        }
    }
    let rules = alerts();
    for query in queries()
        .into_iter()
        .chain(rules.iter().map(|alert| text(alert, "expr").to_owned()))
    {
        let asked = names(&query);
        assert!(!asked.is_empty(), "{query} asks for nothing");
        for name in asked {
            assert!(known.contains(&name), "{name} does not exist, in {query}");
        }
    }
}
