use super::*;
use crate::auth::rbac::{Action, Rbac, Request};
use crate::auth::user::User;

fn started() -> Rbac {
    let mut rbac = Rbac::default();
    objects().iter().for_each(|object| rbac.apply(object));
    rbac
}

fn may(rbac: &Rbac, user: &User, verb: &str, group: &str, resource: &str, place: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (namespace, name) = place.split_once('/').unwrap_or((place, ""));
    let request = Request {
        verb,
        group,
        resource,
        subresource,
        name,
        namespace,
    };
    rbac.decide(user, &request.into()).allowed
}

#[test]
fn who_may_do_what_on_a_fresh_server() {
    let rbac = started();
    let viewer = User::new("vic", &[VIEWERS]).authenticated();
    let node = User::new("system:node:n1", &[NODES]).authenticated();
    let controller = User::new("lb", &[CONTROLLERS]).authenticated();
    let joiner = User::new("system:bootstrap:abcdef", &[JOINERS]).authenticated();
    let admin = User::new("ada", &[ADMINS]).authenticated();
    let proxy = User::new(KUBE_PROXY, &[]).authenticated();
    let plain = User::new("pat", &[]).authenticated();
    let nobody = User::anonymous();
    let (slices, leases) = ("discovery.k8s.io", "coordination.k8s.io");
    let cases = [
        (&viewer, "list", "", "services", "", true),
        (&viewer, "watch", slices, "endpointslices", "shop", true),
        (&viewer, "get", "portico.dev", "services", "shop/web", true),
        (&viewer, "get", "", "services/status", "shop/web", true),
        (&viewer, "get", "", "secrets", "shop/key", false),
        (&viewer, "list", "", "secrets", "", false),
        (&viewer, "get", "", "pods/exec", "shop/web", false),
        (&viewer, "create", "", "services", "shop", false),
        (&viewer, "patch", "", "services/status", "shop/web", false),
        (&viewer, "delete", leases, "leases", "shop/x", false),
        (&node, "list", "", "services", "", true),
        (&node, "watch", slices, "endpointslices", "", true),
        (&node, "get", "", "secrets", "shop/key", false),
        (&node, "patch", "", "services/status", "shop/web", false),
        (&node, "update", "", "services", "shop/web", false),
        (&node, "patch", "", "nodes/status", "/n1", true),
        (&node, "patch", "", "nodes/status", "/n2", false),
        (&node, "patch", "", "nodes", "/n1", false),
        (&node, "create", "", "events", "shop", true),
        (
            &node,
            "update",
            leases,
            "leases",
            "kube-node-lease/n1",
            true,
        ),
        (&node, "create", leases, "leases", "portico-system", false),
        (
            &node,
            "update",
            leases,
            "leases",
            "kube-system/kube-scheduler",
            false,
        ),
        (
            &node,
            "update",
            leases,
            "leases",
            "kube-system/portico-node-n1",
            true,
        ),
        (
            &node,
            "update",
            leases,
            "leases",
            "kube-system/portico-node-n2",
            false,
        ),
        (&node, "create", leases, "leases", "kube-system", true),
        (&node, "get", "portico.dev", "addresspools", "/a", true),
        (&node, "watch", "portico.dev", "bgppeers", "", true),
        (
            &node,
            "update",
            "portico.dev",
            "addressblocks",
            "/192.0.2.0-24",
            false,
        ),
        (&node, "get", "", "secrets", "kube-system/portico-bgp", true),
        (
            &node,
            "get",
            "",
            "secrets",
            "kube-system/portico-announce",
            true,
        ),
        (&node, "list", "", "secrets", "kube-system", false),
        (&node, "get", "", "secrets", "kube-system/other", false),
        (
            &controller,
            "watch",
            "portico.dev",
            "addresspools",
            "",
            true,
        ),
        (
            &controller,
            "update",
            "portico.dev",
            "addresspools",
            "/a",
            false,
        ),
        (
            &controller,
            "patch",
            "portico.dev",
            "addresspools/status",
            "/a",
            true,
        ),
        (
            &controller,
            "create",
            "portico.dev",
            "addressblocks",
            "",
            true,
        ),
        (
            &controller,
            "delete",
            "portico.dev",
            "addressblocks",
            "/192.0.2.0-24",
            true,
        ),
        (
            &controller,
            "patch",
            "",
            "services/status",
            "shop/web",
            true,
        ),
        (
            &controller,
            "update",
            "",
            "services/finalizers",
            "shop/web",
            false,
        ),
        (&controller, "patch", "", "services", "shop/web", false),
        (&controller, "create", "", "services", "shop", false),
        (&controller, "patch", "", "nodes", "/n1", false),
        (&controller, "get", "", "secrets", "shop/key", false),
        (&controller, "create", "", "secrets", "kube-system", false),
        (
            &controller,
            "create",
            "",
            "secrets",
            "kube-system/portico-announce",
            true,
        ),
        (
            &controller,
            "patch",
            "",
            "secrets",
            "kube-system/bootstrap-token-abcdef",
            false,
        ),
        (
            &controller,
            "update",
            leases,
            "leases",
            "kube-system/portico-controller",
            true,
        ),
        (
            &controller,
            "update",
            leases,
            "leases",
            "kube-system/portico-node-n1",
            false,
        ),
        (
            &controller,
            "update",
            leases,
            "leases",
            "kube-node-lease/n1",
            false,
        ),
        (&controller, "create", "", "secrets", "shop", false),
        (
            &controller,
            "get",
            "",
            "secrets",
            "kube-system/portico-announce",
            false,
        ),
        (
            &controller,
            "create",
            slices,
            "endpointslices",
            "shop",
            true,
        ),
        (
            &node,
            "create",
            "",
            "serviceaccounts/token",
            "kube-system/portico-node",
            true,
        ),
        (
            &node,
            "create",
            "",
            "serviceaccounts/token",
            "kube-system/other",
            false,
        ),
        (&joiner, "create", "", "nodes", "", true),
        (&joiner, "patch", "", "nodes", "/n1", false),
        (&joiner, "patch", "", "nodes/status", "/n1", false),
        (
            &joiner,
            "create",
            "",
            "serviceaccounts/token",
            "kube-system/portico-node",
            true,
        ),
        (
            &joiner,
            "create",
            "",
            "serviceaccounts/token",
            "kube-system/other",
            false,
        ),
        (&joiner, "list", "", "services", "shop", false),
        (
            &joiner,
            "get",
            "",
            "secrets",
            "kube-system/bootstrap-token-abcdef",
            false,
        ),
        (&admin, "delete", "", "services", "shop/web", true),
        (&admin, "get", "", "secrets", "shop/key", false),
        (
            &admin,
            "create",
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            "",
            false,
        ),
        (
            &admin,
            "create",
            "",
            "serviceaccounts/token",
            "kube-system/x",
            false,
        ),
        (&proxy, "watch", slices, "endpointslices", "", true),
        (&proxy, "get", "", "services", "shop/web", false),
        (
            &plain,
            "create",
            "authorization.k8s.io",
            "selfsubjectaccessreviews",
            "",
            true,
        ),
        (&plain, "list", "", "services", "shop", false),
        (
            &nobody,
            "create",
            "authorization.k8s.io",
            "selfsubjectaccessreviews",
            "",
            false,
        ),
        (&nobody, "list", "", "services", "shop", false),
    ];
    for (user, verb, group, resource, place, allowed) in cases {
        assert_eq!(
            may(&rbac, user, verb, group, resource, place),
            allowed,
            "{} {verb} {resource} {place}",
            user.name
        );
    }
}

