use super::*;
use serde_json::json;

#[test]
fn operations_apply_in_order() {
    let cases = [
        (json!([]), json!({"a": {"b": [1, 2, 3]}, "n": null})),
        (json!(null), json!({"a": {"b": [1, 2, 3]}, "n": null})),
        (
            json!([{"op": "add", "path": "/a/c", "value": 1}]),
            json!({"a": {"b": [1, 2, 3], "c": 1}, "n": null}),
        ),
        (
            json!([{"op": "add", "path": "/a/b/-", "value": 4}]),
            json!({"a": {"b": [1, 2, 3, 4]}, "n": null}),
        ),
        (
            json!([{"op": "add", "path": "/a/b/3", "value": 4}]),
            json!({"a": {"b": [1, 2, 3, 4]}, "n": null}),
        ),
        (
            json!([{"op": "add", "path": "/a/b/0", "value": 0}]),
            json!({"a": {"b": [0, 1, 2, 3]}, "n": null}),
        ),
        (
            json!([{"op": "add", "path": "/a/b/-1", "value": 4}]),
            json!({"a": {"b": [1, 2, 3, 4]}, "n": null}),
        ),
        (
            json!([{"op": "add", "path": "/a/b/-4", "value": 0}]),
            json!({"a": {"b": [0, 1, 2, 3]}, "n": null}),
        ),
        (
            json!([{"op": "add", "path": "/x"}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "x": null}),
        ),
        (
            json!([{"op": "add", "path": "/x~1y~0z", "value": 1}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "x/y~z": 1}),
        ),
        (
            json!([{"op": "add", "path": "/", "value": 1}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "": 1}),
        ),
        (
            json!([{"op": "remove", "path": "/a/b/-1"}]),
            json!({"a": {"b": [1, 2]}, "n": null}),
        ),
        (json!([{"op": "remove", "path": "/a"}]), json!({"n": null})),
        (
            json!([{"op": "remove", "path": "ignored/a"}]),
            json!({"n": null}),
        ),
        (
            json!([{"op": "replace", "path": "/new", "value": 1}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "new": 1}),
        ),
        (
            json!([{"op": "replace", "path": "/a/b/-2", "value": 9}]),
            json!({"a": {"b": [1, 9, 3]}, "n": null}),
        ),
        (
            json!([{"op": "replace", "path": "", "value": {"x": 1}}]),
            json!({"x": 1}),
        ),
        (
            json!([{"op": "move", "from": "/a/b", "path": "/c"}]),
            json!({"a": {}, "n": null, "c": [1, 2, 3]}),
        ),
        (
            json!([{"op": "copy", "from": "/a/b/0", "path": "/c"}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "c": 1}),
        ),
        (
            json!([{"op": "copy", "from": "/no", "path": "/c"}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null, "c": null}),
        ),
        (
            json!([{"op": "test", "path": "/a/b", "value": [1, 2, 3]}, {"op": "remove", "path": "/a"}]),
            json!({"n": null}),
        ),
        (
            json!([{"op": "test", "path": "/no", "value": null}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null}),
        ),
        (
            json!([{"op": "test", "path": "/no"}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null}),
        ),
        (
            json!([{"op": "test", "path": "/n", "value": null}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null}),
        ),
        (
            json!([{"op": "test", "path": "", "value": {"n": null, "a": {"b": [1, 2, 3]}}}]),
            json!({"a": {"b": [1, 2, 3]}, "n": null}),
        ),
    ];
    for (patch, expected) in cases {
        let object = json!({"a": {"b": [1, 2, 3]}, "n": null});
        assert_eq!(apply(object, &patch).unwrap(), expected, "{patch}");
    }
}

#[test]
fn what_does_not_apply_is_unprocessable() {
    for operation in [
        json!(null),
        json!({}),
        json!({"op": "upsert", "path": "/a"}),
        json!({"op": "add", "path": "", "value": {}}),
        json!({"op": "add", "path": "a", "value": {}}),
        json!({"op": "add", "value": {}}),
        json!({"op": "add", "path": "/no/x", "value": 1}),
        json!({"op": "add", "path": "/n/x", "value": 1}),
        json!({"op": "add", "path": "/a/b/4", "value": 1}),
        json!({"op": "add", "path": "/a/b/-5", "value": 1}),
        json!({"op": "add", "path": "/a/b/x", "value": 1}),
        json!({"op": "add", "path": "/a/b/0/x", "value": 1}),
        json!({"op": "remove", "path": "/no"}),
        json!({"op": "remove", "path": "/a/b/3"}),
        json!({"op": "remove", "path": ""}),
        json!({"op": "replace", "path": "/a/b/3", "value": 1}),
        json!({"op": "replace", "path": "/a/b/-", "value": 1}),
        json!({"op": "replace", "path": "", "value": 1}),
        json!({"op": "replace", "path": ""}),
        json!({"op": "move", "from": "/no", "path": "/x"}),
        json!({"op": "move", "from": "/a", "path": "/a/b/c"}),
        json!({"op": "move", "path": "/x"}),
        json!({"op": "copy", "from": "/a/b/9", "path": "/x"}),
        json!({"op": "test", "path": "/a/b/0", "value": 2}),
        json!({"op": "test", "path": "/a/b/0", "value": 1.0}),
        json!({"op": "test", "path": "/a/b/0"}),
        json!({"op": "test", "path": "/no", "value": 1}),
        json!({"op": "test", "path": "/a/b/9", "value": null}),
        json!({"op": "test", "path": "", "value": {}}),
        json!({"op": "add", "path": "/a/b/99999999999999999999", "value": 1}),
    ] {
        let error = apply(
            json!({"a": {"b": [1, 2, 3]}, "n": null}),
            &json!([operation]),
        )
        .unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"), "{operation}");
        assert!(error.details.is_empty(), "{operation}");
    }
}

