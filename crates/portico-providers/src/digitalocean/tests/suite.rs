//! The suite that every provider passes, and the same with every request going wrong.

use std::time::Duration;

use super::lab::{Lab, annotated, node};
use crate::Node;
use crate::conformance::{self, Can, Case, Support};

fn case() -> Case {
    let nodes: Vec<Node> = (1..=3).map(node).collect();
    let can = Can {
        affinity: Support::Refused,
        ipv6: Support::Refused,
        ..Can::everything()
    };
    Case {
        patience: Duration::from_secs(30),
        pause: Duration::from_micros(100),
        ..Case::new(nodes).can(can)
    }
}

#[tokio::test]
async fn conformance() {
    let passed_on = Can {
        node_ports: Support::Ignored,
        dual_stack: Support::Untested("of nodes".into()),
        ..case().can
    };
    let table = [
        (case().can, &[][..]),
        (
            case().can,
            &[("enable-proxy-protocol", "true"), ("name", "shop")][..],
        ),
        (passed_on, &[("type", "REGIONAL_NETWORK")][..]),
    ];
    for (can, annotations) in table {
        let lab = Lab::new();
        let case = Case {
            template: annotated(case().template, annotations),
            can,
            ..case()
        };
        let report = conformance::run(&lab.provider(), Some(&lab), &case).await;
        assert!(report.passed(), "{annotations:?} {report}");
        lab.assert_described();
    }
}

#[tokio::test]
async fn every_request_may_go_wrong() {
    let lab = Lab::new();
    let report = conformance::with_faults(&lab, &case()).await;
    assert!(report.passed(), "{report}");
    assert!(report.steps.len() > 7, "{report}");
    lab.assert_described();
}
