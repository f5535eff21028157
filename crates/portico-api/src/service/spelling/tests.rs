use super::*;
use proptest::prelude::*;

fn core(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec})
}

fn folded(mut object: Value, old: Option<&Value>) -> Value {
    let errors = to_core(&mut object, old);
    assert!(errors.is_empty(), "{errors:?}");
    object["spec"].clone()
}

fn fields(mut object: Value, old: Option<&Value>) -> Vec<String> {
    to_core(&mut object, old)
        .into_iter()
        .map(|error| format!("{} {}", error.field, error.problem.reason()))
        .collect()
}

#[test]
fn words_become_core_fields() {
    for (words, want) in [
        (
            json!({"visibility": "cluster"}),
            json!({"type": "ClusterIP"}),
        ),
        (json!({"visibility": "public"}), json!({"type": "NodePort"})),
        (
            json!({"visibility": "loadbalancer"}),
            json!({"type": "LoadBalancer"}),
        ),
        (
            json!({"visibility": "public", "type": "NodePort"}),
            json!({"type": "NodePort"}),
        ),
        (
            json!({"createExternalLoadBalancer": true}),
            json!({"type": "LoadBalancer"}),
        ),
        (
            json!({"createExternalLoadBalancer": false}),
            json!({"type": "ClusterIP"}),
        ),
        (
            json!({"createExternalLoadBalancer": false, "visibility": "public"}),
            json!({"type": "NodePort"}),
        ),
        (
            json!({"createExternalLoadBalancer": true, "type": "LoadBalancer"}),
            json!({"type": "LoadBalancer"}),
        ),
        (
            json!({"portalIP": "10.0.0.1"}),
            json!({"clusterIP": "10.0.0.1"}),
        ),
        (
            json!({"portalIP": "None", "clusterIP": "None"}),
            json!({"clusterIP": "None"}),
        ),
        (
            json!({"publicIPs": ["1.2.3.4"]}),
            json!({"externalIPs": ["1.2.3.4"]}),
        ),
        (
            json!({"visibility": "public", "ports": [{"port": 80, "hostPort": 30080}, {"port": 81, "hostPort": 0}]}),
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}]}),
        ),
        (
            json!({"visibility": "cluster", "ports": [{"port": 80, "hostPort": 0}]}),
            json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
        ),
        (
            json!({"visibility": "namespace", "ports": [{"port": 80, "hostPort": 0}]}),
            json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
        ),
        (json!({"visibility": "dmz"}), json!({"type": "ClusterIP"})),
    ] {
        assert_eq!(folded(core(words.clone()), None), want, "{words}");
    }
}

#[test]
fn disagreements_name_both_fields() {
    for (words, field, other) in [
        (
            json!({"visibility": "public", "type": "ClusterIP"}),
            "spec.visibility",
            "spec.type",
        ),
        (
            json!({"visibility": "public", "createExternalLoadBalancer": true}),
            "spec.createExternalLoadBalancer",
            "spec.visibility",
        ),
        (
            json!({"visibility": "loadbalancer", "createExternalLoadBalancer": false}),
            "spec.createExternalLoadBalancer",
            "spec.visibility",
        ),
        (
            json!({"type": "LoadBalancer", "createExternalLoadBalancer": false}),
            "spec.createExternalLoadBalancer",
            "spec.type",
        ),
        (
            json!({"portalIP": "10.0.0.1", "clusterIP": "10.0.0.2"}),
            "spec.portalIP",
            "spec.clusterIP",
        ),
        (
            json!({"publicIPs": ["1.1.1.1"], "externalIPs": ["1.1.1.2"]}),
            "spec.publicIPs",
            "spec.externalIPs",
        ),
        (
            json!({"ports": [{"port": 80, "hostPort": 30001, "nodePort": 30002}]}),
            "spec.ports[0].hostPort",
            "spec.ports[0].nodePort",
        ),
        (
            json!({"visibility": "cluster", "ports": [{"port": 80, "hostPort": 30001}]}),
            "spec.ports[0].hostPort",
            "visibility",
        ),
    ] {
        let mut object = core(words.clone());
        let errors = to_core(&mut object, None);
        let [error] = errors.as_slice() else {
            panic!("{words}: {errors:?}")
        };
        assert_eq!(
            (error.field.as_str(), error.problem.reason()),
            (field, "FieldValueInvalid"),
            "{words}"
        );
        assert!(error.message.contains(other), "{error}");
    }
}

#[test]
fn other_words_for_visibility_are_refused_with_those_that_there_are() {
    let mut object = core(json!({"visibility": "world"}));
    let errors = to_core(&mut object, None);
    assert_eq!(
        (errors[0].field.as_str(), errors[0].problem.reason()),
        ("spec.visibility", "FieldValueNotSupported")
    );
    let known = r#""cluster", "dmz", "loadbalancer", "namespace", "public""#;
    assert!(errors[0].message.contains(known), "{}", errors[0]);
}

