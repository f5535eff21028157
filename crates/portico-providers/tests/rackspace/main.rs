//! The provider `rackspace` against `mimic`, the vendor's own stand-in for its clouds. What `mimic`
//! has not (access lists, session persistence, other settings, several deleted at once) and what
//! goes wrong at every call is tried on the cloud in memory, in the crate itself.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod mimic;

use std::time::Duration;

use portico_providers::cloud::Poll;
use portico_providers::conformance::{self, Can, Case, Support};
use portico_providers::{
    Family, Node, Port, Protocol, Provider, ProviderError, Request, ServiceRef,
};
use serde_json::json;

use mimic::Mimic;

fn nodes(count: usize) -> Vec<Node> {
    let node = |number: usize| {
        let addresses = [format!("10.0.0.{number}"), format!("fd00::{number}")];
        let addresses = addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        Node {
            name: format!("node-{number}"),
            addresses,
            ..Node::default()
        }
    };
    (1..=count).map(node).collect()
}

fn service(name: &str, ports: &[u16]) -> Request {
    let port = |port: &u16| Port {
        name: port.to_string(),
        protocol: Protocol::Tcp,
        port: *port,
        node_port: 30_000 + port,
        app_protocol: None,
    };
    Request {
        cluster: "shop".to_owned(),
        service: ServiceRef {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
        },
        balancer_name: format!("a{name}"),
        families: vec![Family::V4],
        ports: ports.iter().map(port).collect(),
        nodes: nodes(2),
        ..Request::default()
    }
}

#[tokio::test]
async fn on_mimic_the_contract_is_kept() {
    let mimic = Mimic::start().await;
    let missing = |what: &str| Support::Untested(format!("mimic has no {what}"));
    let can = Can {
        // All nodes of the suite have endpoints.
        local: Support::Ignored,
        source_ranges: missing("access lists"),
        affinity: missing("session persistence"),
        mixed_protocols: missing("way to delete several at once"),
        ..Can::everything()
    };
    let case = Case {
        pause: Duration::from_millis(1),
        ..Case::new(nodes(3)).can(can)
    };
    let report = conformance::run(&mimic.provider("ORD", 25), Some(&mimic), &case).await;
    assert!(report.passed(), "{report}");
    monitors_are_set(&mimic).await;
    ports_share_an_address(&mimic).await;
    one_that_is_busy_is_waited_for(&mimic).await;
    the_limit_of_the_account_is_told(&mimic).await;
    regions_are_looked_up(&mimic).await;
}

/// `mimic` keeps none when a load balancer is created, which is then found and repaired.
async fn monitors_are_set(mimic: &Mimic) {
    let (provider, request) = (mimic.provider("ORD", 25), service("monitor", &[80]));
    for _ in 0..2 {
        provider.ensure(&request).await.unwrap();
    }
    let monitor =
        json!({"type": "CONNECT", "delay": 5, "timeout": 3, "attemptsBeforeDeactivation": 2});
    let id = mimic.ids("amonitor").await[0];
    assert_eq!(
        mimic
            .get(&format!("loadbalancers/{id}/healthmonitor"))
            .await["healthMonitor"],
        monitor
    );
    let shown = mimic.get(&format!("loadbalancers/{id}")).await;
    let metadata = shown["loadBalancer"]["metadata"].as_array().unwrap();
    let has = |key: &str, value: &str| {
        metadata
            .iter()
            .any(|meta| meta["key"] == key && meta["value"] == value)
    };
    assert!(
        has("kubernetes-cluster", "shop") && has("kubernetes-service", "shop/monitor"),
        "{metadata:?}"
    );
    provider.delete(&request).await.unwrap();
    assert_eq!(mimic.ids("amonitor").await.len(), 0);
}

async fn ports_share_an_address(mimic: &Mimic) {
    let (provider, request) = (mimic.provider("ORD", 25), service("ports", &[80, 443]));
    let ingress = provider.ensure(&request).await.unwrap().ingress;
    assert_eq!((mimic.ids("aports").await.len(), ingress.len()), (2, 1));
    // Another start of the program knows nothing, and finds both.
    let again = mimic.provider("ORD", 25);
    let one = Request {
        ports: request.ports[1..].to_vec(),
        ..request
    };
    assert_eq!(again.ensure(&one).await.unwrap().ingress, ingress);
    assert_eq!(mimic.ids("aports").await.len(), 1);
    again.delete(&one).await.unwrap();
    assert_eq!(mimic.ids("aports").await.len(), 0);
}

async fn one_that_is_busy_is_waited_for(mimic: &Mimic) {
    let poll = Poll {
        first: Duration::from_millis(1),
        last: Duration::from_millis(1),
        within: Duration::ZERO,
    };
    let (provider, request) = (mimic.provider_with("ORD", 25, poll), service("busy", &[80]));
    // The second time for its monitor, which would be the first to wait.
    for _ in 0..2 {
        provider.ensure(&request).await.unwrap();
    }
    let id = mimic.ids("abusy").await[0];
    mimic.set_status(id, "PENDING_UPDATE").await;
    let more = Request {
        nodes: nodes(3),
        ..request.clone()
    };
    let answer = provider.update_nodes(&more).await;
    let Err(ProviderError::RetryAfter { reason, .. }) = &answer else {
        panic!("{answer:?}")
    };
    assert_eq!(*reason, format!("load balancer {id} is PENDING_UPDATE"));
    mimic.set_status(id, "ACTIVE").await;
    provider.update_nodes(&more).await.unwrap();
    let shown = mimic.get(&format!("loadbalancers/{id}/nodes")).await;
    assert_eq!(shown["nodes"].as_array().unwrap().len(), 3);
    provider.delete(&request).await.unwrap();
}

async fn the_limit_of_the_account_is_told(mimic: &Mimic) {
    let (provider, request) = (mimic.provider("ORD", 50), service("limit", &[80]));
    provider
        .ensure(&Request {
            nodes: nodes(25),
            ..request.clone()
        })
        .await
        .unwrap();
    let answer = provider
        .update_nodes(&Request {
            nodes: nodes(26),
            ..request.clone()
        })
        .await;
    let Err(ProviderError::Refused {
        reason: "QuotaExceeded",
        message,
    }) = &answer
    else {
        panic!("{answer:?}")
    };
    assert!(message.contains("Nodes must not exceed 25"), "{message}");
    provider.delete(&request).await.unwrap();
}

async fn regions_are_looked_up(mimic: &Mimic) {
    let answer = mimic
        .provider("LON", 25)
        .ensure(&service("elsewhere", &[80]))
        .await;
    let Err(ProviderError::Failed(message)) = &answer else {
        panic!("{answer:?}")
    };
    assert!(
        message.contains("no rax:load-balancer in region \"LON\": use one of ORD"),
        "{message}"
    );
}
