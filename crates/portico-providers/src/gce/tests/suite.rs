//! The suite that every provider passes, and the same with every request going wrong.

use std::time::Duration;

use super::lab::{Lab, node};
use crate::Node;
use crate::conformance::{self, Can, Case, Support};

fn case() -> Case {
    let nodes: Vec<Node> = (1..=3).map(node).collect();
    let can = Can {
        // Packets keep the Service's port.
        node_ports: Support::Ignored,
        mixed_protocols: Support::Refused,
        ipv6: Support::Refused,
        dual_stack: Support::Refused,
        ..Can::everything()
    };
    Case {
        patience: Duration::from_secs(20),
        pause: Duration::from_micros(100),
        ..Case::new(nodes).can(can)
    }
}

#[tokio::test]
async fn conformance() {
    for config in ["[global]\nnode-tags = nodes\n", ""] {
        let lab = Lab::with(config);
        let report = conformance::run(&lab.provider(), Some(&lab), &case()).await;
        assert!(report.passed(), "{report}");
        lab.assert_described();
    }
}

#[tokio::test]
async fn every_request_may_go_wrong() {
    let lab = Lab::new();
    // Fewer looks at operations, each of which is a life for every fault.
    lab.cloud.set_looks(1);
    let report = conformance::with_faults(&lab, &case()).await;
    assert!(report.passed(), "{report}");
    assert!(report.steps.len() > 100, "{report}");
    lab.assert_described();
}
