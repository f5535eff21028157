//! Tables, warnings, names, selectors.

use super::harness::Server;
use crate::kinds::Kind;
use crate::service::PorticoServiceKind;
use serde_json::{Value, json};

#[test]
fn rows_read_as_kubectl_prints_them() {
    let mut server = Server::dual_stack();
    let ports = json!([{"name": "a", "port": 80, "nodePort": 30001}, {"name": "b", "port": 53, "protocol": "UDP", "nodePort": 30002}]);
    let ip = "10.96.0.9";
    let web = json!({"app": "web", "tier": "1"});
    for (spec, cells) in [
        (
            json!({"clusterIP": ip, "selector": web, "ports": [{"port": 80}]}),
            [
                "ClusterIP",
                ip,
                "<none>",
                "80/TCP",
                "app=web,tier=1",
                "cluster",
            ],
        ),
        (
            json!({"clusterIP": ip, "type": "NodePort", "ports": ports, "externalIPs": ["1.2.3.4", "1.2.3.5"]}),
            [
                "NodePort",
                ip,
                "1.2.3.4,1.2.3.5",
                "80:30001/TCP,53:30002/UDP",
                "<none>",
                "public",
            ],
        ),
        (
            json!({"clusterIP": ip, "type": "LoadBalancer", "ports": ports}),
            [
                "LoadBalancer",
                ip,
                "<pending>",
                "80:30001/TCP,53:30002/UDP",
                "<none>",
                "loadbalancer",
            ],
        ),
        (
            json!({"type": "ExternalName", "externalName": "e.example.com"}),
            [
                "ExternalName",
                "<none>",
                "e.example.com",
                "<none>",
                "<none>",
                "<none>",
            ],
        ),
        (
            json!({"clusterIP": "None"}),
            ["ClusterIP", "None", "<none>", "<none>", "<none>", "cluster"],
        ),
    ] {
        let object = server.put("a", spec).unwrap();
        let row = server.kind().row(&object, 0);
        assert_eq!(row.len(), server.kind().info().columns.len());
        assert_eq!(
            [&row[1], &row[2], &row[3], &row[4], &row[6]].map(|cell| cell.as_str().unwrap()),
            cells[..5]
        );
        let portico = PorticoServiceKind::new(server.kind().clone());
        assert_eq!(portico.row(&object, 0)[1], cells[5]);
        assert_eq!(
            portico
                .selectable_field(&object, "spec.visibility")
                .as_str(),
            cells[5].trim_matches(['<', '>']).replace("none", "")
        );
        assert_eq!(
            server.kind().selectable_field(&object, "spec.type"),
            cells[0]
        );
        server.delete("a");
    }
    let object = server
        .put(
            "b",
            json!({"type": "LoadBalancer", "ports": ports, "externalIPs": ["1.2.3.4"]}),
        )
        .unwrap();
    let object = server
        .report(
            crate::object::name(&object),
            json!([{"ip": "192.0.2.2"}, {"hostname": "a.example.com"}]),
        )
        .unwrap();
    assert_eq!(
        server.kind().row(&object, 0)[3],
        "192.0.2.2,a.example.com,1.2.3.4"
    );
}

#[test]
fn warnings() {
    let mut server = Server::dual_stack();
    let mut of = |spec: Value| {
        let object = server.put("a", spec).unwrap();
        let warnings = server.kind().warnings(&object, None);
        server.delete("a");
        warnings
    };
    assert_eq!(of(json!({"ports": [{"port": 80}]})), Vec::<String>::new());
    assert_eq!(
        of(
            json!({"clusterIP": "None", "sessionAffinity": "ClientIP", "externalIPs": ["1.2.3.4"], "externalName": "x"})
        ),
        [
            "spec.externalIPs is ignored for headless services",
            "spec.SessionAffinity is ignored for headless services",
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ]
    );
    assert_eq!(
        of(
            json!({"ports": [{"port": 80}], "externalIPs": ["2001:DB8::1"], "trafficDistribution": "PreferClose"})
        ),
        [
            "spec.externalIPs[0]: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical \
             format (\"2001:db8::1\")",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ]
    );
}

#[test]
fn names_may_begin_with_a_digit() {
    let server = Server::dual_stack();
    assert!(server.kind().name_problems("1a", false).is_empty());
    assert!(server.kind().name_problems("web-", true).is_empty());
    for bad in ["a.b", "A", "-a", ""] {
        assert!(!server.kind().name_problems(bad, false).is_empty(), "{bad}");
    }
}

