//! What happens in the cloud in the life of Services.

use std::time::Duration;

use serde_json::json;

use super::lab::{Lab, addresses, endpoint, node, nodes, port, service};
use crate::conformance::World;
use crate::{Family, Protocol, Provider, ProviderError, Request};

fn refusal<T: std::fmt::Debug>(result: Result<T, ProviderError>) -> (&'static str, String) {
    match result {
        Err(ProviderError::Refused { reason, message }) => (reason, message),
        other => panic!("{other:?}"),
    }
}

fn annotated(request: &Request, name: &str, value: &str) -> Request {
    let name = format!("service.beta.kubernetes.io/rackspace-{name}");
    Request {
        annotations: [(name, value.to_owned())].into(),
        ..request.clone()
    }
}

#[tokio::test]
async fn calls_are_as_few_as_the_vendor_allows() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    lab.cloud.set_looks(1);
    provider.ensure(&request).await.unwrap();
    // The last one sees that it is ready.
    assert_eq!(
        lab.calls(),
        [
            "GET loadbalancers",
            "POST loadbalancers",
            "GET loadbalancers"
        ]
    );
    provider.ensure(&request).await.unwrap();
    assert_eq!(lab.calls(), Vec::<String>::new());
    provider.forget(&request);
    provider.ensure(&request).await.unwrap();
    assert_eq!(lab.calls(), ["GET loadbalancers", "GET loadbalancers"]);
    provider
        .update_nodes(&Request {
            nodes: nodes(3),
            ..request.clone()
        })
        .await
        .unwrap();
    assert_eq!(lab.calls(), ["POST loadbalancers/nodes"]);
    lab.cloud.settle();
    provider
        .update_nodes(&Request {
            nodes: vec![node(2), node(3)],
            ..request.clone()
        })
        .await
        .unwrap();
    assert_eq!(lab.calls(), ["DELETE loadbalancers/nodes"]);
    provider
        .update_nodes(&Request {
            nodes: vec![node(2), node(3)],
            ..request.clone()
        })
        .await
        .unwrap();
    assert_eq!(lab.calls(), Vec::<String>::new());
    lab.cloud.settle();
    provider.delete(&request).await.unwrap();
    assert_eq!(lab.calls(), ["DELETE loadbalancers"]);
    assert_eq!(lab.balancers().len(), 0);
    lab.assert_described();
}

#[tokio::test]
async fn ports_share_an_address_and_are_made_and_deleted_together() {
    let (lab, request) = (Lab::new(), service("a", &[80, 443, 8080]));
    let provider = lab.provider();
    let made = addresses(&provider.ensure(&request).await.unwrap());
    let vips = lab.fields("virtualIps");
    assert_eq!((vips.len(), made.len()), (3, 1));
    assert!(
        vips.iter()
            .all(|vip| *vip == vips[0] && vip[0]["address"] == made[0]),
        "{vips:?}"
    );
    assert_eq!(lab.fields("name")[0], "auida shop/a");
    assert_eq!(lab.fields("port"), [json!(80), json!(443), json!(8080)]);
    let metadata = lab.fields("metadata")[0].clone();
    assert_eq!(
        (&metadata[0]["value"], &metadata[1]["value"]),
        (&json!("shop"), &json!("shop/a"))
    );
    lab.calls();
    provider.delete(&request).await.unwrap();
    assert_eq!(lab.calls(), ["DELETE loadbalancers"]);
    assert_eq!(lab.balancers().len(), 0);
    lab.assert_described();
}

#[tokio::test]
async fn the_address_outlives_all_ports_that_it_began_with() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    let before = addresses(&provider.ensure(&request).await.unwrap());
    let other = Request {
        ports: vec![port(Protocol::Udp, 80), port(Protocol::Tcp, 443)],
        ..request
    };
    assert_eq!(addresses(&provider.ensure(&other).await.unwrap()), before);
    assert_eq!(lab.fields("protocol"), [json!("TCP"), json!("UDP")]);
    assert_eq!(lab.fields("healthMonitor")[1], json!(null));
    lab.assert_described();
}

