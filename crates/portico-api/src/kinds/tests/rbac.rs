use super::*;

fn api(plural: &str) -> String {
    format!("rbac.authorization.k8s.io/{plural}")
}

#[test]
fn roles() {
    let good = json!({"metadata": {"name": "system:any thing"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    let created = create(&api("roles"), good.clone()).unwrap();
    assert_eq!(
        cells(&api("roles"), &created),
        ["system:any thing", "2024-01-02T03:04:05Z"]
    );
    let urls = json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]);
    refuses(
        &api("roles"),
        &good,
        &[
            ("metadata.name", json!("a/b"), "metadata.name", INVALID),
            ("rules.0.verbs", json!([]), "rules[0].verbs", REQUIRED),
            (
                "rules.0.apiGroups",
                json!([]),
                "rules[0].apiGroups",
                REQUIRED,
            ),
            (
                "rules.0.resources",
                json!([]),
                "rules[0].resources",
                REQUIRED,
            ),
            ("rules", urls.clone(), "rules[0].nonResourceURLs", INVALID),
        ],
    );
    create(&api("clusterroles"), json!({"rules": urls})).unwrap();
    refuses(
        &api("clusterroles"),
        &good,
        &[(
            "aggregationRule",
            json!({}),
            "aggregationRule.clusterRoleSelectors",
            REQUIRED,
        )],
    );
}

#[test]
fn bindings() {
    let good = json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [
        {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
    ]});
    let created = create(&api("clusterrolebindings"), good.clone()).unwrap();
    assert_eq!(created["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(
        created["subjects"][0]["apiGroup"],
        "rbac.authorization.k8s.io"
    );
    assert_eq!(created["subjects"][2].get("apiGroup"), None);
    assert_eq!(
        cells(&api("clusterrolebindings"), &created),
        ["a", "ClusterRole/r", "10m", "u", "g", "n/s"]
    );
    refuses(
        &api("clusterrolebindings"),
        &good,
        &[
            ("roleRef.kind", json!("Role"), "roleRef.kind", UNSUPPORTED),
            (
                "roleRef.apiGroup",
                json!("x"),
                "roleRef.apiGroup",
                UNSUPPORTED,
            ),
            ("roleRef.name", json!(""), "roleRef.name", REQUIRED),
            ("subjects.0.name", json!(""), "subjects[0].name", REQUIRED),
            (
                "subjects.0.kind",
                json!("Robot"),
                "subjects[0].kind",
                UNSUPPORTED,
            ),
            (
                "subjects.1.apiGroup",
                json!("x"),
                "subjects[1].apiGroup",
                UNSUPPORTED,
            ),
            (
                "subjects.2.apiGroup",
                json!("x"),
                "subjects[2].apiGroup",
                UNSUPPORTED,
            ),
            (
                "subjects.2.namespace",
                json!(""),
                "subjects[2].namespace",
                REQUIRED,
            ),
            ("subjects.2.name", json!("S"), "subjects[2].name", INVALID),
        ],
    );
    let found = update(
        &api("clusterrolebindings"),
        with(&good, &[("roleRef.name", json!("other"))]),
        &created,
    );
    assert_eq!(found, Err(vec![("roleRef".to_owned(), INVALID)]));
    update(
        &api("clusterrolebindings"),
        with(&good, &[("subjects", json!([]))]),
        &created,
    )
    .unwrap();
    let own_namespace = json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "s"}]});
    create(&api("rolebindings"), own_namespace).unwrap();
}
