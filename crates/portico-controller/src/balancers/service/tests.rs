//! Whose a Service is, and what is asked of its provider.

use serde_json::{Value, json};

use super::*;

pub(super) fn surroundings(class: Option<&str>) -> Surroundings {
    let ownership = Ownership::new("metal", class.map(str::to_owned));
    Surroundings {
        cluster: "kubernetes".to_owned(),
        node_healthz_port: 10256,
        load_balancer_ip_mode: true,
        ownership,
        release: false,
    }
}

pub(super) fn facts(service: Value) -> Facts {
    Facts::of(
        &serde_json::from_value(service).unwrap(),
        &surroundings(None),
    )
}

#[test]
fn whose_it_is() {
    const OWN: &str = "portico.dev/metal";
    let service =
        |kind: &str, class: Option<&str>, deleting: bool, finalizers: &[&str]| -> Service {
            let mut service = json!({"metadata": {"name": "web", "finalizers": finalizers},
            "spec": {"type": kind, "loadBalancerClass": class}});
            if deleting {
                service["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            serde_json::from_value(service).unwrap()
        };
    let (lb, ours, theirs) = (
        "LoadBalancer",
        Some("portico.dev/metal"),
        Some("example.com/x"),
    );
    let cases = [
        ("no class", service(lb, None, false, &[]), Claim::Wanted),
        ("our class", service(lb, ours, false, &[]), Claim::Wanted),
        (
            "another class",
            service(lb, theirs, false, &[]),
            Claim::NotOurs,
        ),
        (
            "another provider of ours",
            service(lb, Some("portico.dev/haproxy"), false, &[]),
            Claim::NotOurs,
        ),
        (
            "another type",
            service("ClusterIP", None, false, &[]),
            Claim::NotOurs,
        ),
        (
            "deleted",
            service(lb, None, true, &[FINALIZER, OWN]),
            Claim::CleanUp,
        ),
        (
            "deleted, held by an older controller",
            service(lb, None, true, &[FINALIZER]),
            Claim::CleanUp,
        ),
        (
            "deleted, and never held",
            service(lb, None, true, &["x/y"]),
            Claim::NotOurs,
        ),
        (
            "deleted, of another class",
            service(lb, theirs, true, &[FINALIZER]),
            Claim::NotOurs,
        ),
        (
            "type changed",
            service("NodePort", None, false, &[FINALIZER, OWN]),
            Claim::CleanUp,
        ),
        (
            "type changed, and it was somebody else's",
            service("NodePort", None, false, &[FINALIZER]),
            Claim::NotOurs,
        ),
        (
            "type changed back, to another class",
            service(lb, theirs, false, &[FINALIZER, OWN]),
            Claim::HandOver,
        ),
        (
            "type changed, shared finalizer removed by another",
            service("NodePort", None, false, &[OWN]),
            Claim::CleanUp,
        ),
    ];
    for (name, service, expected) in &cases {
        assert_eq!(
            Facts::of(service, &surroundings(None)).claim,
            *expected,
            "{name}"
        );
    }
    let only = surroundings(Some("example.com/x"));
    assert_eq!(
        Facts::of(&service(lb, None, false, &[]), &only).claim,
        Claim::NotOurs
    );
    assert_eq!(
        Facts::of(&service(lb, ours, false, &[]), &only).claim,
        Claim::NotOurs
    );
    assert_eq!(
        Facts::of(&service(lb, theirs, false, &[]), &only).claim,
        Claim::Wanted
    );
}

fn full() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "0f9c6a3e-1111-2222-3333-444455556666", "resourceVersion": "12",
            "annotations": {"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, 192.0.2.0/24"}},
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack",
            "ports": [{"name": "dns", "port": 53, "nodePort": 30053, "protocol": "UDP"}], "sessionAffinity": "ClientIP",
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000, "loadBalancerIP": "192.0.2.7"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "ipMode": "VIP"}, {"hostname": "x.example", "ports": []}]}},
    })
}

#[test]
fn what_is_asked_for() {
    let facts = facts(full());
    let request = &facts.request;
    assert_eq!(request.balancer_name, "a0f9c6a3e11112222333344445555666");
    assert_eq!(request.families, [Family::V6, Family::V4]);
    assert!(request.require_all_families && request.local);
    assert_eq!(
        request.health_check,
        Some(HealthCheck {
            port: 31000,
            path: "/healthz".into()
        })
    );
    assert_eq!(request.source_ranges.len(), 2);
    assert_eq!(request.affinity, Some(10_800));
    assert_eq!(request.ports[0].node_port, 30053);
    assert_eq!(facts.ingress.len(), 2);
    assert_eq!(facts.version, 12);
}

#[test]
fn where_nodes_are_asked_for_their_health() {
    let with = |policy: &str, port: u16| {
        let mut service = full();
        service["spec"]["externalTrafficPolicy"] = policy.into();
        service["spec"]["healthCheckNodePort"] = port.into();
        facts(service)
            .request
            .health_check
            .as_ref()
            .map(|check| check.port)
    };
    assert_eq!(
        [with("Cluster", 0), with("Local", 31000), with("Local", 0)],
        [Some(10256), Some(31000), None]
    );
}

#[test]
fn what_is_of_no_concern_to_a_provider_asks_for_the_same() {
    let same = [
        ("/status/conditions", json!([])),
        ("/metadata/resourceVersion", "13".into()),
        ("/spec/internalTrafficPolicy", "Local".into()),
        ("/metadata/finalizers", json!(["x/y"])),
    ];
    let other = [
        ("/spec/loadBalancerIP", "192.0.2.8".into()),
        ("/spec/ports/0/nodePort", 30054.into()),
        ("/spec/sessionAffinity", "None".into()),
        ("/spec/externalTrafficPolicy", "Cluster".into()),
        ("/spec/healthCheckNodePort", 31001.into()),
        ("/metadata/annotations", json!({"a": "b"})),
        ("/metadata/uid", "x".into()),
        ("/spec/loadBalancerSourceRanges", json!(["10.1.0.0/16"])),
        ("/spec/ipFamilies", json!(["IPv4"])),
    ];
    let changed = |(path, value): &(&str, Value)| {
        let mut service = full();
        let (parent, field) = path.rsplit_once('/').unwrap();
        match service.pointer_mut(parent).unwrap() {
            Value::Object(parent) => _ = parent.insert(field.to_owned(), value.clone()),
            parent => panic!("{parent}"),
        }
        facts(service).request != facts(full()).request
    };
    for change in &same {
        assert!(!changed(change), "{change:?}");
    }
    for change in &other {
        assert!(changed(change), "{change:?}");
    }
}

#[test]
fn what_is_ours_ends_when_everything_is_to_be_released() {
    const OWN: &str = "portico.dev/metal";
    let leaving = Surroundings {
        release: true,
        ..surroundings(None)
    };
    let claim = |kind: &str, finalizers: &[&str]| {
        let service = json!({"metadata": {"name": "web", "finalizers": finalizers},
            "spec": {"type": kind}});
        Facts::of(&serde_json::from_value(service).unwrap(), &leaving).claim
    };
    let lb = "LoadBalancer";
    assert_eq!(claim(lb, &[FINALIZER, OWN]), Claim::CleanUp);
    assert_eq!(claim("ClusterIP", &[FINALIZER, OWN]), Claim::CleanUp);
    assert_eq!(claim(lb, &[]), Claim::NotOurs, "none is made any more");
    assert_eq!(
        claim(lb, &[FINALIZER]),
        Claim::NotOurs,
        "another controller's"
    );
}
