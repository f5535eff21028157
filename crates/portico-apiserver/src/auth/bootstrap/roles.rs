//! The ClusterRoles, as tables.

use super::{API_VERSION, metadata};
use crate::auth::join;
use crate::auth::rbac::Rule;
use serde_json::{Value, json};

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];
const ALL: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
const CHANGE: &[&str] = &["update", "patch"];
const RECORD: &[&str] = &["create", "update", "patch"];

const CORE: &[&str] = &[""];
const EVENTS: &[&str] = &["", "events.k8s.io"];
const DISCOVERY: &[&str] = &["discovery.k8s.io"];
const COORDINATION: &[&str] = &["coordination.k8s.io"];
const NETWORKING: &[&str] = &["networking.k8s.io"];
const RBAC: &[&str] = &["rbac.authorization.k8s.io"];
const AUTHORIZATION: &[&str] = &["authorization.k8s.io"];
const AUTHENTICATION: &[&str] = &["authentication.k8s.io"];
const PORTICO: &[&str] = &["portico.dev"];

/// Everything in the core group but secrets, and but subresources that give access to more than the
/// object.
const VISIBLE_CORE: &[&str] = &[
    "services",
    "endpoints",
    "nodes",
    "namespaces",
    "pods",
    "events",
    "serviceaccounts",
    "configmaps",
    "replicationcontrollers",
    "persistentvolumes",
    "persistentvolumeclaims",
    "limitranges",
    "resourcequotas",
    "podtemplates",
    "componentstatuses",
    "bindings",
    "*/status",
];
/// Groups in which nothing is secret.
const VISIBLE_GROUPS: &[&str] = &[
    "discovery.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "portico.dev",
    "apps",
    "batch",
    "autoscaling",
    "policy",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "admissionregistration.k8s.io",
    "storage.k8s.io",
    "scheduling.k8s.io",
    "node.k8s.io",
];
/// Secrets in `kube-system` that nodes may read: passwords of BGP peers, and the key with which
/// nodes know each other.
const NODE_SECRETS: &[&str] = &["portico-bgp", ANNOUNCE_KEY];
const ANNOUNCE_KEY: &str = "portico-announce";
const CONTROLLER: &str = "portico:controller";
/// The Leases by which replicas of `portico controller` elect the one that works.
const ELECTIONS: &[&str] = &[
    "portico-controller",
    "portico-endpoint-controller",
    "portico-endpoint-health",
];
const HEALTH: &[&str] = &["/livez", "/readyz", "/healthz"];
const HEALTH_DETAILS: &[&str] = &[
    "/livez",
    "/readyz",
    "/healthz",
    "/livez/*",
    "/readyz/*",
    "/healthz/*",
    "/metrics",
    "/metrics/slis",
];

const TO_ADMIN: &str = "rbac.authorization.k8s.io/aggregate-to-admin";
const TO_EDIT: &str = "rbac.authorization.k8s.io/aggregate-to-edit";
const TO_VIEW: &str = "rbac.authorization.k8s.io/aggregate-to-view";

pub(super) fn cluster_roles() -> Vec<Value> {
    let discovery = [
        "/version",
        "/version/",
        "/openapi",
        "/openapi/*",
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
    ];
    let keys = [
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/",
        "/openid/v1/jwks",
        "/openid/v1/jwks/",
    ];
    vec![
        role("cluster-admin", &[], &Rule::everything()),
        role(
            "system:discovery",
            &[],
            &[urls(&[HEALTH, &discovery].concat())],
        ),
        role(
            "system:monitoring",
            &[],
            &[
                urls(HEALTH_DETAILS),
                rule(&["get"], CORE, &["nodes/metrics"]),
            ],
        ),
        role("system:basic-user", &[], &basic_user()),
        role(
            "system:public-info-viewer",
            &[],
            &[urls(&[HEALTH, &["/version", "/version/"]].concat())],
        ),
        role(
            "system:service-account-issuer-discovery",
            &[],
            &[urls(&keys)],
        ),
        role("system:node-proxier", &[], &node_proxier()),
        role("system:auth-delegator", &[], &auth_delegator()),
        gathering("admin", &[], TO_ADMIN),
        gathering("edit", &[TO_ADMIN], TO_EDIT),
        gathering("view", &[TO_EDIT], TO_VIEW),
        role("system:aggregate-to-admin", &[TO_ADMIN], &namespace_admin()),
        role("system:aggregate-to-edit", &[TO_EDIT], &namespace_editor()),
        role("system:aggregate-to-view", &[TO_VIEW], &namespace_viewer()),
        role("portico:admin", &[], &portico_admin()),
        role("portico:controller", &[], &controller()),
        role("portico:joiner", &[], &joiner()),
        role("portico:node", &[], &node()),
        role("portico:viewer", &[], &viewer()),
    ]
}

