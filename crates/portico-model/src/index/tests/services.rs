//! Which Services count, and which of their ports.

use super::harness::*;
use crate::index::Settings;
use crate::objects::SERVICE_PROXY_NAME;
use crate::static_services::namespace;
use crate::table::{Family, FrontendKind, Protocol};
use serde_json::json;

#[test]
fn services_that_are_not_for_this_proxy() {
    for (rule, object) in [
        (
            "headless",
            service(
                json!({"clusterIP": "None", "clusterIPs": ["None"], "externalIPs": ["192.0.2.1"]}),
            ),
        ),
        (
            "without a cluster IP",
            service(json!({"clusterIP": "", "clusterIPs": []})),
        ),
        (
            "an alias, even with an address",
            service(json!({"type": "ExternalName"})),
        ),
        (
            "another proxy's",
            labelled(service(json!({})), SERVICE_PROXY_NAME, "other"),
        ),
        (
            "another proxy's without a name",
            labelled(service(json!({})), SERVICE_PROXY_NAME, ""),
        ),
    ] {
        let index = index(&[object, slice("a", json!([here("10.244.0.1")]))]);
        assert!(index.table().ports.is_empty(), "{rule}");
        assert!(index.service_names().is_empty(), "{rule}");
    }
}

/// The API server gives every Service a cluster IP; those that the operator of a node wrote need
/// none.
#[test]
fn a_service_with_external_addresses_alone() {
    let spec = json!({"clusterIP": "", "clusterIPs": [], "ipFamilies": [], "externalIPs": ["192.0.2.1", "2001:db8::1"]});
    let index = index(&[service(spec), slice("a", json!([here("10.244.0.1")]))]);
    for (family, served) in [(Family::V4, 1), (Family::V6, 0)] {
        let web = web_of(&index, family);
        let kinds: Vec<FrontendKind> = web.frontends.iter().map(|frontend| frontend.kind).collect();
        assert_eq!(kinds, [FrontendKind::ExternalIp], "{family:?}");
        assert_eq!(web.cluster.len(), served, "{family:?}");
    }
    for (rule, spec) in [
        (
            "headless all the same",
            json!({"clusterIP": "None", "externalIPs": ["192.0.2.1"]}),
        ),
        (
            "a broken cluster IP is none",
            json!({"clusterIP": "x", "ipFamilies": [], "externalIPs": ["192.0.2.1"]}),
        ),
    ] {
        assert!(
            super::harness::index(&[service(spec)])
                .table()
                .ports
                .is_empty(),
            "{rule}"
        );
    }
}

/// A writer of a Service could take addresses from others.
#[test]
fn external_ips_where_the_operator_wants_none() {
    let spec = json!({"type": "NodePort", "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"],
                      "ports": [{"port": 80, "nodePort": 30080}]});
    let index = index_with(
        Settings {
            external_ips: false,
            ..settings()
        },
        &[service(spec)],
    )
    .0;
    let kinds: Vec<FrontendKind> = web_of(&index, Family::V4)
        .frontends
        .iter()
        .map(|frontend| frontend.kind)
        .collect();
    assert_eq!(kinds, [FrontendKind::ClusterIp, FrontendKind::NodePort]);
    let mut of_a_file =
        service(json!({"clusterIP": "", "clusterIPs": [], "externalIPs": ["192.0.2.1"]}));
    of_a_file["metadata"]["namespace"] = namespace("file", "default").into();
    let index = index_with(
        Settings {
            external_ips: false,
            ..settings()
        },
        &[of_a_file],
    )
    .0;
    assert_eq!(index.table().frontends.conflicts().len(), 0);
    assert_eq!(index.table().ports.len(), 1, "the operator wrote it");
}

#[test]
fn a_service_that_stops_being_for_this_proxy_goes() {
    let mut index = index(&[service(json!({}))]);
    assert_eq!(index.table().ports.len(), 1);
    apply(
        &mut index,
        &labelled(service(json!({})), SERVICE_PROXY_NAME, ""),
    );
    let update = index.take();
    assert!(update.changes.len() == 1 && update.changes[0].after.is_none());
    assert!(index.table().ports.is_empty() && index.table().frontends.conflicts().is_empty());
}

