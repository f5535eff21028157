use super::*;
use crate::schema::schema;
use proptest::prelude::*;
use serde_json::{Value, json};

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec})
}

fn conformed(ty: &str, value: Value) -> Value {
    conform(schema(), ty, value).unwrap().0
}

fn complaint(ty: &str, value: Value) -> String {
    conform(schema(), ty, value).unwrap_err().to_string()
}

#[test]
fn a_service_gets_what_go_always_writes_and_loses_zero_values() {
    let spec = json!({"clusterIP": "", "ports": [{"port": 80, "nodePort": 0, "name": null}], "selector": {},
        "allocateLoadBalancerNodePorts": false, "type": null, "publishNotReadyAddresses": false});
    assert_eq!(
        conformed("Service", service(spec)),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"ports": [{"port": 80, "targetPort": 0}], "allocateLoadBalancerNodePorts": false},
            "status": {"loadBalancer": {}}})
    );
    assert_eq!(
        conformed("Service", Value::Null),
        json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}})
    );
}

#[test]
fn lists_without_omitempty_are_null_when_empty() {
    let slice = conformed(
        "EndpointSlice",
        json!({"addressType": "IPv4", "endpoints": []}),
    );
    assert_eq!(
        slice,
        json!({"metadata": {}, "addressType": "IPv4", "endpoints": null, "ports": null})
    );
    let event = conformed("Event", json!({}));
    assert_eq!(event["eventTime"], Value::Null);
    assert_eq!(event["source"], json!({}));
}

#[test]
fn null_items_are_zero_values() {
    let value = conformed(
        "ServiceSpec",
        json!({"externalIPs": [null], "ports": [null], "selector": {"a": null}}),
    );
    assert_eq!(
        value,
        json!({"externalIPs": [""], "ports": [{"port": 0, "targetPort": 0}], "selector": {"a": ""}})
    );
}

#[test]
fn unknown_fields_are_named_and_dropped() {
    let spec = json!({"nodeport": 1, "ClusterIP": "x", "ports": [{"port": 1}, {"port": 2, "foo": {}}], "hostPort": 1});
    let (value, unknown) = conform(schema(), "Service", service(spec)).unwrap();
    assert_eq!(
        unknown,
        [
            "spec.ClusterIP",
            "spec.hostPort",
            "spec.nodeport",
            "spec.ports[1].foo"
        ]
    );
    assert_eq!(
        value["spec"],
        json!({"ports": [{"port": 1, "targetPort": 0}, {"port": 2, "targetPort": 0}]})
    );
    let problems = strict_problems(&unknown, &["spec.type".into()]);
    assert!(
        strict_error(&problems)
            .unwrap()
            .ends_with("unknown field \"spec.ports[1].foo\", duplicate field \"spec.type\"")
    );
    assert_eq!(strict_error(&[]), None);
}

#[test]
fn the_old_words_are_known_in_both_places() {
    let spec = json!({"visibility": "public", "portalIP": "10.0.0.1", "publicIPs": ["1.2.3.4"],
        "createExternalLoadBalancer": false, "ports": [{"port": 80, "hostPort": 30080}]});
    for ty in ["Service", "PorticoService"] {
        let mut body = service(spec.clone());
        body["status"] = json!({"publicIPs": ["1.2.3.4"]});
        let (value, unknown) = conform(schema(), ty, body).unwrap();
        assert!(unknown.is_empty(), "{ty}: {unknown:?}");
        assert_eq!(value["spec"]["ports"][0]["hostPort"], 30080);
        assert_eq!(value["spec"]["createExternalLoadBalancer"], false);
        assert_eq!(value["status"]["publicIPs"][0], "1.2.3.4");
    }
}

