use super::*;
use crate::auth::User;
use serde_json::{Value, json};

fn role(name: &str, rules: Value) -> Value {
    json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn bind(kind: &str, namespace: &str, role_kind: &str, role: &str, subject: Value) -> Value {
    json!({"kind": kind, "metadata": {"name": format!("{role}-binding"), "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}, "subjects": [subject]})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

/// One user "ann" with these rules everywhere.
fn rbac(rules: Value) -> Rbac {
    let mut rbac = Rbac::default();
    rbac.apply(&role("own", rules));
    rbac.apply(&bind(
        "ClusterRoleBinding",
        "",
        "ClusterRole",
        "own",
        user("ann"),
    ));
    rbac
}

fn ann() -> User {
    User::new("ann", &["dev"])
}

/// `verb group resource[/subresource] [namespace[/name]]`, with `-` for the core group; or
/// `verb /path`.
fn action(text: &str) -> Action<'_> {
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        [verb, path] => Action::NonResource { verb, path },
        [verb, group, resource, rest @ ..] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let place = rest.first().copied().unwrap_or_default();
            let (namespace, name) = place.split_once('/').unwrap_or((place, ""));
            let group = if *group == "-" { "" } else { group };
            Action::Resource(Request {
                verb,
                group,
                resource,
                subresource,
                name,
                namespace,
            })
        }
        _ => panic!("{text}"),
    }
}

#[test]
fn rules_match_as_in_kubernetes() {
    let rule = |verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]| json!([{"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names}]);
    let named = rule(&["get", "update"], &[""], &["services"], &["web"]);
    let star = rule(&["*"], &["*"], &["*"], &[]);
    let status = rule(&["patch"], &[""], &["*/status"], &[]);
    let every_sub = rule(&["get"], &[""], &["services/*"], &[]);
    let plain = rule(&["get"], &[""], &["services"], &[]);
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": ["/livez", "/api/*"]}]);
    let all_paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
    let cases = [
        (&named, "get - services shop/web", true),
        (&named, "get - services shop/db", false),
        (&named, "list - services shop", false),
        (&named, "delete - services shop/web", false),
        (
            &star,
            "escalate rbac.authorization.k8s.io clusterroles",
            true,
        ),
        (&star, "get - services/status shop/web", true),
        (&star, "get /livez", false),
        (&status, "patch - services/status shop/web", true),
        (&status, "patch - nodes/status /n1", true),
        (&status, "patch - services shop/web", false),
        (&status, "patch - services/proxy shop/web", false),
        (&status, "patch apps deployments/status shop/web", false),
        (&every_sub, "get - services/status shop/web", true),
        (&every_sub, "get - services shop/web", false),
        (&every_sub, "get - pods/status shop/web", false),
        (&plain, "get - services shop/web", true),
        (&plain, "get - services/status shop/web", false),
        (&plain, "get discovery.k8s.io services shop/web", false),
        (&paths, "get /livez", true),
        (&paths, "get /livez/ping", false),
        (&paths, "get /api/v1", true),
        (&paths, "get /api", false),
        (&paths, "post /livez", false),
        (&paths, "get - services shop", false),
        (&all_paths, "get /metrics", true),
        (&all_paths, "get - services shop", false),
    ];
    for (rules, text, allowed) in cases {
        assert_eq!(
            rbac(rules.clone()).decide(&ann(), &action(text)).allowed,
            allowed,
            "{rules} {text}"
        );
    }
}

#[test]
fn a_rule_that_cannot_be_read_allows_nothing() {
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["services"], "resourceNames": [7]}]);
    assert!(
        !rbac(rules)
            .decide(&ann(), &action("get - services shop/web"))
            .allowed
    );
}

#[test]
fn bindings_reach_their_subjects_and_namespace() {
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["services"]}]);
    let cases = [
        (user("ann"), "ClusterRoleBinding", "shop", true),
        (user("ann"), "ClusterRoleBinding", "", true),
        (user("ann"), "RoleBinding", "shop", true),
        (user("ann"), "RoleBinding", "bank", false),
        (user("ann"), "RoleBinding", "", false),
        (user("dev"), "RoleBinding", "shop", false),
        (
            json!({"kind": "Group", "name": "dev"}),
            "RoleBinding",
            "shop",
            true,
        ),
        (
            json!({"kind": "Group", "name": "ann"}),
            "RoleBinding",
            "shop",
            false,
        ),
        (
            json!({"kind": "Robot", "name": "ann"}),
            "RoleBinding",
            "shop",
            false,
        ),
    ];
    for (subject, kind, asked, allowed) in cases {
        let mut rbac = Rbac::default();
        rbac.apply(&role("reader", rules.clone()));
        rbac.apply(&bind(
            kind,
            "shop",
            "ClusterRole",
            "reader",
            subject.clone(),
        ));
        let text = format!("get - services {asked}/web");
        assert_eq!(
            rbac.decide(&ann(), &action(&text)).allowed,
            allowed,
            "{subject} {kind} {asked}"
        );
    }
}

#[test]
fn a_namespace_left_out_does_not_widen_anything() {
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let mut rbac = Rbac::default();
    rbac.apply(&role("big", everything.clone()));
    rbac.apply(&bind("RoleBinding", "", "ClusterRole", "big", user("ann")));
    rbac.apply(&bind("ClusterRoleBinding", "", "Role", "big", user("ann")));
    rbac.apply(&json!({"kind": "Role", "metadata": {"name": "other"}, "rules": everything}));
    rbac.apply(&bind(
        "ClusterRoleBinding",
        "",
        "ClusterRole",
        "other",
        user("ann"),
    ));
    rbac.apply(&bind("RoleBinding", "shop", "Role", "big", user("ann")));
    for text in ["get - services shop/web", "get - nodes /n1"] {
        assert!(!rbac.decide(&ann(), &action(text)).allowed, "{text}");
    }
    rbac.delete(&json!({"kind": "Role", "metadata": {"name": "big"}}));
    rbac.apply(&bind(
        "ClusterRoleBinding",
        "",
        "ClusterRole",
        "big",
        user("ann"),
    ));
    assert!(rbac.decide(&ann(), &action("get - nodes /n1")).allowed);
}

#[test]
fn service_accounts_are_of_the_bindings_namespace_unless_said() {
    let account = |namespace: Option<&str>| {
        let mut subject = json!({"kind": "ServiceAccount", "name": "web"});
        if let Some(namespace) = namespace {
            subject["namespace"] = namespace.into();
        }
        subject
    };
    let cases = [
        ("RoleBinding", None, "shop", true),
        ("RoleBinding", None, "bank", false),
        ("RoleBinding", Some("bank"), "bank", true),
        ("ClusterRoleBinding", Some("bank"), "bank", true),
        ("ClusterRoleBinding", None, "shop", false),
    ];
    for (kind, namespace, of, allowed) in cases {
        let mut rbac = Rbac::default();
        rbac.apply(&role(
            "reader",
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["services"]}]),
        ));
        rbac.apply(&bind(
            kind,
            "shop",
            "ClusterRole",
            "reader",
            account(namespace),
        ));
        let user = User::service_account(of, "web");
        assert_eq!(
            rbac.decide(&user, &action("get - services shop/x")).allowed,
            allowed,
            "{kind} {namespace:?} {of}"
        );
    }
}

#[test]
fn changes_take_effect_at_once() {
    let get = action("get - services shop/web");
    let mut rbac = rbac(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["services"]}]));
    let decision = rbac.decide(&ann(), &get);
    assert_eq!(
        decision.reason,
        "RBAC: allowed by ClusterRoleBinding \"own-binding\" of ClusterRole \"own\" to User \"ann\""
    );
    rbac.apply(&role("own", json!([])));
    assert!(!rbac.decide(&ann(), &get).allowed);
    rbac.delete(&role("own", json!([])));
    let missing = rbac.decide(&ann(), &get);
    assert_eq!(
        missing,
        Decision {
            allowed: false,
            reason: "RBAC: clusterrole.rbac.authorization.k8s.io \"own\" not found".into()
        }
    );
    rbac.apply(&role(
        "own",
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
    ));
    assert!(rbac.decide(&ann(), &get).allowed);
    rbac.apply(&bind(
        "ClusterRoleBinding",
        "",
        "ClusterRole",
        "own",
        user("bob"),
    ));
    assert!(!rbac.decide(&ann(), &get).allowed);
    assert!(rbac.decide(&User::new("bob", &[]), &get).allowed);
    rbac.delete(&bind(
        "ClusterRoleBinding",
        "",
        "ClusterRole",
        "own",
        user("bob"),
    ));
    assert!(!rbac.decide(&User::new("bob", &[]), &get).allowed);
}

#[test]
fn masters_may_do_everything() {
    let master = User::new("root", &["system:masters"]);
    assert!(
        Rbac::default()
            .decide(&master, &action("delete - nodes /n1"))
            .allowed
    );
    assert!(
        Rbac::default()
            .decide(&master, &action("get /anything"))
            .allowed
    );
    assert!(
        !Rbac::default()
            .decide(&User::new("system:masters", &[]), &action("get /anything"))
            .allowed
    );
}

#[test]
fn aggregated_roles_gather_through_each_other() {
    let labelled = |name: &str, label: &str, more: Value| {
        let mut role =
            json!({"kind": "ClusterRole", "metadata": {"name": name, "labels": {label: "true"}}});
        role.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        role
    };
    let gathers = |label: &str| {
        json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
        "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]})
    };
    let services =
        json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["services"]}]});
    let mut rbac = Rbac::default();
    rbac.apply(&labelled("outer", "to-inner", gathers("to-outer")));
    rbac.apply(&labelled("inner", "to-outer", gathers("to-inner")));
    rbac.apply(&bind(
        "ClusterRoleBinding",
        "",
        "ClusterRole",
        "outer",
        user("ann"),
    ));
    let get = action("get - services shop/web");
    assert!(
        !rbac.decide(&ann(), &get).allowed,
        "rules written into an aggregated role do not count"
    );
    let leaf = labelled("leaf", "to-inner", services.clone());
    rbac.apply(&leaf);
    assert!(rbac.decide(&ann(), &get).allowed);
    assert!(
        !rbac
            .decide(&ann(), &action("delete - services shop/web"))
            .allowed
    );
    rbac.apply(&labelled("leaf", "elsewhere", services));
    assert!(!rbac.decide(&ann(), &get).allowed);
    rbac.apply(&leaf);
    rbac.delete(&leaf);
    assert!(!rbac.decide(&ann(), &get).allowed);
}

#[test]
fn selectors_with_expressions() {
    let labels = json!({"tier": "web", "empty": ""});
    let cases = [
        (json!({}), true),
        (json!(null), false),
        (json!({"matchLabels": {"tier": "web"}}), true),
        (json!({"matchLabels": {"tier": "db"}}), false),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["db", "web"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "none", "operator": "In", "values": ["web"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["web"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "empty", "operator": "Exists"}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "Like", "values": ["web"]}]}),
            false,
        ),
    ];
    for (selector, chosen) in cases {
        assert_eq!(selector::selects(&selector, &labels), chosen, "{selector}");
    }
}

#[test]
fn nodes_write_only_what_is_theirs() {
    let mut rbac = Rbac::default();
    rbac.apply(&role(
        "node",
        json!([
            {"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"]},
            {"verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]},
        ]),
    ));
    rbac.apply(&bind(
        "ClusterRoleBinding",
        "",
        "ClusterRole",
        "node",
        json!({"kind": "Group", "name": "system:nodes"}),
    ));
    let node = User::new("system:node:n1", &["system:nodes"]);
    let cases = [
        ("patch - nodes/status /n1", true),
        ("patch - nodes/status /n2", false),
        ("deletecollection - nodes", false),
        ("get - nodes /n2", true),
        ("update coordination.k8s.io leases kube-node-lease/n1", true),
        (
            "update coordination.k8s.io leases kube-node-lease/n2",
            false,
        ),
        (
            "update coordination.k8s.io leases portico-system/announce",
            false,
        ),
    ];
    for (text, allowed) in cases {
        assert_eq!(rbac.decide(&node, &action(text)).allowed, allowed, "{text}");
    }
    let unnamed = User::new("n1", &["system:nodes"]);
    assert!(
        !rbac
            .decide(&unnamed, &action("patch - nodes/status /n1"))
            .allowed
    );
    let create = Request {
        verb: "create",
        group: "coordination.k8s.io",
        resource: "leases",
        namespace: "kube-node-lease",
        ..Request::default()
    };
    assert!(rbac.decide(&node, &create.into()).allowed);
    assert!(
        check_node(
            &node,
            &Request {
                name: "n1",
                ..create
            }
        )
        .is_ok()
    );
    assert_eq!(
        check_node(
            &node,
            &Request {
                name: "n2",
                ..create
            }
        )
        .unwrap_err()
        .code,
        403
    );
    assert!(!rbac.decide(&unnamed, &create.into()).allowed);
}

#[test]
fn refusals_read_as_in_kubernetes() {
    let cases = [
        (
            "list - services y",
            "services is forbidden: User \"ann\" cannot list resource \"services\" in API group \
             \"\" in the namespace \"y\"",
        ),
        (
            "update discovery.k8s.io endpointslices y/z",
            "endpointslices.discovery.k8s.io \"z\" is forbidden: User \"ann\" cannot update \
             resource \"endpointslices\" in API group \"discovery.k8s.io\" in the namespace \"y\"",
        ),
        (
            "patch - nodes/status /n1",
            "nodes \"n1\" is forbidden: User \"ann\" cannot patch resource \"nodes/status\" in \
             API group \"\" at the cluster scope",
        ),
        (
            "get /a<b>",
            "forbidden: User \"ann\" cannot get path \"/a&lt;b&gt;\"",
        ),
    ];
    for (text, message) in cases {
        let action = action(text);
        let error = action.forbidden(&ann(), &Rbac::default().decide(&ann(), &action));
        assert_eq!(
            (error.code, error.reason, error.message.as_str()),
            (403, "Forbidden", message)
        );
    }
}

#[test]
fn coverage_is_never_more_than_what_is_held() {
    let rules = |resources: &[&str], names: &[&str]| {
        Rule::parse_all(
            &json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": resources, "resourceNames": names}]),
        )
    };
    let paths =
        |urls: &[&str]| Rule::parse_all(&json!([{"verbs": ["get"], "nonResourceURLs": urls}]));
    let cases = [
        (
            rules(&["services"], &[]),
            rules(&["services"], &["web"]),
            true,
        ),
        (
            rules(&["services"], &["web"]),
            rules(&["services"], &[]),
            false,
        ),
        (
            rules(&["services"], &["web", "db"]),
            rules(&["services"], &["db"]),
            true,
        ),
        (
            rules(&["*"], &[]),
            rules(&["services", "services/status"], &[]),
            true,
        ),
        (rules(&["services"], &[]), rules(&["*"], &[]), false),
        (
            rules(&["*/status"], &[]),
            rules(&["services/status"], &[]),
            true,
        ),
        (
            rules(&["services/status"], &[]),
            rules(&["*/status"], &[]),
            false,
        ),
        (
            rules(&["services/*"], &[]),
            rules(&["services/status"], &[]),
            true,
        ),
        (
            rules(&["services/status"], &[]),
            rules(&["services/*"], &[]),
            false,
        ),
        (
            rules(&["services/*"], &[]),
            rules(&["services"], &[]),
            false,
        ),
        (paths(&["/api/*"]), paths(&["/api/v1", "/api/v1/*"]), true),
        (paths(&["/api/v1"]), paths(&["/api/*"]), false),
        (paths(&["*"]), rules(&["services"], &[]), false),
        (
            Rule::everything().to_vec(),
            Rule::everything().to_vec(),
            true,
        ),
    ];
    for (own, wanted, covered) in cases {
        assert_eq!(
            uncovered(&own, &wanted).is_empty(),
            covered,
            "{own:?} {wanted:?}"
        );
    }
    // Two rules together cover what neither does alone.
    let both = [rules(&["services"], &[]), rules(&["pods"], &[])].concat();
    assert!(uncovered(&both, &rules(&["services", "pods"], &[])).is_empty());
}

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

fn writing(resource: &'static str) -> Request<'static> {
    Request {
        verb: "create",
        group: RBAC_GROUP,
        resource,
        namespace: "shop",
        ..Request::default()
    }
}

#[test]
fn roles_cannot_grant_more_than_their_writer_has() {
    let held = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["services"]}]);
    let more = role(
        "r",
        json!([{"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["services"]}]),
    );
    let rbac_with = |extra: Value| {
        rbac(
            [
                held.as_array().unwrap().clone(),
                extra.as_array().unwrap().clone(),
            ]
            .concat()
            .into(),
        )
    };
    let plain = rbac_with(json!([]));
    assert!(
        plain
            .check_role(&ann(), &writing("roles"), &role("r", held.clone()), None)
            .is_ok()
    );
    let error = plain
        .check_role(&ann(), &writing("roles"), &more, None)
        .unwrap_err();
    assert_eq!(
        error.message,
        "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"ann\" (groups=[\"dev\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], \
         Resources:[\"services\"], Verbs:[\"delete\"]}"
    );
    let escalate = rbac_with(
        json!([{"verbs": ["escalate"], "apiGroups": [RBAC_GROUP], "resources": ["roles"]}]),
    );
    assert!(
        escalate
            .check_role(&ann(), &writing("roles"), &more, None)
            .is_ok()
    );
    assert!(
        escalate
            .check_role(&ann(), &writing("clusterroles"), &more, None)
            .is_err()
    );
    // Taking the owner away from a role one could not have written is allowed; changing it is not.
    let mut owned = more.clone();
    owned["metadata"]["ownerReferences"] = json!([{"name": "x"}]);
    assert!(
        plain
            .check_role(&ann(), &writing("roles"), &more, Some(&owned))
            .is_ok()
    );
    let gathers = json!({"kind": "ClusterRole", "metadata": {"name": "g"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    let error = plain
        .check_role(&ann(), &writing("clusterroles"), &gathers, None)
        .unwrap_err();
    assert!(
        error
            .message
            .ends_with("must have cluster-admin privileges to use the aggregationRule")
    );
}

#[test]
fn bindings_need_the_rights_or_the_verb_bind() {
    let held = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["services"]}]);
    let more = json!([{"verbs": ["*"], "apiGroups": [""], "resources": ["services"]}]);
    let check = |extra: Value, target: &str| {
        let mut rbac = rbac(
            [
                held.as_array().unwrap().clone(),
                extra.as_array().unwrap().clone(),
            ]
            .concat()
            .into(),
        );
        rbac.apply(&role("small", held.clone()));
        rbac.apply(&role("big", more.clone()));
        let binding = bind("RoleBinding", "shop", "ClusterRole", target, user("bob"));
        rbac.check_binding(&ann(), &writing("rolebindings"), &binding, None)
            .map_err(|error| error.code)
    };
    let may_bind = json!([{"verbs": ["bind"], "apiGroups": [RBAC_GROUP], "resources": ["clusterroles"], "resourceNames": ["big"]}]);
    assert_eq!(check(json!([]), "small"), Ok(()));
    assert_eq!(check(json!([]), "big"), Err(403));
    assert_eq!(check(may_bind.clone(), "big"), Ok(()));
    assert_eq!(check(may_bind, "none"), Err(404));
}
