//! What is in `deploy/` for real clusters: definitions that are the built-in kinds, rights that are
//! enough and no more, a chart with its manifests, alerts and a dashboard, and an image.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "deploy/chart.rs"]
mod chart;
mod common;
#[path = "deploy/crd.rs"]
mod crd;
#[path = "deploy/image.rs"]
mod image;
#[path = "deploy/kinds.rs"]
mod kinds;
#[path = "deploy/monitoring.rs"]
mod monitoring;
#[path = "deploy/objects.rs"]
mod objects;
#[path = "deploy/rights.rs"]
mod rights;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// With this set the definitions are written instead of compared (`make crds`).
const WRITE: &str = "PORTICO_WRITE_CRDS";
const HEAD: &str = "# From the schema of crates/portico-api, by `make crds`. Needs Kubernetes 1.31 or later \
                    (IP addresses in CEL).\n";

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

#[test]
fn the_definitions_are_the_built_in_kinds() {
    for name in crd::KINDS {
        let kind = crd::kind(name);
        let wanted = crd::definition(&*kind);
        let path = deploy()
            .join("crds")
            .join(format!("{}.yaml", kind.info().plural));
        if std::env::var_os(WRITE).is_some() {
            fs::write(
                &path,
                format!("{HEAD}{}", serde_saphyr::to_string(&wanted).unwrap()),
            )
            .unwrap();
        }
        let stored: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(
            stored == wanted,
            "{} is out of date: run `make crds`",
            path.display()
        );
    }
    assert_eq!(
        fs::read_dir(deploy().join("crds")).unwrap().count(),
        crd::KINDS.len()
    );
}

/// `kubectl get` shows the same in a real cluster as at Portico's own server, but for what no path
/// can tell.
#[test]
fn the_columns_are_the_built_in_ones() {
    for name in crd::KINDS {
        let own: Vec<(&str, u8)> = crd::kind(name)
            .info()
            .columns
            .iter()
            .map(|column| (column.name, column.priority))
            .collect();
        let told: Vec<(&str, u8)> = crd::columns(name)
            .iter()
            .map(|column| (column.0, column.3))
            .collect();
        let expected: Vec<(&str, u8)> = own
            .into_iter()
            .filter(|(name, _)| !["Name", "Age", "Claims"].contains(name))
            .collect();
        assert_eq!(told, expected, "{name}");
    }
}
