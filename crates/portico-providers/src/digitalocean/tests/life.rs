//! What happens in the cloud in the life of Services, and how many calls it takes.

use serde_json::{Value, json};

use super::lab::{Lab, VPC, annotated, node, port, service};
use crate::{
    Family, HealthCheck, Host, Ingress, IpMode, Protocol, Provider, ProviderError, Request,
};

const CERTIFICATE: &str = "892071a0-bb95-49bc-8021-3afd67a210bf";
const NOTHING: [&str; 0] = [];

fn refusal<T: std::fmt::Debug>(result: Result<T, ProviderError>) -> (&'static str, String) {
    match result {
        Err(ProviderError::Refused { reason, message }) => (reason, message),
        other => panic!("{other:?}"),
    }
}

fn ids(lab: &Lab) -> Value {
    lab.only()["droplet_ids"].clone()
}

fn modes(ingress: &[Ingress]) -> Vec<IpMode> {
    ingress.iter().map(|ingress| ingress.mode).collect()
}

#[tokio::test]
async fn every_change_is_one_write_and_no_read() {
    let (lab, mut request) = (Lab::new(), service("a"));
    let cloud = lab.provider();
    let new = cloud.ensure(&request).await.unwrap();
    assert_eq!(lab.calls(), ["GET load_balancers", "POST load_balancers"]);
    let id = lab.only()["id"].clone();
    assert_eq!(
        new.pending,
        Some(format!(
            "load balancer auida ({}) is new",
            id.as_str().unwrap()
        ))
    );
    assert_eq!(new.ingress, []);
    lab.cloud.settle();
    let balancer = cloud.ensure(&request).await.unwrap();
    assert_eq!((balancer.pending, balancer.ingress.len()), (None, 1));
    assert_eq!(lab.calls(), ["GET load_balancers/ID"]);
    cloud.ensure(&request).await.unwrap();
    assert_eq!(lab.calls(), NOTHING);

    request.nodes.push(node(3));
    cloud.update_nodes(&request).await.unwrap();
    assert_eq!(
        (lab.calls(), ids(&lab)),
        (
            vec!["PUT load_balancers/ID".into()],
            json!([3164441, 3164442, 3164443])
        )
    );
    request.nodes.remove(0);
    cloud.update_nodes(&request).await.unwrap();
    assert_eq!(
        (lab.calls(), ids(&lab)),
        (
            vec!["PUT load_balancers/ID".into()],
            json!([3164442, 3164443])
        )
    );
    cloud.update_nodes(&request).await.unwrap();
    assert_eq!(lab.calls(), NOTHING);

    request.ports.push(port(Protocol::Udp, 53));
    cloud.ensure(&request).await.unwrap();
    assert_eq!(lab.calls(), ["PUT load_balancers/ID"]);
    assert_eq!(
        (&lab.only()["id"], ids(&lab)),
        (&id, json!([3164442, 3164443]))
    );
    cloud.describe(&request).await.unwrap().unwrap();
    assert_eq!(lab.calls(), ["GET load_balancers/ID"]);
    cloud.delete(&request).await.unwrap();
    assert_eq!(
        (lab.calls(), lab.ours()),
        (vec!["DELETE load_balancers/ID".into()], vec![])
    );
    lab.assert_described();
}

