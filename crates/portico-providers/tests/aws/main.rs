//! The provider `aws`, against software that nobody here wrote (`moto`, which checks signatures and
//! permissions), and against a strict double in memory that knows the vendor's rules where `moto`
//! does not.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod double;
mod moto;
mod world;

use std::sync::Arc;
use std::time::Duration;

use portico_providers::conformance::{self, Can, Case, Support};
use portico_providers::{Node, Port, Provider, ProviderError, Request};

const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";

/// What a kind of load balancer is tried with.
fn case(kind: &str, nodes: Vec<Node>) -> Case {
    let network = kind == "nlb";
    let can = Can {
        affinity: if network {
            Support::Full
        } else {
            Support::Refused
        },
        udp: if network {
            Support::Full
        } else {
            Support::Refused
        },
        mixed_protocols: if network {
            Support::Full
        } else {
            Support::Refused
        },
        ipv6: Support::Refused,
        dual_stack: Support::Refused,
        ..Can::everything()
    };
    let mut case = Case::new(nodes).can(can);
    case.template = Request {
        cluster: "conformance".to_owned(),
        ..Request::default()
    };
    if !network {
        case.template
            .annotations
            .insert(TYPE.to_owned(), kind.to_owned());
    }
    case.pause = Duration::from_millis(1);
    case
}

#[tokio::test]
async fn on_moto_network_and_classic_load_balancers_keep_the_contract() {
    let moto = moto::Moto::start().await;
    for kind in ["nlb", "classic"] {
        let provider = moto.provider(&moto.controller);
        let report = conformance::run(&provider, Some(&moto), &case(kind, moto.nodes())).await;
        println!("{kind}\n{report}");
        assert!(report.passed(), "{kind}\n{report}");
    }
    moto.signatures_are_checked().await;
    moto.permissions_are_checked().await;
    moto.an_instance_that_is_gone_keeps_no_other_out().await;
    moto.what_annotations_say_is_set().await;
}

async fn faults(kind: &str) {
    let lab = double::Lab::new();
    let report = conformance::with_faults(&lab, &case(kind, double::nodes())).await;
    assert!(report.passed(), "{kind}\n{report}");
    println!(
        "{kind}: {} calls, each gone wrong in every way",
        report.steps.len() - 1
    );
}

#[tokio::test]
async fn whatever_goes_wrong_at_any_call_for_a_network_load_balancer_is_repaired() {
    faults("nlb").await;
}

#[tokio::test]
async fn whatever_goes_wrong_at_any_call_for_a_classic_load_balancer_is_repaired() {
    faults("classic").await;
}

#[tokio::test]
async fn the_strict_double_finds_no_fault_with_the_contract() {
    for kind in ["nlb", "classic"] {
        let lab = double::Lab::described();
        let provider: Arc<dyn Provider> = conformance::Lab::start(&lab).await;
        let report = conformance::run(&*provider, Some(&lab), &case(kind, double::nodes())).await;
        assert!(report.passed(), "{kind}\n{report}");
        lab.cloud.finish();
    }
}

/// What each thing costs. The numbers are in docs/aws.md and docs/benchmarks.md.
#[tokio::test]
async fn calls_are_as_few_as_the_vendor_allows() {
    for (kind, made, port, deleted, looked) in [("nlb", 7, 5, 4, 7), ("classic", 6, 3, 3, 4)] {
        let lab = double::Lab::quick();
        let (provider, case) = (lab.provider(), case(kind, double::nodes()));
        let of = |name: &str| Request {
            annotations: case.template.annotations.clone(),
            nodes: double::nodes()[..2].to_vec(),
            ..world::request(name)
        };
        // Subnets, routes and the group of nodes are read for the first one.
        provider.ensure(&of("first")).await.unwrap();
        assert_eq!(lab.take_calls().len(), made + 3, "{kind}");
        let mut request = of("counted");
        let cost = |what: &str, count: usize| {
            let (calls, writes) = (lab.take_calls(), lab.take_writes());
            assert_eq!(calls.len(), count, "{kind}, {what}: {calls:?}");
            writes.len()
        };
        lab.take_writes();
        provider.ensure(&request).await.unwrap();
        assert_eq!(cost("create", made), made);
        request
            .annotations
            .insert("example.com/owner".to_owned(), "shop".to_owned());
        provider.ensure(&request).await.unwrap();
        cost("nothing to do", 0);
        request.nodes = double::nodes();
        provider.update_nodes(&request).await.unwrap();
        assert_eq!(cost("a node joins", 1), 1);
        request.nodes.pop();
        provider.update_nodes(&request).await.unwrap();
        assert_eq!(cost("a node leaves", 1), 1);
        let more = request.clone();
        request.ports.push(Port {
            name: "more".to_owned(),
            port: 81,
            node_port: 30_081,
            ..more.ports[0].clone()
        });
        provider.ensure(&request).await.unwrap();
        assert_eq!(cost("a port more", port), port);
        provider.ensure(&more).await.unwrap();
        lab.take_calls();
        lab.take_writes();
        provider.forget(&more);
        provider.ensure(&more).await.unwrap();
        assert_eq!(cost("a look at everything", looked), 0);
        provider.delete(&more).await.unwrap();
        assert_eq!(cost("delete", deleted), deleted);
    }
}

