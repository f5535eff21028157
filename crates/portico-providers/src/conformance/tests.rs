pub(crate) mod cloudlet;

use std::time::Duration;

use cloudlet::{Cloudlet, Flaw};

use super::*;
use crate::Node;

fn case() -> Case {
    let node = |number: u8| Node {
        name: format!("node-{number}"),
        addresses: vec![[10, 0, 0, number].into()],
        ..Node::default()
    };
    let nodes = (1..=3).map(node).collect();
    Case {
        patience: Duration::from_secs(20),
        pause: Duration::from_millis(1),
        ..Case::new(nodes)
    }
}

/// For what never comes.
fn hasty() -> Case {
    Case {
        patience: Duration::from_secs(1),
        ..case()
    }
}

async fn failures(flaw: Flaw) -> Vec<String> {
    let cloudlet = Cloudlet::new(flaw);
    let hopeless = [Flaw::NeverReady, Flaw::NeverAnswers].contains(&flaw);
    let case = if hopeless { hasty() } else { case() };
    let report = run(&cloudlet, Some(&cloudlet), &case).await;
    report.failed().map(|step| step.name.clone()).collect()
}

#[tokio::test]
async fn what_is_right_passes() {
    let cloudlet = Cloudlet::new(Flaw::None);
    let report = run(&cloudlet, Some(&cloudlet), &case()).await;
    assert!(
        report.steps.iter().all(|step| step.outcome == Outcome::Ok),
        "{report}"
    );
}

/// What each flaw is found by first. Others may follow from it.
#[tokio::test]
async fn every_flaw_is_found() {
    let expected = [
        (Flaw::FailsToDeleteNothing, "delete what is not there"),
        (Flaw::DescribesNothing, "describe agrees with ensure"),
        (Flaw::DescribesOthers, "UDP"),
        (Flaw::DescribesWrongly, "describe agrees with ensure"),
        (Flaw::EnsureAddsEachTime, "ensure"),
        (Flaw::EnsureMovesAddress, "ensure"),
        (Flaw::NeverReady, "ensure"),
        (Flaw::NeverAnswers, "ensure"),
        (Flaw::LosesNodes, "a node is added and removed"),
        (Flaw::IgnoresNodes, "a node is added and removed"),
        (Flaw::ForgetsNoNodes, "all nodes go and come back"),
        (
            Flaw::IgnoresNodePorts,
            "a port is added, changed and removed",
        ),
        (Flaw::KeepsPorts, "a port is added, changed and removed"),
        (Flaw::IgnoresPolicy, "policy Local and back to Cluster"),
        (Flaw::TouchesOthers, "policy Local and back to Cluster"),
        (
            Flaw::KeepsRanges,
            "source ranges are set, changed and cleared",
        ),
        (
            Flaw::RefusesRanges,
            "source ranges are set, changed and cleared",
        ),
        (
            Flaw::IgnoresAffinity,
            "session affinity is set, changed and cleared",
        ),
        (Flaw::NoUdp, "UDP"),
        (Flaw::NoIpv6, "IPv6"),
        (Flaw::OneFamily, "both IP families"),
        (Flaw::OneAtATime, "several Services at once"),
        (Flaw::SharesPool, "several Services at once"),
        (Flaw::ByName, "a Service is deleted and created again"),
        (Flaw::LeaksFirewall, "UDP"),
        (Flaw::NeedsPortsToDelete, "nothing is left"),
    ];
    let mut problems = Vec::new();
    for (flaw, step) in expected {
        let found = failures(flaw).await;
        if found.first().map(String::as_str) != Some(step) {
            problems.push(format!("{flaw:?} should fail {step:?} and fails {found:?}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test]
async fn what_cannot_be_tried_says_why() {
    let cloudlet = Cloudlet::new(Flaw::None);
    let can = Can {
        ipv6: Support::Untested("no IPv6 here".to_owned()),
        ..Can::everything()
    };
    let report = run(&cloudlet, None, &case().can(can)).await.to_string();
    assert!(report.contains("skipped  IPv6: no IPv6 here\n"), "{report}");
    assert!(
        report.contains("skipped  nothing is left: what exists cannot be seen\n"),
        "{report}"
    );
    let report = run(&Cloudlet::new(Flaw::NeverReady), None, &hasty())
        .await
        .to_string();
    let line = "skipped  UDP: there is nothing to try it on: \"ensure\" failed\n";
    assert!(report.contains(line), "{report}");
}

#[tokio::test]
async fn a_refusal_is_right_only_where_it_is_expected() {
    let refuses = Can {
        source_ranges: Support::Refused,
        ..Can::everything()
    };
    let cloudlet = Cloudlet::new(Flaw::RefusesRanges);
    let report = run(&cloudlet, Some(&cloudlet), &case().can(refuses.clone())).await;
    assert!(report.passed(), "{report}");
    let takes = Cloudlet::new(Flaw::None);
    let report = run(&takes, Some(&takes), &case().can(refuses)).await;
    assert_eq!(report.failed().count(), 1, "{report}");
}

async fn faulted(flaw: Flaw) -> Report {
    let cloudlet = Cloudlet::new(flaw);
    with_faults(&cloudlet, &case()).await
}

#[tokio::test]
async fn every_call_may_fail() {
    let report = faulted(Flaw::None).await;
    assert!(report.passed() && report.steps.len() > 20, "{report}");
}

#[tokio::test]
async fn what_only_faults_show_is_found() {
    for (flaw, call, reason) in [
        (Flaw::NamesByStart, "put pool", "where there should be"),
        (Flaw::DeletesAddressFirst, "delete address", "delete left"),
        (Flaw::RefusesOnFault, "list address", "became a refusal"),
        (Flaw::LeaksFirewall, "without a fault", "delete left"),
    ] {
        let report = faulted(flaw).await;
        let first = report
            .failed()
            .next()
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(
            first.contains(call) && first.contains(reason),
            "{flaw:?}: {report}"
        );
    }
}