/// The rights of nodes in the namespace of heartbeats: their Leases.
pub(super) fn node_leases() -> Vec<Rule> {
    vec![rule(
        &[
            "get", "list", "watch", "create", "update", "patch", "delete",
        ],
        COORDINATION,
        &["leases"],
    )]
}

/// The rights of nodes in `kube-system`: the report of each (`node_restriction` allows only its
/// own), and the Secrets that nodes share.
pub(super) fn node_in_system() -> Vec<Rule> {
    let secrets = Rule {
        names: owned(NODE_SECRETS),
        ..rule(READ, CORE, &["secrets"])
    };
    vec![
        rule(
            &["get", "list", "watch", "create", "update", "patch"],
            COORDINATION,
            &["leases"],
        ),
        secrets,
        node_token(),
    ]
}

/// The rights of joining machines in `kube-system`: a token for the Node that was made.
/// [`join::check_request`] refuses tokens for others.
pub(super) fn joiner_in_system() -> Vec<Rule> {
    vec![node_token()]
}

fn node_token() -> Rule {
    Rule {
        names: owned(&[join::ACCOUNT]),
        ..rule(&["create"], CORE, &["serviceaccounts/token"])
    }
}

/// Makes its Node. It may change none, so that it takes none over.
fn joiner() -> Vec<Rule> {
    vec![rule(&["create"], CORE, &["nodes"])]
}

/// The rights of the controller in `kube-system`: the elections, the reports of nodes, and the key
/// by which nodes authenticate each other. The key is applied under its own name: a create by POST
/// has no name that a rule could match, and a user who may create any Secret here can make a join
/// token.
pub(super) fn controller_in_system() -> Vec<Rule> {
    let election = Rule {
        names: owned(ELECTIONS),
        ..rule(&["get", "update", "patch"], COORDINATION, &["leases"])
    };
    let key = Rule {
        names: owned(&[ANNOUNCE_KEY]),
        ..rule(&["create", "patch"], CORE, &["secrets"])
    };
    vec![
        rule(&["list", "watch", "create"], COORDINATION, &["leases"]),
        election,
        key,
    ]
}

/// What the role `portico:controller` allowed in former versions and its daemon never needed. An
/// autoupdate only adds, so these are taken out by name.
pub(super) fn withdrawn(namespace: &str, role: &str) -> Vec<Rule> {
    match (namespace, role) {
        ("", CONTROLLER) => vec![
            rule(
                &["get", "list", "watch", "update", "patch"],
                CORE,
                &["services"],
            ),
            rule(CHANGE, CORE, &["services/finalizers"]),
            rule(
                &[
                    "get", "list", "watch", "create", "update", "patch", "delete",
                ],
                COORDINATION,
                &["leases"],
            ),
        ],
        ("kube-system", CONTROLLER) => vec![rule(&["create"], CORE, &["secrets"])],
        _ => vec![],
    }
}

fn basic_user() -> Vec<Rule> {
    vec![
        rule(
            &["create"],
            AUTHORIZATION,
            &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        ),
        rule(&["create"], AUTHENTICATION, &["selfsubjectreviews"]),
    ]
}

fn node_proxier() -> Vec<Rule> {
    vec![
        rule(&["list", "watch"], CORE, &["services", "endpoints"]),
        rule(READ, CORE, &["nodes"]),
        rule(RECORD, EVENTS, &["events"]),
        rule(&["list", "watch"], NETWORKING, &["servicecidrs"]),
        rule(&["list", "watch"], DISCOVERY, &["endpointslices"]),
    ]
}

fn auth_delegator() -> Vec<Rule> {
    vec![
        rule(&["create"], AUTHENTICATION, &["tokenreviews"]),
        rule(&["create"], AUTHORIZATION, &["subjectaccessreviews"]),
    ]
}

fn namespace_admin() -> Vec<Rule> {
    vec![
        rule(&["create"], AUTHORIZATION, &["localsubjectaccessreviews"]),
        rule(ALL, RBAC, &["roles", "rolebindings"]),
    ]
}