#[tokio::test]
async fn a_load_balancer_has_what_the_service_says() {
    let lab = Lab::new();
    let request = Request {
        ports: vec![port(Protocol::Tcp, 80), port(Protocol::Udp, 53)],
        source_ranges: vec!["192.0.2.7/24".parse().unwrap()],
        ..annotated(
            service("a"),
            &[
                ("size-unit", "3"),
                ("allow-rules", "ip:1.2.3.4"),
                ("deny-rules", "ip:192.0.2.9"),
            ],
        )
    };
    let balancer = lab.settled(&lab.provider(), &request).await;
    assert_eq!(modes(&balancer.ingress), [IpMode::Vip]);
    let made = lab.only();
    let rule = |protocol: &str, port: u16| {
        json!({"entry_protocol": protocol, "entry_port": port, "target_protocol": protocol, "target_port": 30000 + port,
            "certificate_id": "", "tls_passthrough": false})
    };
    assert_eq!(
        made["forwarding_rules"],
        json!([rule("tcp", 80), rule("udp", 53)])
    );
    assert_eq!(
        made["firewall"],
        json!({"allow": ["cidr:192.0.2.0/24"], "deny": ["ip:192.0.2.9"]})
    );
    let check = json!({"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3,
        "response_timeout_seconds": 5, "unhealthy_threshold": 3, "healthy_threshold": 5});
    assert_eq!(made["health_check"], check);
    assert_eq!(
        (&made["size_unit"], &made["vpc_uuid"], &made["name"]),
        (&json!(3), &json!(VPC), &json!("auida"))
    );
    lab.assert_described();
}

#[tokio::test]
async fn local_asks_nodes_for_the_service() {
    let (lab, cluster) = (Lab::new(), service("a"));
    let cloud = lab.provider();
    lab.settled(&cloud, &cluster).await;
    let health_check = Some(HealthCheck {
        port: 32100,
        path: "/healthz".into(),
    });
    let local = Request {
        local: true,
        health_check,
        ..cluster
    };
    cloud.ensure(&local).await.unwrap();
    assert_eq!(lab.calls(), ["PUT load_balancers/ID"]);
    assert_eq!(lab.only()["health_check"]["port"], 32100);
    let without = Request {
        health_check: None,
        ..local
    };
    assert_eq!(
        refusal(cloud.ensure(&without).await).0,
        "HealthCheckPortNeeded"
    );
}

#[tokio::test]
async fn what_the_balancer_adds_is_not_to_be_gone_past() {
    let web = Request {
        ports: vec![port(Protocol::Tcp, 80), port(Protocol::Tcp, 443)],
        ..service("a")
    };
    let table = [
        (&[("enable-proxy-protocol", "true")][..], IpMode::Proxy),
        (&[("certificate-id", CERTIFICATE)], IpMode::Proxy),
        (
            &[("certificate-name", "shop"), ("http3-port", "443")],
            IpMode::Proxy,
        ),
        (&[("http-ports", "80")], IpMode::Proxy),
        (&[("tls-passthrough", "true")], IpMode::Vip),
        (&[("type", "REGIONAL_NETWORK")], IpMode::Vip),
        (&[], IpMode::Vip),
    ];
    for (annotations, mode) in table {
        let lab = Lab::new();
        let balancer = lab
            .settled(&lab.provider(), &annotated(web.clone(), annotations))
            .await;
        assert_eq!(modes(&balancer.ingress), [mode], "{annotations:?}");
        lab.assert_described();
    }
}

#[tokio::test]
async fn checks_have_no_proxy_header_and_an_answer_need_not_tell() {
    let (lab, request) = (
        Lab::new(),
        annotated(service("a"), &[("enable-proxy-protocol", "true")]),
    );
    let cloud = lab.provider();
    lab.settled(&cloud, &request).await;
    assert_eq!(lab.only()["health_check"]["proxy_protocol"], false);
    let mut check = lab.only()["health_check"].clone();
    check.as_object_mut().unwrap().remove("proxy_protocol");
    lab.cloud.put("auida", &json!({"health_check": check}));
    cloud.forget(&request);
    cloud.ensure(&request).await.unwrap();
    assert_eq!(lab.calls(), ["GET load_balancers/ID"]);
}