/// The examples of the document, through `portico.dev/v1`.
#[test]
fn the_other_spelling_end_to_end() {
    let mut server = Server::dual_stack();
    let object = |name: &str, spec: Value| json!({"apiVersion": "portico.dev/v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let public = server
        .put_portico(object(
            "a",
            json!({"visibility": "public", "ports": [{"port": 80, "hostPort": 30080}]}),
        ))
        .unwrap();
    assert_eq!(public["apiVersion"], "portico.dev/v1");
    assert_eq!(public["spec"]["ports"][0]["hostPort"], 30080);
    assert_eq!(server.store["a"]["spec"]["type"], "NodePort");

    let again = server.put_portico(object(
        "b",
        json!({"visibility": "public", "ports": [{"port": 80, "hostPort": 30080}]}),
    ));
    assert_eq!(
        super::harness::causes(again),
        ["spec.ports[0].hostPort Invalid"]
    );

    server
        .put_portico(object(
            "c",
            json!({"createExternalLoadBalancer": true, "ports": [{"port": 80}]}),
        ))
        .unwrap();
    for (word, point) in [
        ("1.2.3.4", json!({"ip": "1.2.3.4", "ipMode": "VIP"})),
        (
            "mylb.amazonaws.com",
            json!({"hostname": "mylb.amazonaws.com"}),
        ),
    ] {
        let report = json!({"apiVersion": "portico.dev/v1", "kind": "Service", "metadata": {"name": "c"}, "status": {"publicIPs": [word]}});
        let view = server.put_status(true, report).unwrap();
        assert_eq!(
            (&view["status"]["publicIPs"], &view["spec"]["publicIPs"]),
            (&json!([word]), &json!([word]))
        );
        assert_eq!(view["spec"]["visibility"], "loadbalancer");
        assert!(view["spec"]["ports"][0]["hostPort"].is_i64());
        assert_eq!(
            server.get("c")["status"],
            json!({"loadBalancer": {"ingress": [point]}})
        );
    }

    // From public to cluster by reading, changing and writing.
    let mut view = public;
    view["spec"]["visibility"] = json!("cluster");
    let view = server.put_portico(view).unwrap();
    assert!(view["spec"]["ports"][0].get("hostPort").is_none());
}

#[test]
fn a_narrow_service_has_one_way_in() {
    let mut server = Server::dual_stack();
    let ports = json!([{"port": 80}]);
    for (word, spec, problem) in [
        ("namespace", json!({"ports": ports}), None),
        ("dmz", json!({"ports": ports}), None),
        (
            "Namespace",
            json!({"ports": ports}),
            Some("supported values: \"dmz\", \"namespace\""),
        ),
        (
            "dmz",
            json!({"ports": ports, "type": "NodePort"}),
            Some("needs type ClusterIP (visibility cluster), not NodePort"),
        ),
        (
            "namespace",
            json!({"clusterIP": "None"}),
            Some("needs a cluster IP"),
        ),
        (
            "namespace",
            json!({"ports": ports, "externalIPs": ["192.0.2.1"]}),
            Some("may not be set together with externalIPs"),
        ),
    ] {
        let mut object = super::harness::service("a", spec.clone());
        object["metadata"]["annotations"] = json!({"portico.dev/visibility": word});
        let about = format!("{word} {spec}");
        match (server.replace(object), problem) {
            (Ok(object), None) => {
                let portico = PorticoServiceKind::new(server.kind().clone());
                assert_eq!(portico.row(&object, 0)[1], word, "{about}");
                assert_eq!(portico.selectable_field(&object, "spec.visibility"), word);
                assert_eq!(server.kind().row(&object, 0)[1], "ClusterIP", "{about}");
                server.delete("a");
            }
            (Err(error), Some(problem)) => {
                let message = error.to_string();
                assert!(message.contains(problem), "{about}: {message}");
                assert!(
                    message.contains("metadata.annotations[portico.dev/visibility]"),
                    "{message}"
                );
            }
            (answer, _) => panic!("{about}: {answer:?}"),
        }
    }
    // In the other spelling the field is called what the request calls it.
    let mut view = super::harness::service("b", json!({"visibility": "dmz", "portalIP": "None"}));
    view["apiVersion"] = json!("portico.dev/v1");
    let error = server.put_portico(view).unwrap_err().to_string();
    assert!(error.contains("spec.visibility"), "{error}");
}
