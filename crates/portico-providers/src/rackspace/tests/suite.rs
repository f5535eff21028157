//! The suite that every provider passes, and the same with every request going wrong.

use std::time::Duration;

use super::lab::{Lab, nodes};
use crate::conformance::{self, Can, Case, Support};

fn case() -> Case {
    // Nodes without endpoints are left out, and in the suite all have some.
    let can = Can {
        local: Support::Ignored,
        ..Can::everything()
    };
    Case {
        patience: Duration::from_secs(60),
        pause: Duration::from_micros(100),
        ..Case::new(nodes(3)).can(can)
    }
}

#[tokio::test]
async fn conformance() {
    let lab = Lab::new();
    let report = conformance::run(&lab.provider(), Some(&lab), &case()).await;
    assert!(report.passed(), "{report}");
    lab.assert_described();
}

#[tokio::test]
async fn every_request_may_go_wrong() {
    for (lab, calls) in [(Lab::new(), 15), (Lab::forgetful(), 20)] {
        let report = conformance::with_faults(&lab, &case()).await;
        assert!(report.passed() && report.steps.len() > calls, "{report}");
        lab.assert_described();
    }
}
