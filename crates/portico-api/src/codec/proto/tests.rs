use super::*;
use crate::schema::{Type, schema};
use proptest::prelude::*;
use serde_json::json;

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [
        &[number << 3 | 2, u8::try_from(bytes.len()).unwrap()],
        bytes,
    ]
    .concat()
}

fn envelope(kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), field(1, &type_meta), field(2, message)].concat()
}

#[test]
fn a_service_as_go_writes_it_decodes() {
    let metadata = [
        field(1, b"web"),
        field(3, b"default"),
        field(11, &[field(1, b"app"), field(2, b"x")].concat()),
        field(8, b""),
    ];
    let target = [&[8, 1, 16, 0][..], &field(3, b"http")].concat();
    let port = [
        field(1, b"http"),
        field(2, b"TCP"),
        vec![3 << 3, 80],
        field(4, &target),
        vec![5 << 3, 0],
    ]
    .concat();
    let spec = [
        field(1, &port),
        field(2, &[field(1, b"app"), field(2, b"web")].concat()),
        field(3, b""),
        field(4, b"ClusterIP"),
        vec![20 << 3 & 0x7f | 0x80, 1, 0],
        vec![0x98, 0x06, 7],
    ];
    let message = [
        field(1, &metadata.concat()),
        field(2, &spec.concat()),
        field(3, &field(1, b"")),
    ]
    .concat();
    let value = decode(schema(), "Service", &envelope("Service", &message)).unwrap();
    assert_eq!(
        value,
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "x"}},
            "spec": {"ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"}],
                "selector": {"app": "web"}, "type": "ClusterIP", "allocateLoadBalancerNodePorts": false},
            "status": {"loadBalancer": {}}})
    );
}

#[test]
fn packed_and_plain_numbers_are_the_same() {
    let plain = [4 << 3, 5, 4 << 3, 6];
    let packed = field(4, &[5, 6]);
    for message in [plain.to_vec(), packed] {
        let pod = field(2, &field(14, &message));
        let value = decode(schema(), "Pod", &envelope("Pod", &pod)).unwrap();
        assert_eq!(
            value["spec"]["securityContext"]["supplementalGroups"],
            json!([5, 6])
        );
    }
}

#[test]
fn special_types_survive_a_round_trip() {
    let objects = [
        (
            "Pod",
            json!({"metadata": {"name": "p", "creationTimestamp": "1969-07-20T20:17:40Z", "managedFields": [
                {"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}}]},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": -1}}],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}], "terminationGracePeriodSeconds": 0}}),
        ),
        (
            "Secret",
            json!({"metadata": {"name": "s"}, "data": {"a": "AP8=", "b": ""}, "immutable": false}),
        ),
        (
            "Lease",
            json!({"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-31T12:00:00.000123Z", "leaseTransitions": -5}}),
        ),
        (
            "TokenReview",
            json!({"spec": {"token": "t"}, "status": {"user": {"extra": {"k": ["a", "b"], "none": []}}}}),
        ),
        (
            "ServiceList",
            json!({"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "a"}}]}),
        ),
    ];
    for (ty, object) in objects {
        let (object, unknown) = conform(schema(), ty, object).unwrap();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert_eq!(
            decode(schema(), ty, &encode(schema(), ty, &object)).unwrap(),
            object
        );
    }
}

#[test]
fn the_envelope_is_checked() {
    assert!(open(b"{}").is_err());
    assert!(open(b"").is_err());
    assert_eq!(
        open(MAGIC).unwrap(),
        Envelope {
            api_version: String::new(),
            kind: String::new(),
            message: &[]
        }
    );
    assert!(open(&[MAGIC, &field(3, b"gzip")].concat()).is_err());
    let body = encode(
        schema(),
        "Service",
        &json!({"apiVersion": "v1", "kind": "Service"}),
    );
    let opened = open(&body).unwrap();
    assert_eq!(
        (opened.api_version.as_str(), opened.kind.as_str()),
        ("v1", "Service")
    );
    assert!(is_supported(schema(), "Service") && is_supported(schema(), "ServiceList"));
    assert!(!is_supported(schema(), "PorticoService"));
}

#[test]
fn damage_is_an_error() {
    for message in [
        &[10][..],
        &[10, 5, 1],
        &[8, 0xff],
        &[0, 0],
        &[11],
        &[18, 2, 10, 9],
        &[0xff; 12],
    ] {
        assert!(
            decode(schema(), "Service", &envelope("Service", message)).is_err(),
            "{message:?}"
        );
    }
    let not_text = field(1, &field(1, &[0xff]));
    let error = decode(schema(), "Service", &envelope("Service", &not_text)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Service.metadata: ObjectMeta.name: proto: text is not UTF-8"
    );
}