#[test]
fn wrong_types_are_refused_in_gos_words() {
    let cases = [
        (
            json!({"ports": [{"port": "80"}]}),
            "string into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (
            json!({"ports": {"port": 80}}),
            "object into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort",
        ),
        (
            json!({"ports": [{"port": 4294967296u64}]}),
            "number 4294967296 into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (
            json!({"ports": [{"port": 80.5}]}),
            "number 80.5 into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (
            json!({"ports": [{"targetPort": true}]}),
            "bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            json!({"selector": {"a": 1}}),
            "number into Go struct field ServiceSpec.spec.selector of type string",
        ),
        (
            json!([]),
            "array into Go struct field Service.spec of type v1.ServiceSpec",
        ),
    ];
    for (spec, message) in cases {
        assert_eq!(
            complaint("Service", service(spec)),
            format!("json: cannot unmarshal {message}")
        );
    }
    assert_eq!(
        complaint("Service", json!([])),
        "json: cannot unmarshal array into Go value of type v1.Service"
    );
}

#[test]
fn everyday_objects_have_no_unknown_fields_and_keep_what_they_say() {
    let objects = [
        (
            "Service",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "finalizers": ["x/y"], "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "targetPort": "http", "appProtocol": ""}], "selector": {"app": "web"},
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "allocateLoadBalancerHCNodePort": false,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}]}}}),
        ),
        (
            "EndpointSlice",
            json!({"addressType": "IPv4", "ports": [{"name": "", "port": 80, "protocol": "TCP"}], "metadata": {"name": "s"},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": false}, "zone": "z", "hints": {"forZones": [{"name": "z"}]}}]}),
        ),
        (
            "Endpoints",
            json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        ),
        (
            "Pod",
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "100m"}}, "envFrom": [{"configMapRef": {"name": "m"}}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}],
            "volumes": [{"name": "v", "configMap": {"name": "m"}}]}, "status": {"phase": "Running"}}),
        ),
        (
            "ClusterRole",
            json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["services"]}]}),
        ),
        (
            "Lease",
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "", "renewTime": "2026-01-31T12:00:00.000000Z"}}),
        ),
    ];
    for (ty, object) in objects {
        let (value, unknown) = conform(schema(), ty, object.clone()).unwrap();
        assert!(unknown.is_empty(), "{ty}: {unknown:?}");
        contains(&value, &object, ty);
    }
}

/// All of `part` is in `whole`.
fn contains(whole: &Value, part: &Value, path: &str) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, value) in part {
                contains(
                    whole.get(key).unwrap_or(&Value::Null),
                    value,
                    &format!("{path}.{key}"),
                );
            }
        }
        (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => {
            whole
                .iter()
                .zip(part)
                .for_each(|(whole, part)| contains(whole, part, path));
        }
        _ => assert_eq!(whole, part, "{path}"),
    }
}