fn narrowed(spec: Value, annotation: Option<&str>) -> Value {
    let mut object = core(spec);
    if let Some(word) = annotation {
        object["metadata"]["annotations"] = json!({VISIBILITY: word, "other": "stays"});
    }
    object
}

/// The words of a request, what is stored, and the annotation that is to be stored then.
#[test]
fn narrow_words_become_an_annotation() {
    let dmz = || Some("dmz");
    for (word, given, stored, want) in [
        (Some("namespace"), None, None, Ok(Some("namespace"))),
        (Some("dmz"), Some("dmz"), None, Ok(Some("dmz"))),
        (None, Some("dmz"), None, Ok(Some("dmz"))),
        (Some("cluster"), None, None, Ok(None)),
        // The stored object was patched: what was changed counts.
        (Some("namespace"), dmz(), dmz(), Ok(Some("namespace"))),
        (Some("cluster"), dmz(), dmz(), Ok(None)),
        (Some("dmz"), Some("namespace"), dmz(), Ok(Some("namespace"))),
        // A view was read and written back, which does not show the annotation.
        (Some("dmz"), None, dmz(), Ok(Some("dmz"))),
        (Some("namespace"), None, dmz(), Ok(Some("namespace"))),
        (Some("public"), None, dmz(), Ok(None)),
        (Some("cluster"), dmz(), None, Err("spec.visibility")),
        (Some("namespace"), dmz(), None, Err("spec.visibility")),
    ] {
        let spec = word.map_or(json!({}), |word| json!({"visibility": word}));
        let mut object = narrowed(spec, given);
        let old = stored.map(|word| narrowed(json!({"type": "ClusterIP"}), Some(word)));
        let errors = to_core(&mut object, old.as_ref());
        let about = format!("{word:?} and {given:?} on {stored:?}: {errors:?}");
        match want {
            Err(field) => assert_eq!(errors[0].field, field, "{about}"),
            Ok(want) => {
                assert!(errors.is_empty(), "{about}");
                assert_eq!(annotation(&object), want, "{about}");
                assert_eq!(object["spec"].get("visibility"), None, "{about}");
            }
        }
        if given.is_some() {
            assert_eq!(object["metadata"]["annotations"]["other"], "stays");
        }
    }
}

#[test]
fn a_narrow_service_is_shown_by_its_word_alone() {
    let stored = narrowed(json!({"type": "ClusterIP"}), Some("dmz"));
    let view = to_portico(&stored);
    assert_eq!(view["spec"]["visibility"], "dmz");
    assert_eq!(view["metadata"]["annotations"], json!({"other": "stays"}));
    let mut back = view;
    assert!(from_portico(&mut back, Some(&stored)).is_empty());
    assert_eq!(back, stored);
    // Where the annotation says nothing that can be, it stays in sight.
    let wrong = narrowed(json!({"type": "NodePort"}), Some("dmz"));
    let view = to_portico(&wrong);
    assert_eq!(view["spec"]["visibility"], "public");
    assert_eq!(annotation(&view), Some("dmz"));
}

#[test]
fn a_narrow_word_that_is_removed_takes_the_annotation_with_it() {
    let mut patch = json!({"spec": {"visibility": null}});
    removals_to_core(&mut patch);
    assert_eq!(
        patch,
        json!({"metadata": {"annotations": {VISIBILITY: null}}, "spec": {"type": null}})
    );
    let mut patch =
        json!({"metadata": {"annotations": {VISIBILITY: "dmz"}}, "spec": {"visibility": null}});
    removals_to_core(&mut patch);
    assert_eq!(patch["metadata"]["annotations"], json!({VISIBILITY: "dmz"}));
}

#[test]
fn in_a_patch_the_word_that_was_changed_counts() {
    let old = core(
        json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 30001}]}),
    );
    for (body, want) in [
        (
            json!({"type": "ClusterIP", "visibility": "public"}),
            json!({"type": "NodePort"}),
        ),
        (
            json!({"type": "NodePort", "visibility": "cluster"}),
            json!({"type": "NodePort"}),
        ),
        (
            json!({"type": "ClusterIP", "createExternalLoadBalancer": true}),
            json!({"type": "LoadBalancer"}),
        ),
        (
            json!({"ports": [{"port": 80, "nodePort": 30001, "hostPort": 30002}]}),
            json!({"ports": [{"port": 80, "nodePort": 30002}]}),
        ),
    ] {
        assert_eq!(folded(core(body.clone()), Some(&old)), want, "{body}");
    }
    let both = json!({"type": "NodePort", "visibility": "loadbalancer"});
    assert_eq!(
        fields(core(both), Some(&old)),
        ["spec.visibility FieldValueInvalid"]
    );
}

