//! `portico cleanup` removes what is Portico's, and nothing else.

use crate::doctor::inside;
use portico_testbed::{Host, Testbed};
use serde_json::Value;
use std::fs;
use std::process::Command;

fn nft(host: &Host, line: &str) -> String {
    let output = host
        .enter(|| Command::new("nft").args(line.split(' ')).output())
        .unwrap();
    assert!(
        output.status.success(),
        "nft {line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn outcomes(account: &Value) -> Vec<(&str, &str)> {
    let things = account["things"].as_array().unwrap().iter();
    things
        .map(|line| {
            (
                line["what"].as_str().unwrap(),
                line["outcome"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn what_is_ours_goes_and_the_rest_stays() {
    let bed = Testbed::new().unwrap();
    let host = bed.host("machine").unwrap();
    for line in [
        "add table ip portico",
        "add table ip6 portico",
        "add table ip portico-vip",
        "add table ip precious",
    ] {
        nft(&host, line);
    }
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("portico-demo-old");
    fs::create_dir(&demo).unwrap();
    fs::create_dir(folder.path().join("mine")).unwrap();
    let variables = [("TMPDIR", folder.path().to_str().unwrap())];
    let listed = inside(&host, &["cleanup", "--dry-run", "-o", "json"], &variables).json(0);
    let tables = "nftables tables ip portico, ip6 portico";
    assert!(
        outcomes(&listed).contains(&(tables, "wouldBeRemoved")),
        "{listed}"
    );
    assert!(
        nft(&host, "list tables").contains("ip6 portico") && demo.exists(),
        "a dry run touches nothing"
    );
    let cleaned = inside(&host, &["cleanup", "-o", "json"], &variables).json(0);
    assert!(
        outcomes(&cleaned).contains(&(tables, "removed")),
        "{cleaned}"
    );
    assert_eq!(nft(&host, "list tables").trim(), "table ip precious");
    // While some demo runs on this machine, nobody knows whose the folder is.
    let told = outcomes(&cleaned)
        .into_iter()
        .find(|(what, _)| what.contains("portico-demo-old"))
        .unwrap();
    assert_eq!(told.1 == "removed", !demo.exists(), "{cleaned}");
    assert!(folder.path().join("mine").exists());
}