#[test]
fn what_is_no_patch_is_a_bad_request() {
    for patch in [
        json!({"spec": {}}),
        json!("x"),
        json!([1]),
        json!([{"op": 1}]),
        json!([{"op": "add", "path": []}]),
    ] {
        assert_eq!(apply(json!({}), &patch).unwrap_err().code, 400, "{patch}");
    }
    let error = apply(json!({}), &json!({})).unwrap_err();
    let message = "error decoding patch: json: cannot unmarshal object into Go value of type \
                   []handlers.jsonPatchOp";
    assert_eq!(error.message, message);
}

#[test]
fn size_is_bounded() {
    let operation = json!({"op": "test", "path": "/no"});
    let patch = |count| Value::Array(vec![operation.clone(); count]);
    assert!(apply(json!({}), &patch(10_000)).is_ok());
    assert_eq!(apply(json!({}), &patch(10_001)).unwrap_err().code, 413);

    let doubling = Value::Array(vec![
        json!({"op": "copy", "from": "/a", "path": "/a/-"});
        60
    ]);
    assert_eq!(apply(json!({"a": [1]}), &doubling).unwrap_err().code, 422);
}

/// A patch of 27 KB made a value 16,384 deep: dropping it overflowed the stack.
#[test]
fn nothing_deep_is_made() {
    let doublings = |count: u32| -> Value {
        let copy = |n: u32| {
            let path = format!("/a{}", "/b".repeat(2usize.pow(n)));
            json!({"op": "copy", "from": "/a", "path": path})
        };
        (1..=count).map(copy).collect()
    };
    let object = json!({"a": {"b": {}}});
    assert!(apply(object.clone(), &doublings(4)).is_ok());
    let error = apply(object.clone(), &doublings(5)).unwrap_err();
    assert_eq!(error.code, 422);
    assert!(error.message.contains("64 deep"), "{}", error.message);
    assert!(apply(object, &doublings(13)).is_err());

    let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!([inner]));
    let add = |depth| json!([{"op": "add", "path": "/x/y", "value": nested(depth)}]);
    assert!(apply(json!({"x": {}}), &add(61)).is_ok());
    assert!(apply(json!({"x": {}}), &add(62)).is_err());
    let replace = |depth| json!([{"op": "replace", "path": "", "value": nested(depth)}]);
    assert!(apply(json!({}), &replace(63)).is_ok());
    assert!(apply(json!({}), &replace(64)).is_err());
    let deeper = json!([
        {"op": "add", "path": "/x", "value": nested(62)},
        {"op": "move", "from": "/x", "path": "/y/z"},
    ]);
    assert!(apply(json!({"y": {}}), &deeper).is_err());
}

#[test]
fn a_patch_can_be_about_a_large_object_and_not_make_it_larger_than_allowed() {
    let text = |length: usize| "x".repeat(length);
    let object = json!({"a": text(1_500_000)});
    let replace = |length| json!([{"op": "replace", "path": "/a", "value": text(length)}]);
    assert!(apply(object.clone(), &replace(1_600_000)).is_ok());
    let add = json!([{"op": "add", "path": "/b", "value": text(1_700_000)}]);
    let error = apply(object.clone(), &add).unwrap_err();
    assert!(error.message.contains("3145728 bytes"), "{}", error.message);
    // What goes makes room.
    let instead = json!([{"op": "remove", "path": "/a"}, add[0]]);
    assert!(apply(object, &instead).is_ok());
}

/// Each of these moves a million items: 10,000 of them took minutes.
#[test]
fn work_is_bounded() {
    let items = json!({"a": vec![0; 1_000_000], "b": {}});
    for operation in [
        json!({"op": "add", "path": "/a/0", "value": 0}),
        json!({"op": "remove", "path": "/a/0"}),
    ] {
        let patch = Value::Array(vec![operation; 100]);
        let error = apply(items.clone(), &patch).unwrap_err();
        assert!(
            error.message.contains("too many values"),
            "{}",
            error.message
        );
    }
    let there = json!({"op": "move", "from": "/a", "path": "/b/a"});
    let back = json!({"op": "move", "from": "/b/a", "path": "/a"});
    let patch = Value::Array(vec![[there, back]; 50].concat());
    assert!(apply(items, &patch).is_err());
}

#[test]
fn unknown_members_are_named() {
    let patch = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "add", "pth": "/a"}]);
    assert_eq!(
        unknown_members(&patch),
        ["json patch unknown field \"[1].pth\""]
    );
    assert!(unknown_members(&json!({"x": 1})).is_empty());
}