#[tokio::test]
async fn a_certificate_is_followed_by_its_name() {
    let (lab, web) = (
        Lab::new(),
        Request {
            ports: vec![port(Protocol::Tcp, 443)],
            ..service("a")
        },
    );
    let (cloud, request) = (
        lab.provider(),
        annotated(web.clone(), &[("certificate-name", "shop")]),
    );
    lab.settled(&cloud, &request).await;
    assert_eq!(
        lab.only()["forwarding_rules"][0]["certificate_id"],
        CERTIFICATE
    );
    // Nodes cost no look at it.
    cloud
        .update_nodes(&Request {
            nodes: vec![node(1)],
            ..request
        })
        .await
        .unwrap();
    assert_eq!(lab.calls(), ["PUT load_balancers/ID"]);
    let (reason, message) = refusal(
        cloud
            .ensure(&annotated(web, &[("certificate-name", "gone")]))
            .await,
    );
    assert_eq!(reason, "CertificateNotFound");
    assert!(
        message.contains("\"gone\"") && message.contains("doctl"),
        "{message}"
    );
    lab.assert_described();
}

#[tokio::test]
async fn both_families_have_an_address_each() {
    let (lab, request) = (
        Lab::new(),
        Request {
            families: vec![Family::V4, Family::V6],
            ..service("a")
        },
    );
    let balancer = lab.settled(&lab.provider(), &request).await;
    let is_v6 = |ingress: &Ingress| matches!(ingress.host, Host::Ip(address) if address.is_ipv6());
    assert_eq!(
        balancer.ingress.iter().map(is_v6).collect::<Vec<_>>(),
        [false, true]
    );
    // One that was made for IPv4 alone has no other address, ever.
    let lab = Lab::new();
    let provider = lab.provider();
    lab.settled(&provider, &service("a")).await;
    assert_eq!(provider.ensure(&request).await.unwrap().ingress.len(), 1);
    let (reason, message) = refusal(
        provider
            .ensure(&Request {
                require_all_families: true,
                ..request
            })
            .await,
    );
    assert_eq!(reason, "CannotChange");
    assert!(message.contains("has no IPv6 address"), "{message}");
}

#[tokio::test]
async fn what_others_changed_is_seen_and_made_good() {
    let (lab, request) = (Lab::new(), service("a"));
    let cloud = lab.provider();
    let balancer = lab.settled(&cloud, &request).await;
    lab.cloud.put(
        "auida",
        &json!({"firewall": {"allow": ["ip:198.51.100.1"], "deny": []}}),
    );
    let seen = cloud.describe(&request).await.unwrap().unwrap();
    assert_eq!(seen.ingress, balancer.ingress);
    assert!(
        seen.pending
            .is_some_and(|pending| pending.ends_with("was changed by somebody else"))
    );
    cloud.forget(&request);
    assert_eq!(cloud.ensure(&request).await.unwrap(), balancer);
    assert_eq!(
        lab.calls(),
        [
            "GET load_balancers/ID",
            "GET load_balancers/ID",
            "PUT load_balancers/ID"
        ]
    );
    assert_eq!(lab.only()["firewall"], json!({"allow": [], "deny": []}));
    // What the Service says nothing of is theirs.
    lab.cloud.put(
        "auida",
        &json!({"size_unit": 7, "tls_cipher_policy": "STRONG", "project_id": "p"}),
    );
    cloud.forget(&request);
    cloud.ensure(&request).await.unwrap();
    assert_eq!(lab.calls(), ["GET load_balancers/ID"]);
    cloud
        .update_nodes(&Request {
            nodes: vec![node(3)],
            ..request.clone()
        })
        .await
        .unwrap();
    assert_eq!(
        (&lab.only()["size_unit"], &lab.only()["project_id"]),
        (&json!(7), &json!("p"))
    );
    // One that is gone is made again, in the same pass.
    lab.calls();
    lab.cloud.remove("auida");
    cloud.update_nodes(&request).await.unwrap_err();
    cloud.ensure(&request).await.unwrap();
    assert_eq!(lab.ours().len(), 1);
}

