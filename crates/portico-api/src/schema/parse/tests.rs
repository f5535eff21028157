use super::*;
use std::collections::BTreeSet;

#[test]
fn every_file_parses_and_no_type_is_defined_twice() {
    let mut names = BTreeSet::new();
    for (file, text) in FILES {
        let (types, problem) = parse(text);
        assert_eq!(problem, None, "{file}.schema");
        assert!(!types.is_empty(), "{file}.schema");
        for ty in types {
            assert!(
                names.insert(ty.name.clone()),
                "{} is defined twice",
                ty.name
            );
        }
    }
}

#[test]
fn every_named_type_is_there() {
    let schema = built_in();
    for ty in schema.types() {
        for field in &ty.fields {
            let mut inner = &field.ty;
            while let Type::List(next) | Type::Map(next) = inner {
                inner = next;
            }
            if let Type::Object(name) = inner {
                assert!(
                    schema.get(name).is_some(),
                    "{}.{} names {name}",
                    ty.name,
                    field.name
                );
            }
            assert!(
                !field.inline || matches!(field.ty, Type::Object(_)),
                "{}.{}",
                ty.name,
                field.name
            );
        }
    }
}

#[test]
fn field_names_and_numbers_are_unique() {
    let schema = built_in();
    for ty in schema.types() {
        let mut numbers = BTreeSet::new();
        let mut names = BTreeSet::new();
        for field in &ty.fields {
            assert!(
                field.number == 0 || numbers.insert(field.number),
                "{}.{}",
                ty.name,
                field.name
            );
            assert!(names.insert(&field.name), "{}.{}", ty.name, field.name);
        }
    }
}

#[test]
fn merge_keys_are_fields_of_the_items() {
    let schema = built_in();
    for ty in schema.types() {
        for field in &ty.fields {
            let Type::List(item) = &field.ty else {
                continue;
            };
            let patch_key = field.patch.as_ref().and_then(|patch| patch.key.clone());
            let list_keys = if let ListKind::Map(keys) = &field.list {
                keys.clone()
            } else {
                Vec::new()
            };
            for key in patch_key.into_iter().chain(list_keys) {
                let Type::Object(name) = item.as_ref() else {
                    panic!("{}.{} has no keys", ty.name, field.name)
                };
                let item = schema.get(name).unwrap();
                assert!(
                    item.field(&schema, &key).is_some(),
                    "{}.{} by {key}",
                    ty.name,
                    field.name
                );
            }
        }
    }
}

#[test]
fn a_service_port_reads_as_written() {
    let schema = built_in();
    let spec = schema.get("ServiceSpec").unwrap();
    let ports = spec.field(&schema, "ports").unwrap();
    assert_eq!(ports.number, 1);
    assert_eq!(
        ports.list,
        ListKind::Map(vec!["port".into(), "protocol".into()])
    );
    assert_eq!(
        ports.patch,
        Some(PatchStrategy {
            key: Some("port".into()),
            retain_keys: false
        })
    );
    assert!(spec.field(&schema, "selector").unwrap().atomic_map);
    assert!(spec.field(&schema, "portalIP").unwrap().spelling);
    let port = schema.get("ServicePort").unwrap();
    assert_eq!(
        port.field(&schema, "protocol").unwrap().default,
        Some("TCP".into())
    );
    assert_eq!(
        port.field(&schema, "port").unwrap().presence,
        Presence::Always
    );
    assert_eq!(
        port.field(&schema, "appProtocol").unwrap().presence,
        Presence::Optional
    );
    assert_eq!(
        port.field(&schema, "nodePort").unwrap().presence,
        Presence::OmitZero
    );
}

#[test]
fn inlined_fields_are_found_and_lists_exist() {
    let schema = built_in();
    assert!(
        schema
            .get("Service")
            .unwrap()
            .field(&schema, "apiVersion")
            .is_some()
    );
    assert!(
        schema
            .get("Volume")
            .unwrap()
            .field(&schema, "emptyDir")
            .is_some()
    );
    let list = schema.get("EndpointSliceList").unwrap();
    assert_eq!(
        list.kind,
        Some((
            "discovery.k8s.io".into(),
            "v1".into(),
            "EndpointSliceList".into()
        ))
    );
    assert_eq!(
        schema.of_kind("events.k8s.io", "v1", "Event").unwrap().name,
        "EventsEvent"
    );
    assert_eq!(
        schema
            .of_kind("portico.dev", "v1", "ServiceList")
            .unwrap()
            .name,
        "PorticoServiceList"
    );
}

#[test]
fn mistakes_name_their_line() {
    let cases = [
        ("type A\n  b x string", "line 2: \"x\" is no number"),
        (
            "type A\n  b 1",
            "line 2: a field needs name, number and type: \"b 1\"",
        ),
        ("type A\n\n  b 1 strin", "line 3: unknown type \"strin\""),
        ("type A\n  b 1 string loud", "line 2: unknown flag \"loud\""),
        ("  b 1 string", "line 1: a field outside a type"),
        ("struct A", "line 1: cannot read \"struct A\""),
        ("type A list", "line 1: unknown flag \"list\""),
    ];
    for (text, message) in cases {
        assert_eq!(parse(text).1.as_deref(), Some(message), "{text}");
    }
}