#[tokio::test]
async fn what_people_change_is_put_back_but_for_what_is_theirs() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let request = Request {
        source_ranges: vec!["192.0.2.0/24".parse().unwrap()],
        affinity: Some(60),
        ..request
    };
    let provider = lab.provider();
    provider.ensure(&request).await.unwrap();
    let before = lab.owned().await.unwrap();
    for (field, to) in [
        ("algorithm", json!("ROUND_ROBIN")),
        ("timeout", json!(100)),
        ("healthMonitor", json!(null)),
        ("sessionPersistence", json!(null)),
        ("accessList", json!(null)),
        (
            "accessList",
            json!([{"id": 1, "address": "8.8.8.8", "type": "ALLOW"}]),
        ),
        (
            "nodes",
            json!([{"id": 1, "address": "www.example.com", "port": 80, "condition": "ENABLED"}]),
        ),
    ] {
        lab.change(field, to);
        lab.calls();
        provider.forget(&request);
        provider.ensure(&request).await.unwrap();
        assert_eq!(lab.owned().await.unwrap(), before, "{field}");
        let writes = lab
            .calls()
            .iter()
            .filter(|call| !call.starts_with("GET"))
            .count();
        assert!((1..=2).contains(&writes), "{field}: {writes}");
    }
    let mut nodes = lab.fields("nodes")[0].clone();
    nodes[0]["condition"] = json!("DRAINING");
    lab.change("nodes", nodes.clone());
    provider.forget(&request);
    provider.ensure(&request).await.unwrap();
    assert_eq!(lab.fields("nodes"), [nodes]);
}

#[tokio::test]
async fn memory_that_is_wrong_costs_calls_and_nothing_else() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    provider.ensure(&request).await.unwrap();
    let id = lab.fields("id")[0].as_u64().unwrap();
    lab.cloud.remove(id);
    provider
        .update_nodes(&Request {
            nodes: nodes(3),
            ..request.clone()
        })
        .await
        .unwrap();
    assert_eq!(lab.fields("nodes")[0].as_array().unwrap().len(), 3);
    lab.cloud.remove(lab.fields("id")[0].as_u64().unwrap());
    provider.delete(&request).await.unwrap();
    assert_eq!(lab.balancers().len(), 0);
}

#[tokio::test]
async fn access_is_never_open_while_it_changes() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    let from = |ranges: &[&str]| Request {
        source_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        ..request.clone()
    };
    provider.ensure(&from(&["192.0.2.0/24"])).await.unwrap();
    lab.calls();
    provider
        .ensure(&from(&["198.51.100.0/24", "2001:db8::/32"]))
        .await
        .unwrap();
    let writes: Vec<String> = lab
        .calls()
        .into_iter()
        .filter(|call| !call.starts_with("GET"))
        .collect();
    assert_eq!(
        writes,
        [
            "POST loadbalancers/accesslist",
            "DELETE loadbalancers/accesslist"
        ]
    );
    let items = lab.fields("accessList")[0].clone();
    let pair = |at: usize| (items[at]["address"].clone(), items[at]["type"].clone());
    assert_eq!(pair(0), (json!("0.0.0.0/0"), json!("DENY")));
    assert_eq!(pair(1), (json!("198.51.100.0/24"), json!("ALLOW")));
    provider
        .ensure(&from(&["0.0.0.0/0", "192.0.2.0/24"]))
        .await
        .unwrap();
    assert_eq!(lab.fields("accessList"), [json!(null)]);
    lab.assert_described();
}

#[tokio::test]
async fn families_and_kinds_of_addresses() {
    let lab = Lab::new();
    let provider = lab.provider();
    let both = Request {
        families: vec![Family::V6, Family::V4],
        require_all_families: true,
        ..service("both", &[80, 81])
    };
    let found = addresses(&provider.ensure(&both).await.unwrap());
    assert!(
        found.len() == 2 && found[0].contains(':') && found[1].starts_with("203.0.113."),
        "{found:?}"
    );
    // Nodes are sent to by the first family.
    assert_eq!(lab.fields("nodes")[0][0]["address"], "fd00::1");
    let internal = annotated(
        &service("internal", &[80]),
        "internal-load-balancer",
        "true",
    );
    assert!(addresses(&provider.ensure(&internal).await.unwrap())[0].starts_with("10.191."));
    let other = annotated(&internal, "internal-load-balancer", "false");
    let more = Request {
        families: vec![Family::V4, Family::V6],
        require_all_families: true,
        ..service("internal", &[80])
    };
    for request in [
        other,
        more,
        Request {
            families: vec![Family::V6],
            ..service("both", &[80])
        },
    ] {
        let answer = provider.ensure(&request).await;
        if request.service.name == "internal" {
            assert_eq!(refusal(answer).0, "AddressCannotChange");
        } else {
            assert_eq!(addresses(&answer.unwrap()), found[..1]);
        }
    }
    lab.assert_described();
}

