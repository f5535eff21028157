//! Everything that walks values recursively, at the depth where values end, on a small stack.
//!
//! The smallest stack in use is 2 MiB, what tokio and the standard library give to a thread where
//! nobody says otherwise, as nobody does. Half of it is left for whoever calls.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use portico_api::bounds::{self, MOST_DEPTH, TooMuch};
use portico_api::codec::{conform, json, proto, stored};
use portico_api::patch::managed::{Owners, keep_times};
use portico_api::patch::{json as json_patch, merge, strategic};
use portico_api::schema::schema;
use serde_json::{Value, json};
use std::thread;

const STACK: usize = 1024 * 1024;

/// Objects that were stored before there was a bound can be as deep as the parser reads them.
const STORED_DEPTH: usize = 127;

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({}), |inner, level| match level % 2 {
        0 => json!({"f:a": inner}),
        _ => json!({"k:{\"port\":80}": inner, ".": {}}),
    })
}

/// A Service whose owners of fields are `depth` deep in all: the one place where a type ends and
/// anything may follow.
fn service(depth: usize) -> Value {
    // The object, its metadata, the list, the entry, and what is innermost.
    let fields = nested(depth - 5);
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "a", "namespace": "default", "annotations": {"x": "y"}, "managedFields": [{
            "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": fields,
        }]},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]},
    })
}

fn on_a_small_stack(walk: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(STACK).spawn(walk);
    thread.unwrap().join().unwrap();
}

fn owners(manager: &'static str) -> Owners<'static> {
    Owners {
        schema: schema(),
        type_name: "Service",
        api_version: "v1",
        manager,
        subresource: "",
        now: "2026-01-01T00:00:01Z",
    }
}

#[test]
fn codecs() {
    on_a_small_stack(|| {
        let deep = service(MOST_DEPTH);
        assert_eq!(bounds::measure(&deep).depth, MOST_DEPTH);
        let text = deep.to_string();
        assert_eq!(json::parse(text.as_bytes()).unwrap().0, deep);
        assert_eq!(json::read(text.as_bytes()).unwrap(), deep);
        json::whole_numbers(&mut deep.clone());
        let (conformed, unknown) = conform(schema(), "Service", deep.clone()).unwrap();
        assert!(unknown.is_empty());
        let message = proto::encode(schema(), "Service", &conformed);
        let decoded = proto::decode(schema(), "Service", &message).unwrap();
        assert_eq!(bounds::measure(&decoded).depth, MOST_DEPTH);

        let deeper = service(MOST_DEPTH + 1);
        let text = deeper.to_string();
        assert!(json::parse(text.as_bytes()).is_err() && json::read(text.as_bytes()).is_err());
        let message = proto::encode(schema(), "Service", &deeper);
        assert!(proto::decode(schema(), "Service", &message).is_err());
        // Fields that nobody knows are walked before they are dropped.
        let unknown = format!("{{\"a\":{}}}", nested(MOST_DEPTH));
        assert!(json::parse(unknown.as_bytes()).is_err());
    });
}

#[test]
fn what_is_stored() {
    on_a_small_stack(|| {
        let deep = service(STORED_DEPTH);
        let bytes = stored::store(&deep);
        let loaded = stored::load(&bytes, 7).unwrap();
        assert_eq!(bounds::measure(&loaded).depth, STORED_DEPTH);
        let mut out = Vec::new();
        stored::render(&bytes, 7, Some(("v1", "Service")), &mut out).unwrap();
        let message = proto::encode(schema(), "Service", &loaded);
        assert!(!message.is_empty());
        assert_eq!(bounds::check(&loaded), Err(TooMuch::Deep));
    });
}

#[test]
fn patches() {
    on_a_small_stack(|| {
        for depth in [MOST_DEPTH, STORED_DEPTH] {
            let deep = service(depth);
            let same = merge::apply(deep.clone(), &deep).unwrap();
            assert_eq!(bounds::measure(&same).depth, depth);
            merge::apply(json!({}), &deep).unwrap();
            strategic::apply(schema(), "Service", json!({}), &deep).unwrap();
            let _refused = strategic::apply(schema(), "Service", deep.clone(), &deep);
            let patch = json!([
                {"op": "test", "path": "", "value": deep},
                {"op": "copy", "from": "/metadata", "path": "/m"},
            ]);
            assert_eq!(json_patch::apply(deep, &patch).is_ok(), depth == MOST_DEPTH);
        }
    });
}

#[test]
fn owners_of_fields() {
    on_a_small_stack(|| {
        for depth in [MOST_DEPTH, STORED_DEPTH] {
            let live = service(depth);
            let mut new = live.clone();
            new["spec"]["ports"][0]["port"] = 81.into();
            owners("other").update(Some(&live), &mut new);
            assert_eq!(new["metadata"]["managedFields"][1]["manager"], "other");
            keep_times(&live, &mut new);
            let applied = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
                "spec": {"ports": [{"port": 82, "protocol": "TCP"}]}});
            let first = owners("applier")
                .apply(Some(&live), &applied, true)
                .unwrap();
            let mut less = applied.clone();
            less["spec"]["ports"][0]["port"] = 83.into();
            let second = owners("applier").apply(Some(&first), &less, true).unwrap();
            assert!(bounds::measure(&second).depth <= depth);
            // What is applied is not decoded before it is looked at.
            let mut odd = applied.clone();
            odd["spec"]["selector"] = nested(depth);
            assert!(owners("applier").apply(Some(&live), &odd, true).is_err());
        }
    });
}