#[test]
fn times_are_normalised() {
    let time = |text: &str| {
        conformed("ObjectMeta", json!({"creationTimestamp": text}))["creationTimestamp"].clone()
    };
    assert_eq!(time("2026-01-31T12:00:00.75+02:00"), "2026-01-31T10:00:00Z");
    assert_eq!(time("2000-02-29T23:59:59-01:00"), "2000-03-01T00:59:59Z");
    assert_eq!(time("0001-01-01T00:00:00Z"), Value::Null);
    let micro = |text: &str| conform(schema(), "LeaseSpec", json!({"renewTime": text}));
    assert_eq!(
        micro("2026-01-31T12:00:00.000001+02:00").unwrap().0["renewTime"],
        "2026-01-31T10:00:00.000001Z"
    );
    for bad in [
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.123Z",
        "2026-01-31T12:00:00.1234567Z",
        "x",
        "",
    ] {
        assert!(micro(bad).is_err(), "{bad}");
    }
    for bad in [
        "2026-02-29T00:00:00Z",
        "2026-1-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01",
        "2026-01-01T00:00:00.Z",
        "2026-01-01 00:00:00Z",
        "9999-12-31T23:59:59-01:00",
        "2026-01-01T00:00:00+1:00",
    ] {
        assert!(
            conform(schema(), "ObjectMeta", json!({"creationTimestamp": bad})).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn quantities_take_their_canonical_form() {
    let cases = [
        ("1", "1"),
        ("0", "0"),
        ("0Mi", "0"),
        ("-0", "0"),
        ("1000", "1k"),
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("0.1Ki", "102400m"),
        ("1e3", "1e3"),
        ("12e4", "120e3"),
        ("100e-3", "100e-3"),
        ("1E", "1E"),
        ("1000E", "1000E"),
        ("0.0000000001", "1n"),
        ("1e-999999999", "1e-9"),
        ("+5", "5"),
        ("-1500m", "-1500m"),
        ("-2000m", "-2"),
        ("1023Ki", "1023Ki"),
        ("512", "512"),
        ("16Ei", "9223372036854775807"),
        ("100m", "100m"),
        (".5", "500m"),
        ("1.", "1"),
        ("1500M", "1500M"),
        ("1e1000000000", "10e999999999"),
    ];
    for (text, canonical) in cases {
        let value = conformed("NodeStatus", json!({"capacity": {"cpu": text}}));
        assert_eq!(value["capacity"]["cpu"], canonical, "{text}");
    }
    for bad in [
        "",
        "x",
        "1.2.3",
        "1Kii",
        "1 Gi",
        "--1",
        "1e",
        "1mi",
        "e3",
        "1e99999999999",
    ] {
        assert!(
            conform(schema(), "NodeStatus", json!({"capacity": {"cpu": bad}})).is_err(),
            "{bad:?}"
        );
    }
    assert_eq!(
        conformed("NodeStatus", json!({"capacity": {"cpu": 2}}))["capacity"]["cpu"],
        "2"
    );
}

#[test]
fn bytes_are_base64() {
    let secret = |text: &str| conform(schema(), "Secret", json!({"data": {"a": text}}));
    assert_eq!(secret("YW\nJj").unwrap().0["data"]["a"], "YWJj");
    assert_eq!(secret("").unwrap().0["data"]["a"], "");
    assert_eq!(
        secret("YWJ").unwrap_err().to_string(),
        "illegal base64 data at input byte 3"
    );
    assert!(secret("a*b=").is_err());
}

#[test]
fn duplicates_are_found_and_the_last_counts() {
    let text = br#"{"a":1,"b":[{"c":1,"c":2,"c":3}],"a":2,"d":{"x":1},"d":{"y":2}}"#;
    let (value, duplicates) = json::parse(text).unwrap();
    assert_eq!(
        value,
        json!({"a": 2, "b": [{"c": 3}], "d": {"x": 1, "y": 2}})
    );
    assert_eq!(duplicates, ["b[0].c", "a", "d"]);
}

#[test]
fn what_is_not_json_is_refused() {
    assert_eq!(
        json::parse(b"").unwrap_err().to_string(),
        "unexpected end of JSON input"
    );
    assert_eq!(
        json::parse(b"{\"a\":").unwrap_err().to_string(),
        "unexpected end of JSON input"
    );
    assert!(json::parse(b"{} {}").is_err());
    assert!(json::parse(b"{'a':1}").is_err());
    assert!(json::parse(&[b"[".repeat(200), b"]".repeat(200)].concat()).is_err());
    assert!(json::parse(&[b"[".repeat(64), b"]".repeat(64)].concat()).is_ok());
    assert!(json::parse(&[b"[".repeat(65), b"]".repeat(65)].concat()).is_err());
    assert!(json::parse(b"{\"a\":\"\xff\"}").is_err());
}

#[test]
fn the_stored_form_takes_splices() {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "b"},
        "metadata": {"name": "x", "resourceVersion": "3"}});
    let bytes = stored::store(&object);
    assert_eq!(bytes, br#"{"metadata":{"name":"x"},"data":{"a":"b"}}"#);
    assert_eq!(
        stored::load(&bytes, 7).unwrap(),
        json!({"metadata": {"name": "x", "resourceVersion": "7"}, "data": {"a": "b"}})
    );
    let mut out = b"[".to_vec();
    stored::render(&bytes, 7, Some(("v1", "ConfigMap")), &mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"[{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"x"},"data":{"a":"b"}}"#
    );
    let mut out = Vec::new();
    stored::render(&stored::store(&json!({})), 1, None, &mut out).unwrap();
    assert_eq!(out, br#"{"metadata":{"resourceVersion":"1"}}"#);
    assert!(stored::render(b"{}", 1, None, &mut Vec::new()).is_err());
    assert!(stored::load(b"{}", 1).is_err());
}

/// Any JSON, with names and words that the schema knows mixed in.
fn any_json() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "ports",
        "port",
        "name",
        "items",
        "clusterIP",
        "containers",
        "resources",
        "limits",
        "creationTimestamp",
        "80",
        "1Gi",
        "2026-01-01T00:00:00Z",
        "YQ==",
        "",
    ]);
    let word = words.prop_map(str::to_owned).boxed();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn conform_never_panics_and_is_idempotent(value in any_json()) {
        for ty in ["Service", "Pod", "EndpointSlice", "Event", "PorticoService", "Secret"] {
            if let Ok((once, _)) = conform(schema(), ty, value.clone()) {
                let (twice, unknown) = conform(schema(), ty, once.clone()).unwrap();
                prop_assert!(unknown.is_empty());
                prop_assert_eq!(once, twice);
            }
        }
    }

    #[test]
    fn parsing_agrees_with_serde(value in any_json()) {
        let text = value.to_string();
        let same: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(json::parse(text.as_bytes()).unwrap(), (same, Vec::new()));
    }

    #[test]
    fn random_text_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "[-+0-9.eEinumkKMGTP:TZ]{0,30}") {
        let _ = json::parse(&bytes);
        let _ = quantity::canonical(&text);
        let _ = time::Moment::parse(&text);
    }

    #[test]
    fn quantities_are_stable(text in "[-+]?[0-9]{1,20}(\\.[0-9]{0,12})?(Ki|Mi|Gi|Ei|n|u|m|k|M|G|E|e-?[0-9]{1,2})?") {
        if let Ok(once) = quantity::canonical(&text) {
            prop_assert_eq!(quantity::canonical(&once).unwrap(), once);
        }
    }

    #[test]
    fn times_round_trip(seconds in -62_167_219_200i64..=253_402_300_799, micros in 0u32..1_000_000) {
        let moment = time::Moment { seconds, nanos: micros * 1000 };
        prop_assert_eq!(time::Moment::parse_micro(&moment.to_micros()), Some(moment));
        prop_assert_eq!(time::Moment::parse(&moment.to_seconds()), Some(time::Moment { seconds, nanos: 0 }));
    }

    #[test]
    fn stored_objects_come_back(value in any_json(), revision in 1u64..) {
        let mut object = conform(schema(), "Pod", json!({"metadata": {"name": "p"}})).unwrap().0;
        object["spec"] = value;
        let bytes = stored::store(&object);
        let mut out = Vec::new();
        stored::render(&bytes, revision, Some(("v1", "Pod")), &mut out).unwrap();
        let mut loaded = stored::load(&bytes, revision).unwrap();
        loaded["kind"] = "Pod".into();
        loaded["apiVersion"] = "v1".into();
        prop_assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), loaded);
    }
}

#[test]
fn half_a_surrogate_pair_is_replaced() {
    for (text, want) in [
        (r#""\ud83d\ude00""#, "\u{1f600}"),
        (r#""\ud800""#, "\u{fffd}"),
        (r#""\uDFFF x""#, "\u{fffd} x"),
        (r#""\ud800\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
        (r#""\ud800\n\u0041""#, "\u{fffd}\nA"),
        (r#""\\ud800""#, r"\ud800"),
        (r#""\\\ud800""#, "\\\u{fffd}"),
    ] {
        assert_eq!(json::parse(text.as_bytes()).unwrap().0, want, "{text}");
    }
    assert!(json::parse(br#""\ud80""#).is_err());
}

#[test]
fn numbers_without_a_fraction_are_whole() {
    for (number, want) in [
        ("80.0", "80"),
        ("8e1", "80"),
        ("-0.0", "0"),
        ("80.5", "80.5"),
        ("1e300", "1e300"),
        ("80", "80"),
    ] {
        let mut value: Value = serde_json::from_str(&format!(r#"{{"a": [{number}]}}"#)).unwrap();
        json::whole_numbers(&mut value);
        let want: Value = serde_json::from_str(want).unwrap();
        assert_eq!(value["a"][0], want, "{number}");
    }
}
