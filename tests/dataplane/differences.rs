//! What a mode does otherwise than kube-proxy's nftables and iptables modes, by design, as it is on
//! disk: each with its reason. Such a probe has to see just that, so that what is no longer so does
//! not stay in the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::scenario::Scenario;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    #[serde(rename = "why")]
    _why: String,
    /// By scenario, by step and probe (`1 connect pod1-1 -> 10.96.0.1:80/tcp`), what is seen.
    seen: BTreeMap<String, BTreeMap<String, Value>>,
}

/// Makes what the mode does what the scenarios expect.
pub(crate) fn expect(mode: &str, scenarios: &mut [Scenario]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../tests/dataplane/{mode}-differences.yaml"));
    if !path.exists() {
        return;
    }
    let text = fs::read_to_string(&path).unwrap();
    let reasons: Vec<Reason> =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut problems = Vec::new();
    for (name, seen) in reasons.into_iter().flat_map(|reason| reason.seen) {
        // Those that are not picked are not there.
        if let Some(scenario) = scenarios.iter_mut().find(|scenario| scenario.name == name) {
            problems.extend(
                expect_in(scenario, seen)
                    .into_iter()
                    .map(|probe| format!("{name} has no probe {probe:?}")),
            );
        }
    }
    assert!(
        problems.is_empty(),
        "{}:\n{}",
        path.display(),
        problems.join("\n")
    );
}

/// The probes that the scenario does not have.
fn expect_in(scenario: &mut Scenario, seen: BTreeMap<String, Value>) -> BTreeSet<String> {
    let mut missing: BTreeSet<String> = seen.keys().cloned().collect();
    for (number, step) in scenario.steps.iter_mut().enumerate() {
        for probe in &mut step.probes {
            let name = format!("{} {}", number + 1, probe.describe());
            if let Some(seen) = seen.get(&name) {
                missing.remove(&name);
                probe.expect = seen.clone();
                probe.differs = Map::new();
            }
        }
    }
    missing
}