#[test]
fn anonymous_sees_health_and_version_alone() {
    let rbac = started();
    let reads = |user: &User, path| {
        rbac.decide(user, &Action::NonResource { verb: "get", path })
            .allowed
    };
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert!(reads(&User::anonymous(), path), "{path}");
    }
    for path in [
        "/",
        "/api",
        "/apis",
        "/metrics",
        "/openapi/v2",
        "/livez/etcd",
        "/openid/v1/jwks",
    ] {
        assert!(!reads(&User::anonymous(), path), "{path}");
    }
    let plain = User::new("pat", &[]).authenticated();
    assert!(
        reads(&plain, "/api")
            && reads(&plain, "/apis/discovery.k8s.io/v1")
            && !reads(&plain, "/metrics")
    );
    assert!(reads(
        &User::service_account("shop", "web"),
        "/openid/v1/jwks"
    ));
}

#[test]
fn admin_edit_and_view_in_a_namespace() {
    let mut rbac = started();
    for role in ["admin", "edit", "view"] {
        rbac.apply(&json!({"kind": "RoleBinding", "metadata": {"name": role, "namespace": "shop"},
            "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": role}]}));
    }
    let roles = "rbac.authorization.k8s.io";
    let cases = [
        ("view", "get", "", "services", "shop/web", true),
        ("view", "get", "", "secrets", "shop/key", false),
        ("view", "create", "", "services", "shop", false),
        ("view", "get", "", "services", "bank/web", false),
        ("edit", "get", "", "services", "shop/web", true),
        ("edit", "create", "", "services", "shop", true),
        ("edit", "patch", "", "services/status", "shop/web", false),
        ("edit", "create", roles, "rolebindings", "shop", false),
        ("edit", "delete", "", "namespaces", "shop/shop", false),
        ("admin", "create", "", "services", "shop", true),
        ("admin", "create", roles, "rolebindings", "shop", true),
        ("admin", "get", "", "services", "shop/web", true),
        ("admin", "list", "", "nodes", "", false),
    ];
    for (name, verb, group, resource, place, allowed) in cases {
        assert_eq!(
            may(&rbac, &User::new(name, &[]), verb, group, resource, place),
            allowed,
            "{name} {verb} {resource}"
        );
    }
}

