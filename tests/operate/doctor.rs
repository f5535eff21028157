//! `portico doctor` on a machine of its own (a network namespace), and on a cluster.

use crate::common::{Server, Store};
use crate::rig::{Ran, at};
use portico_testbed::{Host, Testbed};
use serde_json::{Value, json};
use std::process::Command;

/// A command of the binary on a host.
pub(crate) fn inside(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portico"));
    command
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .envs(variables.iter().copied());
    let ended = host.enter(|| command.output()).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        code: ended.status.code().unwrap(),
        out: text(&ended.stdout),
        err: text(&ended.stderr),
    }
}

fn severity<'a>(diagnosis: &'a Value, check: &str) -> &'a str {
    let findings = diagnosis["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no {check} in {diagnosis}"))["severity"]
        .as_str()
        .unwrap()
}

#[test]
fn a_machine_is_judged_by_trying() {
    let bed = Testbed::new().unwrap();
    let host = bed.host("machine").unwrap();
    host.sysctl("net/ipv4/ip_forward", "0").unwrap();
    let sick = inside(&host, &["doctor", "--node", "-o", "json"], &[]).json(1);
    assert_eq!(severity(&sick, "sysctl: net.ipv4.ip_forward"), "broken");
    assert_eq!(severity(&sick, "kernel: nftables"), "good", "{sick}");
    assert_eq!(severity(&sick, "kernel: conntrack"), "good", "{sick}");
    assert_eq!(severity(&sick, "other proxies"), "good", "{sick}");
    host.sysctl("net/ipv4/ip_forward", "1").unwrap();
    let healed = inside(&host, &["doctor", "--node", "-o", "json"], &[]);
    let healed: Value = serde_json::from_str(&healed.out).unwrap();
    assert_eq!(severity(&healed, "sysctl: net.ipv4.ip_forward"), "good");
    let tables = host
        .enter(|| Command::new("nft").args(["list", "tables"]).output())
        .unwrap();
    assert!(
        tables.stdout.is_empty(),
        "it leaves nothing behind: {}",
        String::from_utf8_lossy(&tables.stdout)
    );
    let text = inside(&host, &["doctor", "--node"], &[]);
    assert!(
        text.out.contains("good     kernel: nftables") && text.out.contains(" to look at, "),
        "{}",
        text.out
    );
}

#[tokio::test]
async fn a_cluster_is_asked_node_by_node() {
    let server = Server::start(Store::Embedded, &[]).await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.99"}]},
    });
    let client = server.admin();
    client.post("/api/v1/nodes", &node).await.expect(201);
    client
        .patch(
            "/api/v1/nodes/n1/status",
            crate::common::client::MERGE,
            &json!({"status": node["status"]}),
        )
        .await
        .expect(200);
    let diagnosis = at(&server, &["doctor", "-o", "json"]).await.json(1);
    assert_eq!(
        severity(&diagnosis, "node n1"),
        "broken",
        "nobody answers for it: {diagnosis}"
    );
    assert_eq!(severity(&diagnosis, "clock"), "good");
}

#[tokio::test]
async fn a_server_that_is_away_is_a_finding() {
    let mut server = Server::start(Store::Embedded, &[]).await;
    server.kill();
    let diagnosis = at(&server, &["doctor", "-o", "json"]).await.json(1);
    assert_eq!(severity(&diagnosis, "API server"), "broken");
}