fn balancer(ingress: Value, external_ips: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"type": "LoadBalancer", "externalIPs": external_ips}, "status": {"loadBalancer": {"ingress": ingress}}})
}

#[test]
fn public_ips_are_copied_from_status_to_spec_if_set_and_from_spec_to_status_if_not() {
    let view = to_portico(&balancer(
        json!([{"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "lb.example.com"}]),
        json!(["9.9.9.9"]),
    ));
    assert_eq!(
        view["spec"]["publicIPs"],
        json!(["1.2.3.4", "lb.example.com"])
    );
    assert_eq!(
        view["status"]["publicIPs"],
        json!(["1.2.3.4", "lb.example.com"])
    );
    let view = to_portico(&balancer(json!([]), json!(["9.9.9.9"])));
    assert_eq!(view["spec"]["publicIPs"], json!(["9.9.9.9"]));
    assert_eq!(view["status"]["publicIPs"], json!(["9.9.9.9"]));
}

#[test]
fn a_status_write_with_public_ips_sets_the_ingress() {
    let old = balancer(json!([{"ip": "1.2.3.4", "ipMode": "Proxy"}]), json!([]));
    for (status, want) in [
        (
            json!({"publicIPs": ["1.2.3.5"]}),
            json!([{"ip": "1.2.3.5", "ipMode": "VIP"}]),
        ),
        (
            json!({"publicIPs": ["mylb.amazonaws.com"]}),
            json!([{"hostname": "mylb.amazonaws.com"}]),
        ),
        // What is known of a point stays.
        (
            json!({"publicIPs": ["1.2.3.4", "1.2.3.5"]}),
            json!([{"ip": "1.2.3.4", "ipMode": "Proxy"}, {"ip": "1.2.3.5", "ipMode": "VIP"}]),
        ),
        // The view shows both; the changed one counts.
        (
            json!({"publicIPs": ["1.2.3.5"], "loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "Proxy"}]}}),
            json!([{"ip": "1.2.3.5", "ipMode": "VIP"}]),
        ),
        (
            json!({"publicIPs": ["1.2.3.4"], "loadBalancer": {"ingress": [{"ip": "1.2.3.6", "ipMode": "VIP"}]}}),
            json!([{"ip": "1.2.3.6", "ipMode": "VIP"}]),
        ),
    ] {
        let mut object = json!({"metadata": {"name": "a"}, "status": status});
        assert!(from_portico(&mut object, Some(&old)).is_empty(), "{status}");
        assert_eq!(
            object["status"],
            json!({"loadBalancer": {"ingress": want}}),
            "{status}"
        );
    }
    let mut object = json!({"status": {"publicIPs": ["1.2.3.8"], "loadBalancer": {"ingress": [{"ip": "1.2.3.9"}]}}});
    assert_eq!(
        to_core(&mut object, Some(&old))[0].field,
        "status.publicIPs"
    );
}

#[test]
fn a_view_that_was_read_can_be_edited() {
    let old = balancer(
        json!([{"ip": "1.2.3.4", "ipMode": "VIP"}]),
        json!(["9.9.9.9"]),
    );
    let mut view = to_portico(&old);
    view["spec"]["visibility"] = json!("public");
    assert!(from_portico(&mut view, Some(&old)).is_empty());
    assert_eq!(
        view["spec"],
        json!({"type": "NodePort", "externalIPs": ["9.9.9.9"]})
    );
    // A host port of the time before goes with its visibility.
    let public = core(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]}));
    let mut view = to_portico(&public);
    view["spec"]["visibility"] = json!("cluster");
    assert!(from_portico(&mut view, Some(&public)).is_empty());
    assert_eq!(view["spec"]["type"], json!("ClusterIP"));
    // The copy in the spec is known as such even when the status was left out.
    let mut view = to_portico(&old);
    view.as_object_mut().unwrap().remove("status");
    assert!(from_portico(&mut view, Some(&old)).is_empty());
    assert_eq!(view["spec"], old["spec"]);
}

#[test]
fn a_name_alone_is_an_external_name() {
    let mut view =
        json!({"apiVersion": "portico.dev/v1", "spec": {"externalName": "e.example.com"}});
    assert!(from_portico(&mut view, None).is_empty());
    assert_eq!(
        view,
        json!({"apiVersion": "v1", "spec": {"externalName": "e.example.com", "type": "ExternalName"}})
    );
}

fn some(values: Vec<Value>) -> impl Strategy<Value = Value> {
    prop::sample::select(values)
}

/// A stored Service: null is a field that is not there.
fn stored_service() -> impl Strategy<Value = Value> {
    let ips = || {
        some(vec![
            json!(null),
            json!(["1.2.3.4"]),
            json!(["1.2.3.4", "lb.example.com"]),
            json!(["1.2.3.5"]),
        ])
    };
    let point = some(vec![
        json!({"ip": "1.2.3.4", "ipMode": "VIP"}),
        json!({"ip": "1.2.3.5", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP"}]}),
        json!({"ip": "1.2.3.6"}),
        json!({"hostname": "lb.example.com"}),
        json!({"ip": "1.2.3.7", "ipMode": "VIP", "hostname": "lb.example.com"}),
        json!({}),
    ]);
    let port = some(vec![
        json!({"port": 80, "targetPort": 80}),
        json!({"port": 81, "targetPort": "x", "nodePort": 30001}),
    ]);
    (
        some(
            ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]
                .map(Value::from)
                .to_vec(),
        ),
        some(vec![json!(null), json!("10.0.0.1"), json!("None")]),
        ips(),
        prop::collection::vec(point, 0..3),
        prop::collection::vec(port, 0..3),
    )
        .prop_map(|(type_, cluster_ip, external_ips, ingress, ports)| {
            let mut service = core(json!({"type": type_, "sessionAffinity": "None"}));
            let alias = if type_ == "ExternalName" {
                json!("e.example.com")
            } else {
                json!(null)
            };
            let fields = [
                ("clusterIP", cluster_ip),
                ("externalIPs", external_ips),
                ("externalName", alias),
            ];
            for (key, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
                service["spec"][key] = value;
            }
            if !ports.is_empty() {
                service["spec"]["ports"] = json!(ports);
            }
            for port in service["spec"]["ports"]
                .as_array_mut()
                .into_iter()
                .flatten()
                .filter(|_| type_ == "ClusterIP")
            {
                object::map(port).remove("nodePort");
            }
            service["status"] = json!({"loadBalancer": {}});
            if !ingress.is_empty() {
                service["status"]["loadBalancer"]["ingress"] = json!(ingress);
            }
            service
        })
}

proptest! {
    #[test]
    fn reading_the_view_and_writing_it_back_changes_nothing(service in stored_service()) {
        for old in [None, Some(&service)] {
            let mut view = to_portico(&service);
            prop_assert!(from_portico(&mut view, old).is_empty());
            prop_assert_eq!(&view, &service);
            let mut same = service.clone();
            prop_assert!(to_core(&mut same, old).is_empty());
            prop_assert_eq!(&same, &service);
        }
    }

    #[test]
    fn no_other_word_is_left_in_core(service in stored_service(), other in stored_service()) {
        let mut view = to_portico(&service);
        let _ = from_portico(&mut view, Some(&other));
        let text = view.to_string();
        for word in ["visibility", "hostPort", "portalIP", "publicIPs", "createExternalLoadBalancer"] {
            prop_assert!(!text.contains(word), "{}", text);
        }
    }
}

#[test]
fn zeros_stay_where_the_other_word_is_not_used() {
    let spec = json!({"type": "", "clusterIP": "", "externalIPs": [], "ports": [{"port": 80, "nodePort": 0}]});
    assert_eq!(folded(core(spec.clone()), None), spec);
}

/// `kubectl get -o yaml | kubectl apply -f -`, of what was applied by the other words before.
#[test]
fn a_file_that_says_it_by_the_core_field_loses_nothing() {
    let applied = json!({
        "metadata": {"annotations": {VISIBILITY: "namespace"}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.1"],
            "ports": [{"port": 80, "nodePort": 30001}, {"port": 81}]},
    });
    let patch = |applied: &Value| {
        json!({
            "metadata": {"annotations": {LAST_APPLIED: applied.to_string()}},
            "spec": {"visibility": null, "portalIP": null, "publicIPs": null,
                "ports": [{"port": 80, "hostPort": null}, {"port": 81, "hostPort": null}]},
        })
    };
    let mut kept = patch(&applied);
    removals_to_core(&mut kept);
    assert_eq!(
        kept["spec"],
        json!({"ports": [{"port": 80}, {"port": 81, "nodePort": null}]})
    );
    assert_eq!(kept["metadata"]["annotations"].get(VISIBILITY), None);
    // A file that says it in no way removes it, and so does a patch of another kind.
    let nowhere = json!({"spec": {"ports": [{"port": 80}]}});
    for mut patch in [patch(&nowhere), patch(&json!("not a file"))] {
        removals_to_core(&mut patch);
        for field in ["type", "clusterIP", "externalIPs"] {
            assert_eq!(patch["spec"].get(field), Some(&Value::Null), "{field}");
        }
        let ports = &patch["spec"]["ports"];
        assert_eq!(ports[0], json!({"port": 80, "nodePort": null}));
        assert_eq!(patch["metadata"]["annotations"][VISIBILITY], Value::Null);
        assert!(patch["metadata"]["annotations"].get(VISIBILITY).is_some());
    }
}
