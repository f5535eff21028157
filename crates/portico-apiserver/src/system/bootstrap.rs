//! The namespaces and access rules that every cluster begins with.

use super::{ensure, put};
use crate::auth::bootstrap::{objects, reconciled};
use crate::registry::{Registry, key};
use portico_api::codec::stored;
use portico_api::object;
use portico_api::status::{ApiError, Result};
use serde_json::{Value, json};

const NAMESPACES: &[&str] = &[
    "default",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "portico-system",
];

pub(crate) async fn bootstrap(registry: &Registry) -> Result<()> {
    let namespaces = registry.core_kind("namespaces")?;
    for name in NAMESPACES {
        ensure(
            registry,
            namespaces.as_ref(),
            json!({"metadata": {"name": name}}),
        )
        .await?;
    }
    for object in objects() {
        match access_rule(registry, object).await {
            // The server comes up without a rule that it cannot read: it grants nothing then.
            Err(error) if !registry.store.damaged().is_empty() => {
                tracing::error!("cannot write an access rule: {}", error.message);
            }
            result => result?,
        }
    }
    Ok(())
}

/// Create a role or binding, or fill up what an older version of it lacks.
async fn access_rule(registry: &Registry, wanted: Value) -> Result<()> {
    let plural = match object::text(&wanted, "kind") {
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        _ => "rolebindings",
    };
    let kind = registry
        .kind("rbac.authorization.k8s.io", "v1", plural)
        .ok_or_else(|| ApiError::internal(format!("{plural} are not served")))?;
    let key = key(
        kind.as_ref(),
        object::namespace(&wanted),
        object::name(&wanted),
    );
    let Some(entry) = registry.store.get(&key) else {
        return ensure(registry, kind.as_ref(), wanted).await;
    };
    let live = stored::load(&entry.value, entry.modified).map_err(ApiError::internal)?;
    match reconciled(Some(&live), &wanted) {
        Some(better) => put(registry, kind.as_ref(), better).await,
        None => Ok(()),
    }
}
