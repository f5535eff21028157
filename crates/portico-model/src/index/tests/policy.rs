//! Traffic policies, masquerading and health checks.

use super::harness::*;
use crate::index::{DetectLocal, Settings};
use crate::table::{Family, FrontendKind, Masquerade, Outcome, PerFamily};
use serde_json::{Value, json};
use std::sync::Arc;

/// A Service of every kind of frontend, with the policies (internal, external).
fn exposed(internal: &str, external: &str) -> Value {
    load_balancer(
        json!({"internalTrafficPolicy": internal, "externalTrafficPolicy": external, "externalIPs": ["192.0.2.1"],
               "healthCheckNodePort": 32000, "ports": [{"port": 80, "nodePort": 30000}]}),
        json!([{"ip": "203.0.113.1"}]),
    )
}

#[test]
fn outcomes_of_policies() {
    use Outcome::{Cluster, Drop, Local, Reject};
    let (h, t) = (|| here("10.244.0.1"), || there("10.244.1.1"));
    for (endpoints, internal, external, wanted_internal, wanted_external) in [
        (
            json!([h(), t()]),
            "Cluster",
            "Cluster",
            Cluster,
            (Cluster, Cluster),
        ),
        (
            json!([h(), t()]),
            "Local",
            "Cluster",
            Local,
            (Cluster, Cluster),
        ),
        (
            json!([h(), t()]),
            "Cluster",
            "Local",
            Cluster,
            (Cluster, Local),
        ),
        (json!([h(), t()]), "Local", "Local", Local, (Cluster, Local)),
        (json!([t()]), "Local", "Local", Drop, (Cluster, Drop)),
        (json!([t()]), "Cluster", "Local", Cluster, (Cluster, Drop)),
        (
            json!([ending(h()), t()]),
            "Local",
            "Local",
            Local,
            (Cluster, Local),
        ),
        (
            json!([h(), ending(t())]),
            "Local",
            "Local",
            Local,
            (Cluster, Local),
        ),
        (
            json!([ending(t())]),
            "Local",
            "Local",
            Drop,
            (Cluster, Drop),
        ),
        (json!([]), "Cluster", "Cluster", Reject, (Reject, Reject)),
        (json!([]), "Local", "Local", Reject, (Reject, Reject)),
    ] {
        let case = format!("{endpoints} {internal} {external}");
        let port = web(&index(&[
            exposed(internal, external),
            slice("a", endpoints),
        ]));
        let of = |kind| (frontend(&port, kind).inside, frontend(&port, kind).outside);
        assert_eq!(
            of(FrontendKind::ClusterIp),
            (wanted_internal, wanted_internal),
            "{case}"
        );
        for kind in [
            FrontendKind::ExternalIp,
            FrontendKind::LoadBalancerIp,
            FrontendKind::NodePort,
        ] {
            assert_eq!(of(kind), wanted_external, "{case} {kind:?}");
        }
        let uses = |outcome| {
            port.frontends
                .iter()
                .any(|f| f.inside == outcome || f.outside == outcome)
        };
        assert_eq!(
            (uses(Cluster), uses(Local)),
            (!port.cluster.is_empty(), !port.local.is_empty()),
            "{case}"
        );
    }
}

#[test]
fn the_terminating_fallback_is_decided_for_each_pool() {
    let endpoints = json!([ending(here("10.244.0.1")), there("10.244.1.1")]);
    let port = web(&index(&[
        exposed("Cluster", "Local"),
        slice("a", endpoints),
    ]));
    assert_eq!(
        (shown(&port.cluster), shown(&port.local)),
        (
            vec!["10.244.1.1:8080".into()],
            vec!["10.244.0.1:8080*".into()]
        )
    );
    assert!(port.lingering.is_empty());
}

#[test]
fn equal_pools_are_kept_once() {
    let port = web(&index(&[
        exposed("Cluster", "Local"),
        slice("a", json!([here("10.244.0.1")])),
    ]));
    assert!(!port.local.is_empty() && Arc::ptr_eq(&port.cluster, &port.local));
}

#[test]
fn an_external_policy_means_nothing_for_a_service_that_is_not_external() {
    let object = service(json!({"externalTrafficPolicy": "Local"}));
    let port = web(&index(&[object, slice("a", json!([there("10.244.1.1")]))]));
    assert!(port.local.is_empty() && !port.cluster.is_empty());
}