#[test]
fn watch_frames_have_their_length_in_front() {
    let frame = watch_frame("ADDED", b"xy");
    assert_eq!(
        frame,
        [
            &[0, 0, 0, 13][..],
            &[10, 5],
            b"ADDED",
            &[18, 4, 10, 2],
            b"xy"
        ]
        .concat()
    );
}

#[test]
fn no_type_contains_itself() {
    fn depth(name: &str, above: &mut Vec<String>) {
        assert!(!above.iter().any(|n| n == name), "{name} inside {above:?}");
        above.push(name.to_owned());
        for field in &schema().get(name).unwrap().fields {
            let mut ty = &field.ty;
            while let Type::List(inner) | Type::Map(inner) = ty {
                ty = inner;
            }
            if let Type::Object(inner) = ty {
                depth(inner, above);
            }
        }
        above.pop();
    }
    for ty in schema().types() {
        depth(&ty.name, &mut Vec::new());
    }
}

/// A value of a type, with fields left out at random.
fn of_type(ty: &Type) -> BoxedStrategy<Value> {
    match ty {
        Type::String => "[a-z]{0,5}".prop_map(Value::from).boxed(),
        Type::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Type::Int32 => any::<i32>().prop_map(Value::from).boxed(),
        Type::Int64 => any::<i64>().prop_map(Value::from).boxed(),
        Type::Double => Just(json!(0.5)).boxed(),
        Type::Bytes => prop_oneof![Just(json!("")), Just(json!("AAEC"))].boxed(),
        Type::IntOrString => prop_oneof![
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from)
        ]
        .boxed(),
        Type::Quantity => "[1-9][0-9]?(m|Ki|G)?".prop_map(Value::from).boxed(),
        Type::Time => Just(json!("2026-01-02T03:04:05Z")).boxed(),
        Type::MicroTime => Just(json!("2026-01-02T03:04:05.678901Z")).boxed(),
        Type::Any => Just(json!({"f:a": {}, "n": [1, null]})).boxed(),
        Type::List(item) => prop::collection::vec(of_type(item), 0..3)
            .prop_map(Value::from)
            .boxed(),
        Type::Map(item) => prop::collection::btree_map("[a-z]{1,3}", of_type(item), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed(),
        Type::Object(name) => of_struct(name),
    }
}

fn of_struct(name: &str) -> BoxedStrategy<Value> {
    let fields = &schema().get(name).unwrap().fields;
    let strategies: Vec<_> = fields
        .iter()
        .filter(|field| field.number > 0)
        .map(|field| {
            let (key, inline) = (field.name.clone(), field.inline);
            prop::option::of(of_type(&field.ty)).prop_map(move |value| (key.clone(), inline, value))
        })
        .collect();
    strategies.prop_map(assemble).boxed()
}

fn assemble(fields: Vec<(String, bool, Option<Value>)>) -> Value {
    let mut object = serde_json::Map::new();
    for (key, inline, value) in fields {
        match value {
            Some(Value::Object(inner)) if inline => object.extend(inner),
            Some(value) => {
                object.insert(key, value);
            }
            None => {}
        }
    }
    Value::Object(object)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for ty in ["Service", "Pod", "Event"] {
            let _ = decode(schema(), ty, &[MAGIC, &bytes].concat());
            let _ = decode(schema(), ty, &envelope(ty, &bytes.iter().copied().take(100).collect::<Vec<u8>>()));
        }
    }

    #[test]
    fn services_round_trip(object in of_struct("Service")) { round_trip("Service", object)?; }

    #[test]
    fn slices_round_trip(object in of_struct("EndpointSlice")) { round_trip("EndpointSlice", object)?; }

    #[test]
    fn nodes_round_trip(object in of_struct("Node")) { round_trip("Node", object)?; }

    #[test]
    fn events_round_trip(object in of_struct("Event")) { round_trip("Event", object)?; }

    #[test]
    fn containers_round_trip(object in of_struct("Container")) { round_trip("Container", object)?; }
}

fn round_trip(ty: &str, object: Value) -> Result<(), TestCaseError> {
    let (object, _) = conform(schema(), ty, object).unwrap();
    let bytes = encode(schema(), ty, &object);
    prop_assert_eq!(decode(schema(), ty, &bytes).unwrap(), object.clone());
    // A truncated body is an error or something shorter, never a panic.
    let _ = decode(
        schema(),
        ty,
        bytes.get(..bytes.len() / 2).unwrap_or_default(),
    );
    Ok(())
}
