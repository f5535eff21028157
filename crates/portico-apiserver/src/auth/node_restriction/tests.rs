use super::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

struct Stored(BTreeMap<&'static str, Arc<Value>>);

impl Objects for Stored {
    fn get(&self, kind: &str, _: &str, name: &str) -> Option<Arc<Value>> {
        self.0.get(format!("{kind}/{name}").as_str()).cloned()
    }
}

fn refused(
    user: &User,
    resource: &str,
    new: Option<&Value>,
    old: Option<&Value>,
    main: bool,
) -> Option<u16> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let node = json!({"metadata": {"name": "n1", "uid": "u1"}});
    let objects = Stored([("Node/n1", Arc::new(node))].into());
    let write = Write {
        user,
        request: Request {
            resource,
            subresource,
            ..Request::default()
        },
        new,
        old,
        may_update_main: main,
    };
    check(&write, &objects).err().map(|error| error.code)
}

fn node_user() -> User {
    User::new("system:node:n1", &[NODES])
}

#[test]
fn labels_that_are_a_nodes_own() {
    for (key, own) in [
        ("rack", true),
        ("example.com/rack", true),
        ("kubernetes.io/hostname", true),
        ("topology.kubernetes.io/zone", true),
        ("node.kubernetes.io/anything", true),
        ("kubelet.kubernetes.io/x", true),
        ("a.node.kubernetes.io/x", true),
        ("kubernetes.io/role", false),
        ("node-role.kubernetes.io/control-plane", false),
        ("node-restriction.kubernetes.io/rack", false),
        ("a.node-restriction.kubernetes.io/rack", false),
        ("x.k8s.io/y", false),
        ("notkubernetes.io/y", true),
        ("xnode.kubernetes.io/y", false),
    ] {
        assert_eq!(is_own_label(key), own, "{key}");
    }
}

#[test]
fn nodes() {
    let old = json!({"metadata": {"name": "n1", "labels": {"rack": "1", "kubernetes.io/role": "x"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let changed = |pointer: &str, value: Value| {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        new
    };
    let finalizer = json!({"name": "n1", "labels": {"rack": "1", "kubernetes.io/role": "x"}, "finalizers": ["a/b"]});
    let owner = json!({"name": "n1", "labels": {"rack": "1", "kubernetes.io/role": "x"}, "ownerReferences": [{"kind": "Pod"}]});
    let annotated = json!({"name": "n1", "labels": {"rack": "1", "kubernetes.io/role": "x"}, "annotations": {"a": "b"}});
    // What changes; may it with the right to update the Node, and with that for the status alone?
    for (new, with_main, by_status) in [
        (old.clone(), true, true),
        (changed("/metadata/labels/rack", json!("2")), true, false),
        (
            changed("/metadata/labels/kubernetes.io~1role", json!("y")),
            false,
            false,
        ),
        (
            changed("/metadata/labels", json!({"rack": "1"})),
            false,
            false,
        ),
        (changed("/metadata", annotated), true, false),
        (changed("/metadata", finalizer), true, false),
        (changed("/metadata", owner), false, false),
        (changed("/spec/taints", json!([])), false, false),
    ] {
        let refused = |main| refused(&node_user(), "nodes/status", Some(&new), Some(&old), main);
        assert_eq!(refused(true).is_none(), with_main, "{new}");
        assert_eq!(refused(false).is_none(), by_status, "{new}");
    }
    assert_eq!(refused(&node_user(), "nodes", None, Some(&old), true), None);
    assert!(refused(&node_user(), "nodes", Some(&old), None, true).is_some());
}

#[test]
fn a_machine_that_joins() {
    let joiner = User::new("system:bootstrap:abcdef", &[join::JOINERS]);
    let made = |labels: Value, with: &str| json!({"metadata": {"name": "n2", "labels": labels, "annotations": {join::JOINED_WITH: with}}});
    for (labels, with, good) in [
        (json!({"kubernetes.io/hostname": "n2"}), "abcdef", true),
        (json!({}), "fedcba", false),
        (
            json!({"node-restriction.kubernetes.io/pool": "a"}),
            "abcdef",
            false,
        ),
        (
            json!({"node-role.kubernetes.io/control-plane": ""}),
            "abcdef",
            false,
        ),
    ] {
        let new = made(labels, with);
        let refused = refused(&joiner, "nodes", Some(&new), None, false);
        assert_eq!(refused.is_none(), good, "{new}");
    }
    assert!(concerns(&joiner, "", "nodes") && !concerns(&User::new("ann", &[]), "", "nodes"));
}

#[test]
fn mirror_pods() {
    let good = json!({
        "metadata": {"name": "p", "annotations": {MIRROR: "x"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}], "volumes": [
            {"name": "a", "hostPath": {"path": "/"}},
            {"name": "b", "projected": {"sources": [{"downwardAPI": {}}]}}]},
    });
    let with = |pointer: &str, value: Value| {
        let mut pod = good.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value;
        pod
    };
    let refused = |pod: &Value| refused(&node_user(), "pods", Some(pod), None, false).is_some();
    assert!(!refused(&good));
    let env = |key: &str| json!([{"name": "c", "env": [{"name": "E", "valueFrom": {key: {"name": "s", "key": "k"}}}]}]);
    for pod in [
        with("/metadata/annotations", json!({})),
        with("/spec/nodeName", json!("n2")),
        with("/metadata/ownerReferences", json!([])),
        with("/spec/serviceAccountName", json!("default")),
        with("/spec/containers", env("secretKeyRef")),
        with("/spec/containers", env("configMapKeyRef")),
        with("/spec/imagePullSecrets", json!([{"name": "s"}])),
        with(
            "/spec/volumes",
            json!([{"name": "v", "secret": {"secretName": "s"}}]),
        ),
        with(
            "/spec/volumes",
            json!([{"name": "v", "cinder": {"secretRef": {"name": "s"}}}]),
        ),
        with("/spec/volumes", json!([{"name": "v", "somethingNew": {}}])),
        with(
            "/spec/volumes",
            json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
        ),
    ] {
        assert!(refused(&pod), "{pod}");
    }
    for (key, value) in [
        ("uid", json!("u2")),
        ("name", json!("n2")),
        ("kind", json!("Pod")),
        ("controller", json!(false)),
        ("blockOwnerDeletion", json!(true)),
    ] {
        let mut pod = good.clone();
        pod["metadata"]["ownerReferences"][0][key] = value;
        assert!(refused(&pod), "{pod}");
    }
}

#[test]
fn pods_of_a_node() {
    let on = |node: &str| json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": node}});
    let (own, other) = (on("n1"), on("n2"));
    let refused = |resource: &str, new: Option<&Value>, old: Option<&Value>| {
        refused(&node_user(), resource, new, old, true).is_some()
    };
    assert!(!refused("pods", None, Some(&own)) && refused("pods", None, Some(&other)));
    assert!(refused("pods", Some(&own), Some(&own)), "an update");
    assert!(!refused("pods/status", Some(&own), Some(&own)));
    assert!(refused("pods/status", Some(&other), Some(&other)));
    let mut relabelled = own.clone();
    relabelled["metadata"]["labels"]["a"] = "c".into();
    assert!(refused("pods/status", Some(&relabelled), Some(&own)));
    let mut claims = own.clone();
    claims["status"] = json!({"resourceClaimStatuses": [{"name": "x"}]});
    assert!(refused("pods/status", Some(&claims), Some(&own)));
}
