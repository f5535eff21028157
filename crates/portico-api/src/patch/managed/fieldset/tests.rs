use super::*;
use proptest::prelude::*;
use serde_json::json;

fn set(json: &Value) -> Set<'_> {
    Set::from_json(json).unwrap()
}

#[test]
fn fields_v1_reads_and_writes() {
    let json = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {".": {}, "v:\"a/b\"": {}}},
        "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "i:0": {}},
    });
    assert_eq!(set(&json).to_json(), json);
    assert_eq!(
        set(&json)
            .paths()
            .iter()
            .map(|path| display(path))
            .collect::<Vec<_>>(),
        [
            ".metadata.finalizers",
            ".metadata.finalizers[=\"a/b\"]",
            ".metadata.labels",
            ".metadata.labels.app",
            ".spec.ports[port=80,protocol=\"TCP\"]",
            ".spec.ports[port=80,protocol=\"TCP\"].port",
            ".spec[0]",
        ]
    );
}

#[test]
fn keys_are_canonical() {
    let (a, b) = (
        json!({"k:{\"protocol\": \"TCP\", \"port\":80}": {}}),
        json!({"k:{\"port\":80,\"protocol\":\"TCP\"}": {}}),
    );
    assert_eq!(set(&a), set(&b));
    assert_eq!(set(&a).to_json(), b);
}

#[test]
fn unknown_steps_are_dropped_and_malformed_ones_refused() {
    assert!(set(&json!({"x:new": {"f:a": {}}})).is_empty());
    for json in [
        json!([]),
        json!({"f": {}}),
        json!({"noprefix": {}}),
        json!({"v:{": {}}),
        json!({"k:[1]": {}}),
        json!({"f:a": 1}),
    ] {
        assert!(Set::from_json(&json).is_none(), "{json}");
    }
}

#[test]
fn sets_combine() {
    let a = json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {"f:e": {}}});
    let b = json!({"f:b": {}, "f:d": {"f:e": {}, "f:f": {}}, "f:z": {}});
    let (a, b) = (set(&a), set(&b));
    let union =
        json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {"f:e": {}, "f:f": {}}, "f:z": {}});
    assert_eq!(a.clone().union(b.clone()).to_json(), union);
    assert_eq!(
        a.clone().difference(&b).to_json(),
        json!({"f:a": {}, "f:b": {"f:c": {}}})
    );
    assert_eq!(
        b.clone().difference(&a).to_json(),
        json!({"f:d": {"f:f": {}}, "f:z": {}})
    );
    assert_eq!(
        a.clone().intersection(&b).to_json(),
        json!({"f:b": {}, "f:d": {"f:e": {}}})
    );
    assert!(a.has(&[Element::field("b"), Element::field("c")]));
    assert!(!a.has(&[Element::field("d")]) && !a.has(&[]));
    assert_eq!(a.without(&["b", "d"]).to_json(), json!({"f:a": {}}));
}

fn element() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-d]".prop_map(|name| format!("f:{name}")),
        (0..3u16).prop_map(|port| format!("k:{{\"port\":{port}}}")),
        "[xy]".prop_map(|text| format!("v:\"{text}\"")),
    ]
}

fn fields() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(4, 40, 4, |inner| {
        (
            prop::collection::btree_map(element(), inner, 1..4),
            any::<bool>(),
        )
            .prop_map(|(map, dot)| {
                let dot = dot.then(|| (".".to_owned(), json!({})));
                Value::Object(map.into_iter().chain(dot).collect())
            })
    })
    .prop_map(|mut value| {
        // At the top a dot means nothing.
        crate::object::map(&mut value).remove(".");
        value
    })
}

proptest! {
    #[test]
    fn fields_v1_round_trips(json in fields()) {
        prop_assert_eq!(set(&json).to_json(), json);
    }

    #[test]
    fn sets_obey_the_laws(a in fields(), b in fields()) {
        let (a, b) = (set(&a), set(&b));
        let union = a.clone().union(b.clone());
        prop_assert_eq!(&union, &b.clone().union(a.clone()));
        prop_assert_eq!(&a.clone().difference(&b).union(a.clone().intersection(&b)), &a);
        prop_assert_eq!(&union.clone().difference(&b), &a.clone().difference(&b));
        for path in a.paths() {
            prop_assert!(union.has(&path));
            prop_assert_eq!(a.clone().intersection(&b).has(&path), b.has(&path));
        }
    }
}