#[tokio::test]
async fn an_address_of_the_account_can_be_asked_for() {
    let (lab, first) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    let shared = addresses(&provider.ensure(&first).await.unwrap());
    let second = Request {
        requested_ip: Some(shared[0].clone()),
        ..service("b", &[81])
    };
    assert_eq!(addresses(&provider.ensure(&second).await.unwrap()), shared);
    // It stays with the load balancers that are left.
    provider.delete(&first).await.unwrap();
    assert_eq!(
        addresses(&provider.describe(&second).await.unwrap().unwrap()),
        shared
    );
    let strange = Request {
        requested_ip: Some("198.51.100.9".into()),
        ..service("c", &[82])
    };
    assert_eq!(
        refusal(provider.ensure(&strange).await).0,
        "AddressNotFound"
    );
    let taken = Request {
        requested_ip: Some(shared[0].clone()),
        ..service("d", &[81])
    };
    let (reason, message) = refusal(provider.ensure(&taken).await);
    assert!(
        reason == "Rejected" && message.contains("using the requested port"),
        "{message}"
    );
}

#[tokio::test]
async fn the_node_after_the_last_is_refused_and_the_others_stay() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    let with = |count| Request {
        nodes: nodes(count),
        ..request.clone()
    };
    provider.ensure(&with(25)).await.unwrap();
    let (reason, message) = refusal(provider.update_nodes(&with(26)).await);
    assert_eq!(reason, "TooManyNodes");
    assert!(
        message.contains("exclude-from-external-load-balancers") && message.contains("node-limit"),
        "{message}"
    );
    assert_eq!(lab.fields("nodes")[0].as_array().unwrap().len(), 25);
    // All of them at another port, with never more than there is room for, nor none.
    let mut other = with(25);
    other.ports[0].node_port = 31111;
    lab.calls();
    provider.ensure(&other).await.unwrap();
    let writes: Vec<String> = lab
        .calls()
        .into_iter()
        .filter(|call| !call.starts_with("GET"))
        .collect();
    let turns = ["DELETE loadbalancers/nodes", "POST loadbalancers/nodes"];
    assert_eq!(writes, [turns, turns, turns].concat());
    lab.assert_described();
}