/// While it is being provisioned it is looked at, and nothing else is.
#[tokio::test]
async fn a_balancer_on_its_way_costs_one_look_at_a_time() {
    let lab = double::Lab::new();
    let (provider, request) = (lab.provider(), world::request("pending"));
    assert!(provider.ensure(&request).await.unwrap().pending.is_some());
    lab.take_calls();
    while provider.ensure(&request).await.unwrap().pending.is_some() {}
    assert_eq!(lab.take_calls(), ["DescribeLoadBalancers"; 2]);
    provider.ensure(&request).await.unwrap();
    assert_eq!(lab.take_calls(), [""; 0]);
}

/// What somebody else changed is not known of, until a call fails because of it or everything is
/// looked at.
#[tokio::test]
async fn what_is_remembered_and_gone_is_made_again() {
    for kind in ["nlb", "classic"] {
        let lab = double::Lab::quick();
        let (provider, case) = (lab.provider(), case(kind, double::nodes()));
        let mut request = Request {
            annotations: case.template.annotations,
            ..world::request("gone")
        };
        request.nodes = double::nodes()[..2].to_vec();
        let made = provider.ensure(&request).await.unwrap();
        lab.provider().delete(&request).await.unwrap();
        request.nodes = double::nodes();
        provider.update_nodes(&request).await.unwrap();
        assert_eq!(
            provider.describe(&request).await.unwrap(),
            Some(made),
            "{kind}"
        );
        provider.delete(&request).await.unwrap();
        assert_eq!(
            conformance::World::owned(&lab).await.unwrap(),
            [""; 0],
            "{kind}"
        );
    }
}

/// The vendor holds the group of a balancer for a while after it is gone.
#[tokio::test]
async fn a_group_that_is_held_is_waited_for() {
    let lab = double::Lab::new();
    let (provider, request) = (lab.provider(), world::request("held"));
    provider.ensure(&request).await.unwrap();
    lab.take_calls();
    provider.delete(&request).await.unwrap();
    let calls = lab.take_calls();
    assert_eq!(
        calls
            .iter()
            .filter(|call| *call == "DeleteSecurityGroup")
            .count(),
        3,
        "{calls:?}"
    );
}

#[tokio::test]
async fn what_has_our_name_and_not_our_tag_is_somebody_elses() {
    for kind in ["nlb", "classic"] {
        let lab = double::Lab::new();
        let (provider, case) = (lab.provider(), case(kind, double::nodes()));
        let request = Request {
            annotations: case.template.annotations,
            ..world::request("taken")
        };
        let ingress = provider.ensure(&request).await.unwrap().ingress;
        lab.cloud.forget_tags();
        lab.take_writes();
        let (provider, request) = (lab.provider(), Request { ingress, ..request });
        for answer in [
            provider.ensure(&request).await.map(drop),
            provider.delete(&request).await,
        ] {
            assert!(
                matches!(
                    answer,
                    Err(ProviderError::Refused {
                        reason: "NotOurs",
                        ..
                    })
                ),
                "{kind}: {answer:?}"
            );
        }
        assert_eq!(lab.take_writes(), [""; 0], "{kind}");
    }
}

#[tokio::test]
async fn the_kind_cannot_be_changed_and_an_old_classic_one_is_kept() {
    let lab = double::Lab::new();
    let provider = lab.provider();
    let of = |kind: &str| Request {
        annotations: [(TYPE.to_owned(), kind.to_owned())].into(),
        ..world::request("kept")
    };
    let made = provider.ensure(&of("classic")).await.unwrap();
    let other = provider.ensure(&of("nlb")).await;
    assert!(
        matches!(
            other,
            Err(ProviderError::Refused {
                reason: "TypeChanged",
                ..
            })
        ),
        "{other:?}"
    );
    // As a cluster has it that was run by another controller, where classic is what one gets.
    assert_eq!(
        provider.ensure(&world::request("kept")).await.unwrap(),
        made
    );
    assert_eq!(
        provider.describe(&world::request("kept")).await.unwrap(),
        Some(made)
    );
    provider.delete(&world::request("kept")).await.unwrap();
    assert_eq!(provider.describe(&of("classic")).await.unwrap(), None);
    let elsewhere = provider.ensure(&of("external")).await;
    assert_eq!(elsewhere, Err(ProviderError::Elsewhere));
}
