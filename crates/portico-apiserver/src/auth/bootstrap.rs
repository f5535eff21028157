//! The roles and bindings every server starts with.
//!
//! Besides Portico's own they are those of Kubernetes that people bind to, cut down to the
//! resources there are here. At start the server passes what it has through [`reconciled`], which
//! adds what is missing and removes nothing but a few rules that were too wide.

#[cfg(test)]
mod matrix;
mod reconcile;
mod roles;
#[cfg(test)]
mod tests;

pub(crate) use reconcile::reconciled;

use super::join::JOINERS;
use super::rbac::Rule;
use super::user::{AUTHENTICATED, MASTERS, NODES, SERVICE_ACCOUNTS, UNAUTHENTICATED};
use serde_json::{Value, json};

pub(crate) const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
pub(crate) const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Members may read everything but secrets.
pub(crate) const VIEWERS: &str = "portico:viewers";
pub(crate) const ADMINS: &str = "portico:admins";
pub(crate) const CONTROLLERS: &str = "portico:controllers";
pub(crate) const KUBE_PROXY: &str = "system:kube-proxy";
/// Where nodes report, and what they share is kept.
const SYSTEM: &str = "kube-system";
/// Where each node has its heartbeat.
const NODE_LEASES: &str = "kube-node-lease";

/// Every object to create, roles before the bindings that name them.
pub(crate) fn objects() -> Vec<Value> {
    let cluster_roles = roles::cluster_roles().into_iter();
    let node_roles = [
        (NODE_LEASES, roles::node_leases()),
        (SYSTEM, roles::node_in_system()),
    ]
    .map(|(namespace, rules)| {
        let rules: Vec<Value> = rules.iter().map(Rule::to_value).collect();
        json!({"apiVersion": API_VERSION, "kind": "Role", "rules": rules,
            "metadata": metadata("portico:node", namespace, &[])})
    });
    let others = [
        ("portico:controller", roles::controller_in_system()),
        ("portico:joiner", roles::joiner_in_system()),
    ];
    let other_roles = others.map(|(name, rules)| {
        let rules: Vec<Value> = rules.iter().map(Rule::to_value).collect();
        json!({"apiVersion": API_VERSION, "kind": "Role", "rules": rules, "metadata": metadata(name, SYSTEM, &[])})
    });
    cluster_roles
        .chain(node_roles)
        .chain(other_roles)
        .chain(bindings())
        .collect()
}

fn bindings() -> Vec<Value> {
    let group = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let user =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name});
    let cluster = [
        ("cluster-admin", vec![group(MASTERS)]),
        ("system:discovery", vec![group(AUTHENTICATED)]),
        ("system:basic-user", vec![group(AUTHENTICATED)]),
        (
            "system:public-info-viewer",
            vec![group(AUTHENTICATED), group(UNAUTHENTICATED)],
        ),
        ("system:monitoring", vec![group("system:monitoring")]),
        ("system:node-proxier", vec![user(KUBE_PROXY)]),
        (
            "system:service-account-issuer-discovery",
            vec![group(SERVICE_ACCOUNTS)],
        ),
        ("portico:admin", vec![group(ADMINS)]),
        ("portico:controller", vec![group(CONTROLLERS)]),
        ("portico:joiner", vec![group(JOINERS)]),
        ("portico:node", vec![group(NODES)]),
        ("portico:viewer", vec![group(VIEWERS)]),
    ];
    let cluster = cluster
        .into_iter()
        .map(|(role, subjects)| binding("ClusterRole", role, "", subjects));
    let nodes =
        [NODE_LEASES, SYSTEM].map(|ns| binding("Role", "portico:node", ns, vec![group(NODES)]));
    let others = [
        ("portico:controller", CONTROLLERS),
        ("portico:joiner", JOINERS),
    ];
    let others = others.map(|(role, members)| binding("Role", role, SYSTEM, vec![group(members)]));
    cluster.chain(nodes).chain(others).collect()
}

/// A binding has the name of its role.
fn binding(role_kind: &str, role: &str, namespace: &str, subjects: Vec<Value>) -> Value {
    let kind = if namespace.is_empty() {
        "ClusterRoleBinding"
    } else {
        "RoleBinding"
    };
    json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": metadata(role, namespace, &[]),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": subjects,
    })
}

fn metadata(name: &str, namespace: &str, labels: &[&str]) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTO_UPDATE: "true"},
    });
    for label in labels {
        metadata["labels"][*label] = "true".into();
    }
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    metadata
}