#[tokio::test]
async fn one_that_is_there_twice_is_there_once_again() {
    let (lab, request) = (Lab::new(), service("a"));
    lab.settled(&lab.provider(), &request).await;
    let first = lab.only()["id"].clone();
    lab.cloud.put("shop-auida", &json!({}));
    assert_eq!(lab.ours().len(), 2);
    lab.provider().ensure(&request).await.unwrap();
    assert_eq!(
        lab.calls(),
        ["GET load_balancers", "DELETE load_balancers/ID"]
    );
    assert_eq!(lab.only()["id"], first);
}

#[tokio::test]
async fn a_name_can_change_and_lists_are_long() {
    let (lab, request) = (Lab::new(), service("a"));
    (0..450).for_each(|number| lab.cloud.put(&format!("auida-{number}"), &json!({})));
    let cloud = lab.provider();
    cloud.ensure(&request).await.unwrap();
    assert_eq!(lab.calls().len(), 4, "three pages and a write");
    lab.cloud.settle();
    cloud
        .ensure(&annotated(request.clone(), &[("name", "shop.example")]))
        .await
        .unwrap();
    assert_eq!(lab.calls(), ["PUT load_balancers/ID"]);
    let named = |name: &str| {
        lab.cloud
            .all()
            .iter()
            .filter(|balancer| balancer["name"] == name)
            .count()
    };
    assert_eq!((named("shop.example-auida"), named("auida")), (1, 0));
    // A new program finds it, whatever the annotation says by then.
    lab.provider().delete(&request).await.unwrap();
    assert_eq!(
        (named("shop.example-auida"), lab.cloud.all().len()),
        (0, 453)
    );
}

#[tokio::test]
async fn one_that_fails_before_it_was_used_is_made_anew() {
    let (lab, request) = (Lab::new(), service("a"));
    let cloud = lab.provider();
    lab.cloud.set_failing(true);
    cloud.ensure(&request).await.unwrap();
    lab.cloud.settle();
    let Err(ProviderError::Failed(message)) = cloud.ensure(&request).await else {
        panic!("it is errored")
    };
    assert!(
        message.contains("auida") && message.contains("is errored"),
        "{message}"
    );
    assert_eq!(lab.ours(), Vec::<Value>::new());
    lab.cloud.set_failing(false);
    lab.settled(&cloud, &request).await;
    // Later it may carry traffic.
    lab.cloud.put("auida", &json!({"status": "errored"}));
    cloud.forget(&request);
    let ingress = vec![Ingress {
        host: Host::Name("x".into()),
        mode: IpMode::Vip,
    }];
    let Err(ProviderError::Failed(_)) = cloud.ensure(&Request { ingress, ..request }).await else {
        panic!("it is errored")
    };
    assert_eq!(lab.ours().len(), 1);
}

#[tokio::test]
async fn one_that_is_disowned_is_left_alone() {
    let (lab, request) = (Lab::new(), service("a"));
    let cloud = lab.provider();
    lab.settled(&cloud, &request).await;
    let annotations = [(
        "service.kubernetes.io/do-loadbalancer-disown".to_owned(),
        "true".to_owned(),
    )]
    .into();
    let disowned = Request {
        annotations,
        ..request
    };
    assert_eq!(cloud.ensure(&disowned).await, Err(ProviderError::Elsewhere));
    assert_eq!(
        cloud.update_nodes(&disowned).await,
        Err(ProviderError::Elsewhere)
    );
    assert_eq!(cloud.delete(&disowned).await, Err(ProviderError::Elsewhere));
    assert_eq!((lab.calls(), lab.ours().len()), (vec![], 1));
}

#[tokio::test]
async fn what_the_cloud_rejects_is_told_to_people() {
    let (lab, request) = (
        Lab::new(),
        Request {
            nodes: vec![node(9)],
            ..service("a")
        },
    );
    let (reason, message) = refusal(lab.provider().ensure(&request).await);
    assert_eq!(reason, "Rejected");
    assert_eq!(
        message,
        "load_balancers.create: Droplet 3164449 was not found (422 unprocessable_entity)"
    );
    assert_eq!(lab.ours(), Vec::<Value>::new());
    lab.assert_described();
}