/// Writes what users own; status belongs to the system.
fn namespace_editor() -> Vec<Rule> {
    vec![
        rule(READ, CORE, &["secrets"]),
        rule(&["impersonate"], CORE, &["serviceaccounts"]),
        rule(
            WRITE,
            CORE,
            &[
                "services",
                "pods",
                "serviceaccounts",
                "configmaps",
                "secrets",
            ],
        ),
        rule(&["create"], CORE, &["serviceaccounts/token"]),
        rule(WRITE, EVENTS, &["events"]),
        rule(WRITE, NETWORKING, &["ingresses", "networkpolicies"]),
        rule(ALL, COORDINATION, &["leases"]),
        rule(WRITE, PORTICO, &["services"]),
    ]
}

fn namespace_viewer() -> Vec<Rule> {
    let core = [
        "services",
        "services/status",
        "endpoints",
        "pods",
        "pods/status",
        "serviceaccounts",
        "configmaps",
        "namespaces",
        "namespaces/status",
    ];
    vec![
        rule(READ, CORE, &core),
        rule(READ, EVENTS, &["events"]),
        rule(READ, DISCOVERY, &["endpointslices"]),
        rule(
            READ,
            NETWORKING,
            &["ingresses", "ingresses/status", "networkpolicies"],
        ),
        rule(READ, PORTICO, &["services", "services/status"]),
    ]
}

/// Runs the load balancing, but hands out no rights and sees no secrets.
fn portico_admin() -> Vec<Rule> {
    let core = [
        "services",
        "services/status",
        "endpoints",
        "nodes",
        "nodes/status",
        "namespaces",
        "namespaces/status",
        "namespaces/finalize",
        "pods",
        "pods/status",
        "configmaps",
        "serviceaccounts",
    ];
    let mut rules = vec![
        rule(ALL, CORE, &core),
        rule(ALL, EVENTS, &["events"]),
        rule(ALL, DISCOVERY, &["endpointslices"]),
        rule(ALL, COORDINATION, &["leases"]),
        rule(
            ALL,
            NETWORKING,
            &["servicecidrs", "servicecidrs/status", "ipaddresses"],
        ),
        rule(ALL, PORTICO, &["*"]),
    ];
    rules.extend(viewer());
    rules
}

/// Gives Services their load balancers and tells so in their status, which takes finalizers too.
fn controller() -> Vec<Rule> {
    vec![
        rule(&["get", "update", "patch"], CORE, &["services/status"]),
        rule(READ, CORE, &["services", "nodes", "namespaces", "pods"]),
        rule(ALL, CORE, &["endpoints"]),
        rule(ALL, DISCOVERY, &["endpointslices"]),
        rule(RECORD, EVENTS, &["events"]),
        rule(READ, NETWORKING, &["servicecidrs", "ipaddresses"]),
        rule(READ, PORTICO, &["*"]),
        rule(
            &["create", "update", "patch", "delete"],
            PORTICO,
            &["addressblocks"],
        ),
        rule(
            &["get", "update", "patch"],
            PORTICO,
            &["addresspools/status"],
        ),
    ]
}

/// Reads what it forwards. Of nodes it writes only the status, and the decision sees to it that it
/// is its own.
fn node() -> Vec<Rule> {
    vec![
        rule(
            READ,
            CORE,
            &["services", "endpoints", "nodes", "pods", "namespaces"],
        ),
        rule(READ, DISCOVERY, &["endpointslices"]),
        rule(READ, NETWORKING, &["servicecidrs"]),
        rule(READ, PORTICO, &["*"]),
        rule(CHANGE, CORE, &["nodes/status"]),
        rule(RECORD, EVENTS, &["events"]),
    ]
}

fn viewer() -> Vec<Rule> {
    vec![
        rule(READ, CORE, VISIBLE_CORE),
        rule(READ, VISIBLE_GROUPS, &["*"]),
        urls(HEALTH_DETAILS),
    ]
}

fn role(name: &str, labels: &[&str], rules: &[Rule]) -> Value {
    let rules: Vec<Value> = rules.iter().map(Rule::to_value).collect();
    json!({"apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": metadata(name, "", labels), "rules": rules})
}

/// A role with the rules of all roles that carry a label.
fn gathering(name: &str, labels: &[&str], label: &str) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "ClusterRole",
        "metadata": metadata(name, "", labels),
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
    })
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Rule {
    Rule {
        verbs: owned(verbs),
        groups: owned(groups),
        resources: owned(resources),
        ..Rule::default()
    }
}

fn urls(urls: &[&str]) -> Rule {
    Rule {
        verbs: owned(&["get"]),
        urls: owned(urls),
        ..Rule::default()
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|item| (*item).to_owned()).collect()
}
