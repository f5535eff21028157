use super::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
struct Fake(BTreeMap<(String, String), Arc<Value>>);

impl Objects for Fake {
    fn get(&self, kind: &str, _: &str, name: &str) -> Option<Arc<Value>> {
        self.0.get(&(kind.to_owned(), name.to_owned())).cloned()
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn with_secret(change: impl Fn(&mut Value)) -> Fake {
    let data = [
        ("token-id", "abcdef"),
        ("token-secret", "0123456789abcdef"),
        ("expiration", "2026-01-01T01:00:00Z"),
        ("usage-bootstrap-authentication", "true"),
    ];
    let data: BTreeMap<_, _> = data
        .into_iter()
        .map(|(key, value)| (key, STANDARD.encode(value)))
        .collect();
    let mut secret = json!({"type": SECRET_TYPE, "data": data});
    change(&mut secret);
    Fake(BTreeMap::from([(
        ("Secret".to_owned(), "bootstrap-token-abcdef".to_owned()),
        Arc::new(secret),
    )]))
}

#[test]
fn a_join_token_counts_while_its_secret_does() {
    let good = "abcdef.0123456789abcdef";
    let user = authenticate(good, &with_secret(|_| {}), now()).unwrap();
    assert_eq!(
        (user.name.as_str(), user.groups),
        ("system:bootstrap:abcdef", vec![JOINERS.to_owned()])
    );
    for wrong in [
        "abcdef.0123456789abcdee",
        "abcdeg.0123456789abcdef",
        "abcdef",
        "",
        "ABCDEF.0123456789abcdef",
        "abcdef.",
    ] {
        assert_eq!(
            authenticate(wrong, &with_secret(|_| {}), now()),
            None,
            "{wrong}"
        );
    }
    let later: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    assert_eq!(authenticate(good, &with_secret(|_| {}), later), None);
    type Change = fn(&mut Value);
    let spoilt: [Change; 4] = [
        |secret| secret["type"] = "Opaque".into(),
        |secret| secret["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        |secret| drop(secret["data"].as_object_mut().unwrap().remove("expiration")),
        |secret| secret["data"]["usage-bootstrap-authentication"] = STANDARD.encode("false").into(),
    ];
    for change in spoilt {
        assert_eq!(authenticate(good, &with_secret(change), now()), None);
    }
}

#[test]
fn a_token_is_the_nodes_only_if_it_is_bound_to_it() {
    let user = node_of(NAMESPACE, ACCOUNT, "n1").unwrap();
    assert_eq!(user.node(), Some("n1"));
    for (namespace, account, node) in [
        ("shop", ACCOUNT, "n1"),
        (NAMESPACE, "other", "n1"),
        (NAMESPACE, ACCOUNT, ""),
    ] {
        assert_eq!(node_of(namespace, account, node), None);
    }
}

#[test]
fn nobody_asks_for_another_nodes_token() {
    let node = |with: &str| Arc::new(json!({"metadata": {"annotations": {JOINED_WITH: with}}}));
    let nodes = [
        ("n1", node("abcdef")),
        ("n2", node("other1")),
        ("n3", Arc::new(json!({"metadata": {}}))),
    ];
    let objects = Fake(
        nodes
            .into_iter()
            .map(|(name, node)| (("Node".to_owned(), name.to_owned()), node))
            .collect(),
    );
    let request = Request {
        verb: "create",
        group: "",
        resource: "serviceaccounts",
        subresource: "token",
        name: ACCOUNT,
        namespace: NAMESPACE,
    };
    let may = |user: &User, spec: Value| {
        check_request(user, &request, &json!({"spec": spec}), &objects, &|_| false).is_ok()
    };
    let bound = |node: &str| json!({"boundObjectRef": {"kind": "Node", "name": node}, "expirationSeconds": 3600});
    let joiner = User::new("system:bootstrap:abcdef", &[JOINERS]);
    let node = User::new("system:node:n1", &[NODES]);
    for user in [&joiner, &node] {
        assert!(may(user, bound("n1")), "{}", user.name);
        for other in ["n2", "n3", "n4"] {
            assert!(!may(user, bound(other)), "{} {other}", user.name);
        }
        assert!(
            !may(user, json!({}))
                && !may(
                    user,
                    json!({"boundObjectRef": {"kind": "Pod", "name": "n1"}})
                )
        );
        let long = json!({"boundObjectRef": {"kind": "Node", "name": "n1"}, "expirationSeconds": MOST_SECONDS + 1});
        assert!(!may(user, long), "{}", user.name);
        let elsewhere =
            json!({"boundObjectRef": {"kind": "Node", "name": "n1"}, "audiences": ["vault"]});
        assert!(!may(user, elsewhere), "{}", user.name);
    }
    assert!(
        may(&User::new("admin", &[]), json!({})),
        "others are for the roles to judge"
    );
}