#[test]
fn masquerading() {
    let bridge = |name: &str| DetectLocal::Bridge(name.into());
    let v6_only = || DetectLocal::ClusterCidr(vec!["fd00::/8".parse().unwrap()]);
    for (rule, detect_local, masquerade_all, wanted) in [
        (
            "pods can be told",
            settings().detect_local,
            false,
            Masquerade::UnlessPod,
        ),
        (
            "pods can be told by the bridge",
            bridge("cni0"),
            false,
            Masquerade::UnlessPod,
        ),
        (
            "pods can be told by the interface",
            DetectLocal::InterfacePrefix("veth".into()),
            false,
            Masquerade::UnlessPod,
        ),
        (
            "pods cannot be told",
            DetectLocal::ClusterCidr(vec![]),
            false,
            Masquerade::Never,
        ),
        (
            "pods cannot be told in this family",
            v6_only(),
            false,
            Masquerade::Never,
        ),
        (
            "the node has no pod CIDR yet",
            DetectLocal::NodeCidr,
            false,
            Masquerade::Never,
        ),
        (
            "everybody",
            settings().detect_local,
            true,
            Masquerade::Always,
        ),
        (
            "everybody, though pods cannot be told",
            DetectLocal::ClusterCidr(vec![]),
            true,
            Masquerade::Always,
        ),
    ] {
        let settings = || Settings {
            detect_local: detect_local.clone(),
            masquerade_all,
            ..settings()
        };
        let port = |external| web(&index_with(settings(), &[exposed("Local", external)]).0);
        for external in ["Cluster", "Local"] {
            assert_eq!(
                frontend(&port(external), FrontendKind::ClusterIp).masquerade,
                wanted,
                "{rule}"
            );
        }
        for kind in [
            FrontendKind::ExternalIp,
            FrontendKind::LoadBalancerIp,
            FrontendKind::NodePort,
        ] {
            assert_eq!(
                frontend(&port("Cluster"), kind).masquerade,
                Masquerade::Always,
                "{rule} {kind:?}"
            );
            assert_eq!(
                frontend(&port("Local"), kind).masquerade,
                Masquerade::OnlyNode,
                "{rule} {kind:?}"
            );
        }
    }
}

#[test]
fn health_checks_count_ready_endpoints_of_this_node_by_address_and_family() {
    let mut v4 = slice(
        "a",
        json!([
            here("10.244.0.1"),
            here("10.244.0.2"),
            ending(here("10.244.0.3")),
            there("10.244.1.1")
        ]),
    );
    v4["ports"] = json!([{"name": "", "port": 8080}, {"name": "unused", "port": 8081}]);
    let mut v6 = slice("b", json!([here("fd00::1")]));
    v6["addressType"] = json!("IPv6");
    let mut object = exposed("Cluster", "Local");
    object["spec"] = merged(object["spec"].clone(), dual_stack());
    let (index, update) = index_with(settings(), &[object, v4.clone(), v6.clone()]);
    let check = &index.health_checks()[&name("web")];
    assert_eq!(
        (check.port, check.ready),
        (32000, PerFamily { v4: 2, v6: 1 })
    );
    assert_eq!(check.families, PerFamily { v4: true, v6: true });
    assert_eq!(update.health_checks, [(name("web"), Some(check.clone()))]);
    let single = index_with(settings(), &[exposed("Cluster", "Local"), v4, v6]).0;
    let check = &single.health_checks()[&name("web")];
    assert_eq!(
        (check.families, check.ready),
        (
            PerFamily {
                v4: true,
                v6: false
            },
            PerFamily { v4: 2, v6: 0 }
        )
    );
}

#[test]
fn health_checks_exist_only_for_load_balancers_with_a_local_policy() {
    let mut index = index(&[exposed("Cluster", "Local")]);
    assert_eq!(index.health_checks().len(), 1);
    for (rule, spec) in [
        (
            "Cluster policy",
            json!({"externalTrafficPolicy": "Cluster"}),
        ),
        ("not a load balancer", json!({"type": "NodePort"})),
        ("no port", json!({"healthCheckNodePort": 0})),
    ] {
        let mut object = exposed("Cluster", "Local");
        object["spec"] = merged(object["spec"].clone(), spec);
        apply(&mut index, &object);
        assert_eq!(index.take().health_checks, [(name("web"), None)], "{rule}");
        apply(&mut index, &exposed("Cluster", "Local"));
        assert_eq!(index.take().health_checks.len(), 1, "{rule}");
    }
    assert!(!web_of(&index, Family::V4).frontends.is_empty());
}
