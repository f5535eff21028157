use super::*;
use crate::plan::world::key_of;
use portico_model::index::{DetectLocal, NodePortSetting};
use serde_json::json;

fn settings(node: &str) -> Settings {
    Settings {
        node_name: node.into(),
        own_address: None,
        detect_local: DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()]),
        node_ports: NodePortSetting::Primary,
        masquerade_all: false,
        masquerade_mark: 0,
        external_ips: true,
        load_balancer_ip_mode: true,
    }
}

fn service(protocol: &str, more: Value) -> Value {
    let mut spec = json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"],
        "selector": {"app": "web"}, "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "targetPort": 8080, "protocol": protocol}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let given = if spec["type"] == "LoadBalancer" {
        json!([{"ip": "192.0.2.10"}])
    } else {
        json!([])
    };
    json!({"metadata": {"name": "web", "namespace": "shop", "uid": "1"}, "spec": spec,
        "status": {"loadBalancer": {"ingress": given}}})
}

fn pod(name: &str, address: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "a", "ports": [{"containerPort": 8080}]}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Two nodes; `pods` of them have a Pod.
fn world(protocol: &str, pods: usize) -> World {
    let mut world = World::default();
    for at in 1..=2 {
        let status =
            json!({"addresses": [{"type": "InternalIP", "address": format!("172.30.0.1{at}")}]});
        world.insert(
            Kind::Node,
            json!({"metadata": {"name": format!("n{at}")}, "status": status}),
        );
    }
    let mut changes: Changes = vec![created(Kind::Service, service(protocol, json!({})))];
    changes.extend((1..=pods).map(|at| {
        created(
            Kind::Pod,
            pod(
                &format!("p{at}"),
                &format!("10.244.{at}.1"),
                &format!("n{at}"),
            ),
        )
    }));
    let changes = world.consequences(changes);
    world.with(&changes)
}

fn created(kind: Kind, object: Value) -> (Kind, ObjectKey, Option<Value>) {
    (kind, key_of(&object), Some(object))
}

fn deleted(kind: Kind, namespace: &str, name: &str) -> (Kind, ObjectKey, Option<Value>) {
    (kind, ObjectKey::new(namespace, name), None)
}

fn told(world: &World, changes: Changes) -> (Vec<String>, Vec<String>, Vec<String>) {
    let forwarding = diff(world, &world.consequences(changes), settings);
    let lines = |effects: &[Effect]| -> Vec<String> {
        effects
            .iter()
            .map(|one| {
                format!(
                    "{} {} {} [{}]",
                    one.sign,
                    one.port,
                    one.what,
                    one.nodes.join(" ")
                )
            })
            .collect()
    };
    (
        lines(&forwarding.rules),
        lines(&forwarding.flows),
        lines(&forwarding.announcements),
    )
}

#[test]
fn a_new_service_answers_with_the_pods_that_there_are() {
    let mut world = world("TCP", 2);
    world = world.with(&world.consequences(vec![deleted(Kind::Service, "shop", "web")]));
    let (rules, flows, _) = told(
        &world,
        vec![created(Kind::Service, service("TCP", json!({})))],
    );
    assert_eq!(
        rules,
        [
            "+ shop/web cluster IP 10.96.0.1:80/tcp answers: to 2 endpoints [n1 n2]",
            "+ shop/web endpoint 10.244.1.1:8080 gets connections [n1 n2]",
            "+ shop/web endpoint 10.244.2.1:8080 gets connections [n1 n2]"
        ]
    );
    assert_eq!(flows, Vec::<String>::new());
}

#[test]
fn nothing_comes_of_nothing() {
    let world = world("TCP", 2);
    let same = created(Kind::Service, service("TCP", json!({})));
    assert_eq!(
        diff(&world, &world.consequences(vec![same]), settings),
        Forwarding::default()
    );
}

#[test]
fn a_pod_that_goes_takes_its_flows_along() {
    for (protocol, flow) in [
        (
            "TCP",
            "- shop/web TCP connections to 10.244.1.1:8080 last only while it answers [n1 n2]",
        ),
        (
            "UDP",
            "- shop/web UDP flows to 10.244.1.1:8080 end at once and go on with another endpoint \
             [n1 n2]",
        ),
    ] {
        let (rules, flows, _) = told(&world(protocol, 2), vec![deleted(Kind::Pod, "shop", "p1")]);
        assert_eq!(
            rules,
            ["- shop/web endpoint 10.244.1.1:8080 gets no new connections [n1 n2]"]
        );
        assert_eq!(flows, [flow]);
    }
    let (rules, flows, _) = told(&world("UDP", 1), vec![deleted(Kind::Pod, "shop", "p1")]);
    assert!(
        rules.contains(
            &"~ shop/web cluster IP 10.96.0.1:80/udp: served by any endpoint → nobody (rejects) \
              [n1 n2]"
                .to_owned()
        ),
        "{rules:?}"
    );
    assert_eq!(
        flows,
        ["- shop/web UDP flows to 10.244.1.1:8080 end after 10 s; nobody else serves them [n1 n2]"]
    );
}

#[test]
fn each_node_is_told_apart_where_it_matters() {
    let local = json!({"internalTrafficPolicy": "Local"});
    let (rules, _, _) = told(
        &world("TCP", 1),
        vec![created(Kind::Service, service("TCP", local))],
    );
    assert!(
        rules
            .iter()
            .any(|line| line.contains("any endpoint → endpoints of the node [n1]")),
        "{rules:?}"
    );
    assert!(
        rules
            .iter()
            .any(|line| line.contains("any endpoint → nobody (drops) [n2]")),
        "{rules:?}"
    );
}

#[test]
fn addresses_begin_and_cease_to_be_announced() {
    let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Cluster"});
    let before = world("TCP", 2);
    let (rules, _, announcements) = told(
        &before,
        vec![created(Kind::Service, service("TCP", balancer.clone()))],
    );
    assert!(
        rules
            .iter()
            .any(|line| line.starts_with("+ shop/web load balancer 192.0.2.10:80/tcp answers")),
        "{rules:?}"
    );
    assert_eq!(
        announcements,
        ["+ shop/web 192.0.2.10 is announced [n1 n2]"]
    );
    let with = before.with(&vec![created(Kind::Service, service("TCP", balancer))]);
    let (_, flows, announcements) = told(&with, vec![deleted(Kind::Service, "shop", "web")]);
    assert_eq!(
        announcements,
        ["- shop/web 192.0.2.10 is no longer announced [n1 n2]"]
    );
    assert_eq!(flows.len(), 2, "{flows:?}");
}
