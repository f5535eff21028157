//! `portico version` in the three formats that every command has.

use crate::rig::portico;

#[tokio::test]
async fn a_version_in_every_format() {
    let table = portico(&["version"]).await;
    let lines: Vec<&str> = table.expect(0).lines().collect();
    assert!(
        lines[0].starts_with("PORTICO") && lines[1].starts_with(env!("CARGO_PKG_VERSION")),
        "{lines:?}"
    );
    let json = portico(&["version", "--output=json"]).await.json(0);
    assert_eq!(json["portico"], env!("CARGO_PKG_VERSION"));
    let yaml = portico(&["version", "-o", "yaml"]).await;
    let yaml: serde_json::Value = serde_saphyr::from_str(yaml.expect(0)).unwrap();
    assert_eq!(yaml, json);
}

#[tokio::test]
async fn a_format_that_there_is_not_is_told() {
    let ran = portico(&["version", "--output=xml"]).await;
    assert!(ran.err.contains("table, wide, json, yaml"), "{}", ran.err);
    assert_eq!(ran.code, 2);
}