#[tokio::test]
async fn local_services_are_sent_to_where_their_endpoints_are() {
    let (lab, mut request) = (Lab::new(), service("a", &[]));
    request.ports = vec![port(Protocol::Udp, 53), port(Protocol::Tcp, 53)];
    (request.local, request.nodes) = (true, nodes(3));
    request.endpoints = vec![
        endpoint(&request.ports[0], "node-2"),
        endpoint(&request.ports[1], "node-3"),
    ];
    let provider = lab.provider();
    provider.ensure(&request).await.unwrap();
    let addresses = || {
        lab.fields("nodes")
            .iter()
            .map(|nodes| nodes[0]["address"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(addresses(), ["10.0.0.3", "10.0.0.2"]);
    request.endpoints[0].node = Some("node-1".into());
    lab.calls();
    provider.update_nodes(&request).await.unwrap();
    assert_eq!(addresses(), ["10.0.0.3", "10.0.0.1"]);
    lab.assert_described();
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_with_the_way_out() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    let mut no_node_port = request.clone();
    no_node_port.ports[0].node_port = 0;
    let many = (0..100)
        .map(|number| format!("10.{number}.0.0/16").parse().unwrap())
        .collect();
    let v6 = Request {
        families: vec![Family::V6],
        ..request.clone()
    };
    let table = [
        (
            Request {
                ports: vec![port(Protocol::Sctp, 53)],
                ..request.clone()
            },
            "ProtocolNotSupported",
        ),
        (no_node_port, "NoNodePort"),
        (
            Request {
                source_ranges: many,
                ..request.clone()
            },
            "TooManySourceRanges",
        ),
        (annotated(&v6, "internal-load-balancer", "true"), "NoIPv6"),
        (
            annotated(&request, "internal-load-balancer", "yes"),
            "BadAnnotation",
        ),
        (
            annotated(&request, "load-balancer-algorithm", "FASTEST"),
            "BadAnnotation",
        ),
        (
            annotated(&request, "load-balancer-timeout", "121"),
            "BadAnnotation",
        ),
    ];
    for (request, expected) in table {
        assert_eq!(refusal(provider.ensure(&request).await).0, expected);
    }
    assert_eq!(lab.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn an_account_that_is_full_is_told() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    (1..25).for_each(|port| _ = lab.cloud.add("foreign", port));
    assert_eq!(
        refusal(lab.provider().ensure(&request).await).0,
        "QuotaExceeded"
    );
}

#[tokio::test]
async fn what_takes_long_is_waited_for_later() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let mut provider = lab.provider();
    lab.cloud.set_looks(1_000_000);
    provider.poll.within = Duration::from_millis(1);
    for _ in 0..2 {
        let Err(ProviderError::RetryAfter { reason, .. }) = provider.ensure(&request).await else {
            panic!("it is not done")
        };
        assert!(
            reason.starts_with("load balancer ") && reason.ends_with(" is BUILD"),
            "{reason}"
        );
    }
    let pending = provider
        .describe(&request)
        .await
        .unwrap()
        .unwrap()
        .pending
        .unwrap();
    assert!(pending.ends_with("is BUILD"), "{pending}");
    assert_eq!(lab.balancers().len(), 1);
    provider.ensure(&request).await.unwrap();
    assert_eq!(lab.balancers().len(), 1);
}

#[tokio::test]
async fn one_that_failed_before_it_was_used_is_made_anew_and_later_it_is_left() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    lab.cloud.set_broken(true);
    let error = provider.ensure(&request).await.unwrap_err();
    assert!(
        matches!(&error, ProviderError::Failed(text) if text.contains("is ERROR")),
        "{error:?}"
    );
    lab.cloud.set_broken(false);
    let ingress = provider.ensure(&request).await.unwrap().ingress;
    assert_eq!(lab.fields("status"), [json!("ACTIVE")]);
    let known = Request { ingress, ..request };
    for status in ["ERROR", "SUSPENDED"] {
        lab.change("status", json!(status));
        provider.forget(&known);
        assert!(matches!(
            provider.ensure(&known).await,
            Err(ProviderError::Failed(_))
        ));
        assert_eq!(lab.fields("status"), [json!(status)]);
    }
}

#[tokio::test]
async fn tokens_that_end_early_are_renewed() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    provider.ensure(&request).await.unwrap();
    lab.cloud.expire();
    provider
        .update_nodes(&Request {
            nodes: nodes(3),
            ..request
        })
        .await
        .unwrap();
    let logins = lab
        .plan
        .calls()
        .iter()
        .filter(|call| call.ends_with("/v2.0/tokens"))
        .count();
    assert_eq!(logins, 2);
}

#[tokio::test]
async fn of_two_for_one_port_the_one_with_the_known_address_stays() {
    let (lab, request) = (Lab::new(), service("a", &[80]));
    let provider = lab.provider();
    // As an answer that is given up on, and happens later.
    lab.cloud.add("auida shop/a", 80);
    let second = lab.cloud.add("auida shop/a", 80);
    let known = lab
        .cloud
        .all()
        .into_iter()
        .find(|value| value["id"] == second)
        .unwrap();
    let address = known["virtualIps"][0]["address"].as_str().unwrap();
    let ingress = crate::Ingress {
        host: crate::Host::Ip(address.parse().unwrap()),
        mode: crate::IpMode::Proxy,
    };
    let made = provider
        .ensure(&Request {
            ingress: vec![ingress],
            ..request
        })
        .await
        .unwrap();
    assert_eq!(
        (addresses(&made), lab.fields("id")),
        (vec![address.to_owned()], vec![json!(second)])
    );
}