#[test]
fn cluster_ips_by_family() {
    for (rule, spec, wanted) in [
        ("by position", dual_stack(), [true, true]),
        (
            "families the other way round",
            json!({"clusterIP": "fd00:96::1", "clusterIPs": ["fd00:96::1", "10.96.0.1"], "ipFamilies": ["IPv6", "IPv4"]}),
            [true, true],
        ),
        (
            "no families, an IPv4 address",
            json!({"ipFamilies": [], "clusterIPs": []}),
            [true, false],
        ),
        (
            "no families, an IPv6 address",
            json!({"ipFamilies": [], "clusterIP": "fd00:96::1"}),
            [false, true],
        ),
        (
            "fewer addresses than families",
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            [true, false],
        ),
        (
            "an address of the other family",
            json!({"ipFamilies": ["IPv6"]}),
            [false, false],
        ),
    ] {
        let index = index(&[service(spec)]);
        let has = |family| !web_of(&index, family).frontends.is_empty();
        assert_eq!([has(Family::V4), has(Family::V6)], wanted, "{rule}");
    }
}

#[test]
fn ports_are_told_apart_by_name_and_protocol() {
    let index = index(&[service(json!({"ports": [
        {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
        {"name": "s", "port": 53, "protocol": "SCTP"}]}))]);
    let keys: Vec<_> = index
        .table()
        .ports
        .keys()
        .map(|key| (&*key.port, key.protocol))
        .collect();
    assert_eq!(
        keys,
        [
            ("dns", Protocol::Udp),
            ("dns-tcp", Protocol::Tcp),
            ("s", Protocol::Sctp)
        ]
    );
    assert!(index.conflicts().is_empty());
}

#[test]
fn bad_parts_are_left_out_and_reported_and_the_rest_works() {
    let object = load_balancer(
        json!({"externalIPs": ["nonsense", "192.0.2.1", ""], "loadBalancerSourceRanges": ["10.0.0.0/40"],
               "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 0}, {"name": "c", "port": 70000},
                         {"name": "d", "port": 1, "protocol": "QUIC"}]}),
        json!([{"ip": "x"}, {"hostname": "lb.example.com"}, {"ip": "203.0.113.1"}]),
    );
    let mut bad_slice = slice(
        "a",
        json!([here("nonsense"), {"addresses": []}, here("fd00::1"), here("10.244.0.1")]),
    );
    bad_slice["ports"] = json!([{"name": "a", "port": 8080}, {"name": "b"}, {"name": "a", "port": -1}, {"name": "a", "port": 65536}]);
    let (index, update) = index_with(settings(), &[object, bad_slice]);
    let (_, port) = index.table().ports.iter().next().unwrap();
    assert_eq!(
        kinds(port),
        [
            FrontendKind::ClusterIp,
            FrontendKind::ExternalIp,
            FrontendKind::LoadBalancerIp
        ]
    );
    assert_eq!(shown(&port.cluster), ["10.244.0.1:8080*"]);
    let problems: Vec<String> = update.problems.iter().map(ToString::to_string).collect();
    let of = |kind: &str| problems.iter().filter(|p| p.starts_with(kind)).count();
    assert_eq!(
        (of("Service default/web: "), of("EndpointSlice default/a: ")),
        (6, 5),
        "{problems:#?}"
    );
}

#[test]
fn affinity_has_a_timeout() {
    for (spec, wanted) in [
        (json!({"sessionAffinity": "None"}), None),
        (json!({"sessionAffinity": "ClientIP"}), Some(10_800)),
        (
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}),
            Some(5),
        ),
        (
            json!({"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}),
            None,
        ),
    ] {
        assert_eq!(
            web(&index(&[service(spec.clone())])).affinity,
            wanted,
            "{spec}"
        );
    }
}
