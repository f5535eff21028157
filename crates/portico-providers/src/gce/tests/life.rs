//! What happens in the cloud in the life of Services.

use portico_fakecloud::gce::Kind;
use serde_json::json;

use super::lab::{Lab, SHARED, address, local, node, port, service};
use crate::{Host, Ingress, IpMode, Node, Protocol, Provider, ProviderError, Request};

const FIREWALL: &str = "k8s-0123456789abcdef-node-http-hc";

fn checks(lab: &Lab, pool: &str) -> Vec<String> {
    let links = lab.field(Kind::TargetPool, pool, "healthChecks");
    let names = links
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|link| link.as_str()?.rsplit('/').next());
    names.map(str::to_owned).collect()
}

fn instances(lab: &Lab, pool: &str) -> usize {
    lab.field(Kind::TargetPool, pool, "instances")
        .as_array()
        .map_or(0, Vec::len)
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ProviderError>) -> (&'static str, String) {
    match result {
        Err(ProviderError::Refused { reason, message }) => (reason, message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_change_costs_no_more_calls_than_it_has_parts() {
    let (lab, first, second) = (Lab::new(), service("a"), service("b"));
    let gce = lab.provider();
    let ip = address(&gce.ensure(&first).await.unwrap());
    // The first one looks for what all share, and makes it.
    let calls = [
        "GET firewalls/k8s-0123456789abcdef-node-http-hc",
        "GET httpHealthChecks/k8s-0123456789abcdef-node",
        "POST httpHealthChecks",
        "POST firewalls",
        "POST targetPools",
        "POST forwardingRules",
        "GET forwardingRules/auida",
        "POST firewalls",
    ];
    let mut found = lab.calls();
    found[..2].sort();
    assert_eq!(found, calls);
    let rule = |field| lab.field(Kind::ForwardingRule, "auida", field);
    assert_eq!(
        (rule("IPAddress"), rule("portRange"), rule("networkTier")),
        (json!(ip), json!("80-80"), json!("PREMIUM"))
    );
    let firewall = |field| lab.field(Kind::Firewall, "k8s-fw-auida", field);
    assert_eq!(
        (firewall("destinationRanges"), firewall("targetTags")),
        (json!([format!("{ip}/32")]), json!(["nodes"]))
    );
    assert_eq!(
        firewall("allowed"),
        json!([{"IPProtocol": "tcp", "ports": ["80"]}])
    );
    gce.ensure(&second).await.unwrap();
    let three = [
        "POST targetPools",
        "POST forwardingRules",
        "GET forwardingRules/auidb",
        "POST firewalls",
    ];
    assert_eq!(lab.calls(), three);
    assert_eq!(address(&gce.ensure(&first).await.unwrap()), ip);
    assert_eq!(lab.calls(), Vec::<String>::new());
    gce.update_nodes(&Request {
        nodes: vec![node(1), node(2), node(3)],
        ..first.clone()
    })
    .await
    .unwrap();
    assert_eq!(lab.calls(), ["POST targetPools/auida/addInstance"]);
    gce.delete(&second).await.unwrap();
    assert_eq!(
        lab.calls(),
        [
            "DELETE forwardingRules/auidb",
            "DELETE firewalls/k8s-fw-auidb",
            "DELETE targetPools/auidb"
        ]
    );
    gce.delete(&first).await.unwrap();
    assert_eq!(
        lab.calls()[3..],
        [
            format!("DELETE httpHealthChecks/{SHARED}"),
            format!("DELETE firewalls/{FIREWALL}")
        ]
    );
    assert_eq!(lab.names(Kind::Address), Vec::<String>::new());
    lab.assert_described();
}

/// As many calls as writes, and one for the end of each; a new rule is read for its address.
#[tokio::test]
async fn an_operation_is_waited_for_in_one_call() {
    let (lab, request) = (Lab::new(), service("a"));
    lab.cloud.set_looks(1);
    let gce = lab.provider();
    gce.ensure(&service("b")).await.unwrap();
    lab.plan.set(None);
    gce.ensure(&request).await.unwrap();
    assert_eq!(lab.plan.calls().len(), 3 + 3 + 1);
    lab.plan.set(None);
    gce.delete(&request).await.unwrap();
    assert_eq!(lab.plan.calls().len(), 3 + 3);
}

/// Another program made it, or died while it did: what is there is found, and nothing is made
/// twice.
#[tokio::test]
async fn what_somebody_else_began_is_looked_at() {
    let (lab, request) = (Lab::new(), service("a"));
    let ip = address(&lab.provider().ensure(&request).await.unwrap());
    lab.calls();
    assert_eq!(address(&lab.provider().ensure(&request).await.unwrap()), ip);
    let writes: Vec<String> = lab
        .calls()
        .into_iter()
        .filter(|call| !call.starts_with("GET"))
        .collect();
    assert_eq!(writes, ["POST targetPools"]);
    let known = Request {
        ingress: vec![Ingress {
            host: Host::Ip(ip.parse().unwrap()),
            mode: IpMode::Vip,
        }],
        ..request.clone()
    };
    lab.provider().ensure(&known).await.unwrap();
    assert!(lab.calls().iter().all(|call| call.starts_with("GET")));
    // What changed behind the provider's back is seen after a failure, or when it is told to look.
    let gce = lab.provider();
    gce.ensure(&request).await.unwrap();
    lab.cloud.put(
        Kind::TargetPool,
        "auida",
        json!({"name": "auida", "sessionAffinity": "NONE"}),
    );
    gce.ensure(&request).await.unwrap();
    assert_eq!(instances(&lab, "auida"), 0);
    gce.forget(&request);
    gce.ensure(&request).await.unwrap();
    assert_eq!(
        (instances(&lab, "auida"), checks(&lab, "auida")),
        (2, vec![SHARED.to_owned()])
    );
    lab.provider().delete(&request).await.unwrap();
    assert_eq!(
        (lab.names(Kind::TargetPool), lab.names(Kind::Firewall)),
        (Vec::new(), Vec::new())
    );
    lab.assert_described();
}

#[tokio::test]
async fn the_shared_check_comes_with_the_first_service_and_goes_with_the_last() {
    let (lab, first, second) = (Lab::new(), service("a"), service("b"));
    let gce = lab.provider();
    gce.ensure(&first).await.unwrap();
    let field = |field| lab.field(Kind::HttpHealthCheck, SHARED, field);
    assert_eq!(
        (field("port"), field("requestPath")),
        (json!(10256), json!("/healthz"))
    );
    assert_eq!(
        (field("checkIntervalSec"), field("timeoutSec")),
        (json!(8), json!(1))
    );
    assert_eq!(
        (field("healthyThreshold"), field("unhealthyThreshold")),
        (json!(1), json!(3))
    );
    let ranges = json!([
        "130.211.0.0/22",
        "35.191.0.0/16",
        "209.85.152.0/22",
        "209.85.204.0/22"
    ]);
    assert_eq!(lab.field(Kind::Firewall, FIREWALL, "sourceRanges"), ranges);
    // Of one Service's address it would keep the checkers out for all others.
    assert_eq!(
        lab.field(Kind::Firewall, FIREWALL, "destinationRanges"),
        json!([])
    );
    gce.ensure(&second).await.unwrap();
    assert_eq!(
        (checks(&lab, "auida"), checks(&lab, "auidb")),
        (vec![SHARED.to_owned()], vec![SHARED.to_owned()])
    );
    gce.delete(&first).await.unwrap();
    assert_eq!(lab.names(Kind::HttpHealthCheck), [SHARED]);
    assert_eq!(lab.names(Kind::Firewall), [FIREWALL, "k8s-fw-auidb"]);
    gce.delete(&second).await.unwrap();
    assert_eq!(
        (lab.names(Kind::HttpHealthCheck), lab.names(Kind::Firewall)),
        (Vec::new(), Vec::new())
    );
    lab.assert_described();
}

#[tokio::test]
async fn a_policy_is_changed_without_an_outage() {
    let (lab, cluster) = (Lab::new(), service("a"));
    let (gce, other) = (lab.provider(), service("b"));
    gce.ensure(&other).await.unwrap();
    let ip = address(&gce.ensure(&cluster).await.unwrap());
    lab.calls();
    let local = local(cluster.clone(), 32100);
    assert_eq!(address(&gce.ensure(&local).await.unwrap()), ip);
    let calls = lab.calls();
    // Rule and pool stay, so traffic goes on.
    assert!(
        !calls
            .iter()
            .any(|call| call.starts_with("DELETE forwarding") || call.starts_with("DELETE target")),
        "{calls:?}"
    );
    assert_eq!(checks(&lab, "auida"), ["auida"]);
    assert_eq!(
        lab.field(Kind::HttpHealthCheck, "auida", "port"),
        json!(32100)
    );
    assert_eq!(
        lab.field(Kind::Firewall, "k8s-auida-http-hc", "allowed"),
        json!([{"IPProtocol": "tcp", "ports": ["32100"]}])
    );
    // The other one still has it.
    assert_eq!(lab.names(Kind::HttpHealthCheck), ["auida", SHARED]);
    gce.ensure(&cluster).await.unwrap();
    assert_eq!(
        (checks(&lab, "auida"), lab.names(Kind::HttpHealthCheck)),
        (vec![SHARED.into()], vec![SHARED.into()])
    );
    assert!(
        !lab.names(Kind::Firewall)
            .contains(&"k8s-auida-http-hc".to_owned())
    );
    lab.assert_described();
}

#[tokio::test]
async fn the_shared_check_goes_when_its_last_user_becomes_local() {
    let (lab, request) = (Lab::new(), service("a"));
    let gce = lab.provider();
    gce.ensure(&request).await.unwrap();
    gce.ensure(&local(request, 32100)).await.unwrap();
    assert_eq!(lab.names(Kind::HttpHealthCheck), ["auida"]);
    assert_eq!(
        lab.names(Kind::Firewall),
        ["k8s-auida-http-hc", "k8s-fw-auida"]
    );
}

#[tokio::test]
async fn nodes_without_healthz_get_no_check_until_all_are_upgraded() {
    let (lab, new) = (Lab::new(), service("a"));
    let gce = lab.provider();
    let with = |version: &str| Request {
        nodes: vec![
            node(1),
            Node {
                version: version.into(),
                ..node(2)
            },
        ],
        ..new.clone()
    };
    for version in ["v1.6.13", "v1.7.1", "", "unknown"] {
        gce.ensure(&with(version)).await.unwrap();
        assert_eq!(
            (checks(&lab, "auida"), lab.names(Kind::HttpHealthCheck)),
            (vec![], vec![]),
            "{version}"
        );
    }
    // An upgrade of a node is all that it takes.
    gce.update_nodes(&with("v1.7.2")).await.unwrap();
    assert_eq!(checks(&lab, "auida"), [SHARED]);
    // One that has just come and has not said its version takes nothing away.
    for version in ["", "unknown"] {
        gce.update_nodes(&with(version)).await.unwrap();
        gce.ensure(&with(version)).await.unwrap();
        assert_eq!(checks(&lab, "auida"), [SHARED], "{version:?}");
    }
    gce.delete(&new).await.unwrap();
    assert_eq!(lab.names(Kind::HttpHealthCheck), Vec::<String>::new());
    lab.assert_described();
}

/// Version skew: an older node that comes later gets traffic as it did before there were checks.
#[tokio::test]
async fn a_node_without_healthz_that_comes_later_takes_the_check_off() {
    let (lab, new) = (Lab::new(), [service("a"), service("b")]);
    let gce = lab.provider();
    let with = |request: &Request, version: &str| Request {
        nodes: vec![
            node(1),
            Node {
                version: version.into(),
                ..node(2)
            },
        ],
        ..request.clone()
    };
    for round in 0..2 {
        for request in &new {
            gce.ensure(&with(request, "v1.36.4")).await.unwrap();
        }
        assert_eq!(checks(&lab, "auida"), [SHARED], "{round}");
        gce.update_nodes(&with(&new[0], "v1.6.13")).await.unwrap();
        assert_eq!(checks(&lab, "auida"), Vec::<String>::new(), "{round}");
        // The other Service still has it.
        assert_eq!(checks(&lab, "auidb"), [SHARED], "{round}");
        assert_eq!(lab.names(Kind::HttpHealthCheck), [SHARED], "{round}");
        gce.update_nodes(&with(&new[1], "v1.6.13")).await.unwrap();
        assert_eq!(lab.names(Kind::HttpHealthCheck), [""; 0], "{round}");
        let firewalls = lab.names(Kind::Firewall);
        assert_eq!(firewalls, ["k8s-fw-auida", "k8s-fw-auidb"], "{round}");
        // Also for a controller that knows nothing of before.
        lab.calls();
        gce.forget(&new[0]);
        gce.ensure(&with(&new[0], "v1.6.13")).await.unwrap();
        let writes = |call: &&String| !call.starts_with("GET");
        let calls = lab.calls();
        assert_eq!(calls.iter().filter(writes).count(), 0, "{calls:?}");
    }
    lab.assert_described();
}

#[tokio::test]
async fn many_instances_come_in_batches() {
    let (lab, mut request) = (Lab::new(), service("a"));
    (1..=1500).for_each(|number| {
        lab.cloud
            .add_instance("europe-west1-b", &format!("node-{number}"), &[])
    });
    request.nodes = (1..=1500).map(node).collect();
    let gce = lab.provider();
    gce.ensure(&request).await.unwrap();
    assert_eq!(instances(&lab, "auida"), 1500);
    let adds = lab
        .calls()
        .iter()
        .filter(|call| call.ends_with("/addInstance"))
        .count();
    assert_eq!(adds, 2);
    gce.update_nodes(&Request {
        nodes: Vec::new(),
        ..request
    })
    .await
    .unwrap();
    assert_eq!(instances(&lab, "auida"), 0);
    lab.assert_described();
}

#[tokio::test]
async fn nodes_that_outlive_their_machine_do_not_matter() {
    for config in ["[global]\nnode-tags = nodes\n", ""] {
        let (lab, request) = (Lab::with(config), service("a"));
        lab.cloud.remove_instance("europe-west1-b", "node-2");
        let gce = lab.provider();
        gce.ensure(&request).await.unwrap();
        assert_eq!(instances(&lab, "auida"), 1);
        gce.update_nodes(&Request {
            nodes: vec![node(1), node(2), node(3)],
            ..request
        })
        .await
        .unwrap();
        assert_eq!(instances(&lab, "auida"), 2);
    }
}

#[tokio::test]
async fn tags_are_found_by_the_names_of_instances() {
    let (lab, request) = (Lab::with(""), service("a"));
    let gce = lab.provider();
    gce.ensure(&request).await.unwrap();
    assert_eq!(
        lab.field(Kind::Firewall, "k8s-fw-auida", "targetTags"),
        json!(["node"])
    );
    lab.cloud.add_instance("europe-west1-b", "node-3", &["web"]);
    let (reason, message) = refusal(
        gce.ensure(&Request {
            nodes: vec![node(3)],
            ..request
        })
        .await,
    );
    assert_eq!(reason, "NodeTagsNeeded");
    assert!(
        message.contains("node-3") && message.contains("node-tags"),
        "{message}"
    );
}

#[tokio::test]
async fn an_address_that_is_asked_for_has_to_be_reserved() {
    let (lab, request) = (Lab::new(), service("a"));
    let gce = lab.provider();
    let asking = |ip: &str| Request {
        requested_ip: Some(ip.into()),
        ..request.clone()
    };
    let (reason, message) = refusal(gce.ensure(&asking("198.51.100.7")).await);
    assert_eq!(reason, "AddressNotReserved");
    assert!(
        message.contains("gcloud compute addresses create"),
        "{message}"
    );
    let reserved = json!({"name": "mine", "address": "198.51.100.7", "networkTier": "PREMIUM", "status": "RESERVED"});
    lab.cloud.put(Kind::Address, "mine", reserved);
    assert_eq!(
        address(&gce.ensure(&asking("198.51.100.7")).await.unwrap()),
        "198.51.100.7"
    );
    let standard = Request {
        annotations: [(
            "cloud.google.com/network-tier".to_owned(),
            "Standard".to_owned(),
        )]
        .into(),
        ..asking("198.51.100.7")
    };
    assert_eq!(refusal(gce.ensure(&standard).await).0, "WrongNetworkTier");
    gce.delete(&request).await.unwrap();
    // It was there before, and is afterwards.
    assert_eq!(lab.names(Kind::Address), ["mine"]);
    lab.assert_described();
}

#[tokio::test]
async fn another_tier_is_another_address() {
    let (lab, request) = (Lab::new(), service("a"));
    let gce = lab.provider();
    let premium = address(&gce.ensure(&request).await.unwrap());
    let annotations = [(
        "cloud.google.com/network-tier".to_owned(),
        "Standard".to_owned(),
    )]
    .into();
    let standard = address(
        &gce.ensure(&Request {
            annotations,
            ..request
        })
        .await
        .unwrap(),
    );
    assert_ne!(premium, standard);
    assert_eq!(
        lab.field(Kind::ForwardingRule, "auida", "networkTier"),
        json!("STANDARD")
    );
    assert_eq!(lab.names(Kind::Address), Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_with_the_way_out() {
    let (lab, request) = (Lab::new(), service("a"));
    let gce = lab.provider();
    let annotated = |name: &str, value: &str| Request {
        annotations: [(name.to_owned(), value.to_owned())].into(),
        ..request.clone()
    };
    let mixed = Request {
        ports: vec![port(Protocol::Tcp, 53), port(Protocol::Udp, 53)],
        ..request.clone()
    };
    let table = [
        (mixed, "LoadBalancerMixedProtocolNotSupported"),
        (
            Request {
                ports: vec![port(Protocol::Sctp, 53)],
                ..request.clone()
            },
            "ProtocolNotSupported",
        ),
        (
            Request {
                source_ranges: vec!["2001:db8::/32".parse().unwrap()],
                ..request.clone()
            },
            "NoIPv4SourceRange",
        ),
        (
            Request {
                local: true,
                health_check: None,
                ..request.clone()
            },
            "HealthCheckPortNeeded",
        ),
        (
            annotated("networking.gke.io/load-balancer-type", "Internal"),
            "InternalNotSupported",
        ),
        (
            annotated("cloud.google.com/network-tier", "Gold"),
            "BadAnnotation",
        ),
    ];
    for (request, expected) in table {
        assert_eq!(refusal(gce.ensure(&request).await).0, expected);
    }
    assert_eq!(
        gce.ensure(&annotated("cloud.google.com/l4-rbs", "enabled"))
            .await,
        Err(ProviderError::Elsewhere)
    );
    assert_eq!(lab.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn an_operation_that_takes_long_is_waited_for_later() {
    let (lab, request) = (Lab::new(), local(service("a"), 32100));
    let mut gce = lab.provider();
    lab.cloud.set_looks(1_000_000);
    gce.actor.api.poll.within = std::time::Duration::from_millis(1);
    let Err(ProviderError::RetryAfter { reason, .. }) = gce.ensure(&request).await else {
        panic!("it is not done")
    };
    assert_eq!(reason, "waiting for insert of auida (50%)");
    // The next pass finds it still under way, and does not make another.
    let Err(ProviderError::RetryAfter { reason, .. }) = gce.ensure(&request).await else {
        panic!("it is not done")
    };
    assert_eq!(reason, "part of it is still being made");
    lab.cloud.settle();
    lab.cloud.set_looks(1);
    gce.ensure(&request).await.unwrap();
    assert_eq!(lab.names(Kind::ForwardingRule), ["auida"]);
}

#[tokio::test]
async fn numbers_that_people_raised_stay() {
    let (lab, request) = (Lab::new(), service("a"));
    let gce = lab.provider();
    gce.ensure(&request).await.unwrap();
    let mut check = lab.cloud.get(Kind::HttpHealthCheck, SHARED).unwrap();
    (
        check["checkIntervalSec"],
        check["unhealthyThreshold"],
        check["port"],
    ) = (json!(30), json!(1), json!(80));
    lab.cloud.put(Kind::HttpHealthCheck, SHARED, check);
    gce.forget(&request);
    gce.ensure(&request).await.unwrap();
    let field = |field| lab.field(Kind::HttpHealthCheck, SHARED, field);
    assert_eq!(
        (
            field("checkIntervalSec"),
            field("unhealthyThreshold"),
            field("port")
        ),
        (json!(30), json!(3), json!(10256))
    );
}