#[test]
fn every_binding_names_a_role_that_is_there() {
    let all = objects();
    for binding in all.iter().filter(|object| object.get("roleRef").is_some()) {
        let role = |object: &&Value| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && (object["kind"] == "ClusterRole"
                    || object["metadata"]["namespace"] == binding["metadata"]["namespace"])
        };
        assert!(all.iter().any(|object| role(&object)), "{binding}");
    }
}

#[test]
fn reconciling_adds_and_never_removes() {
    let expected = objects()
        .into_iter()
        .find(|object| object["metadata"]["name"] == "portico:node")
        .unwrap();
    assert_eq!(reconciled(None, &expected).as_ref(), Some(&expected));
    assert_eq!(reconciled(Some(&expected), &expected), None);

    let mut stripped = expected.clone();
    let own = json!({"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["gadgets"]});
    stripped["rules"] = json!([own]);
    stripped["metadata"]["labels"] = json!({"mine": "yes"});
    let merged = reconciled(Some(&stripped), &expected).unwrap();
    assert_eq!(merged["rules"][0], own);
    assert!(
        crate::auth::rbac::uncovered(
            &Rule::parse_all(&merged["rules"]),
            &Rule::parse_all(&expected["rules"])
        )
        .is_empty()
    );
    assert_eq!(
        merged["metadata"]["labels"],
        json!({"mine": "yes", "kubernetes.io/bootstrapping": "rbac-defaults"})
    );
    assert_eq!(reconciled(Some(&merged), &expected), None);

    stripped["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
    assert_eq!(reconciled(Some(&stripped), &expected), None);
}

#[test]
fn what_was_too_wide_is_taken_back() {
    let find = |kind: &str| {
        objects()
            .into_iter()
            .find(|o| o["kind"] == kind && o["metadata"]["name"] == "portico:controller")
            .unwrap()
    };
    let secrets = json!({"verbs": ["create"], "apiGroups": [""], "resources": ["secrets"]});
    let services = json!({"verbs": ["get", "list", "watch", "update", "patch"], "apiGroups": [""], "resources": ["services"]});
    let own = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"]});
    for (kind, wide) in [("Role", secrets), ("ClusterRole", services)] {
        let expected = find(kind);
        let mut before = expected.clone();
        let rules = before["rules"].as_array_mut().unwrap();
        rules.extend([wide.clone(), own.clone()]);
        let after = reconciled(Some(&before), &expected).unwrap();
        let rules = after["rules"].as_array().unwrap();
        assert!(!rules.contains(&wide) && rules.contains(&own), "{rules:?}");
        before["metadata"]["annotations"][AUTO_UPDATE] = "false".into();
        assert_eq!(reconciled(Some(&before), &expected), None);
    }
}

#[test]
fn reconciling_bindings_and_aggregation() {
    let find = |kind: &str, name: &str| {
        objects()
            .into_iter()
            .find(|o| o["kind"] == kind && o["metadata"]["name"] == name)
            .unwrap()
    };
    let expected = find("ClusterRoleBinding", "system:public-info-viewer");
    let mut existing = expected.clone();
    existing["subjects"] = json!([expected["subjects"][1], {"kind": "User", "name": "ann"}]);
    let merged = reconciled(Some(&existing), &expected).unwrap();
    assert_eq!(merged["subjects"].as_array().unwrap().len(), 3);
    let expected = find("ClusterRole", "view");
    let mut existing = expected.clone();
    existing.as_object_mut().unwrap().remove("aggregationRule");
    assert_eq!(
        reconciled(Some(&existing), &expected).unwrap()["aggregationRule"],
        expected["aggregationRule"]
    );
    let expected = find("ClusterRole", "system:basic-user");
    let mut existing = expected.clone();
    existing["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
    assert_eq!(reconciled(Some(&existing), &expected), Some(expected));
}
