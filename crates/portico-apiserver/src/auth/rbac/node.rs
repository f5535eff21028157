//! Nodes write only what is theirs. Their rules speak of nodes in general; this is what rules cannot say.

use super::Request;
use crate::auth::user::{NODES, User};
use portico_api::status::{ApiError, Result, Subject};

/// The namespace with one lease per node.
const NODE_LEASES: &str = "kube-node-lease";

/// To be asked once more when the body of a create request is known, with the name that stands in it.
pub fn check_node(user: &User, request: &Request<'_>) -> Result<()> {
    match not_its_own(user, request) {
        Some(why) => {
            Err(ApiError::forbidden(Subject { group: request.group, resource: request.resource }, request.name, why))
        }
        None => Ok(()),
    }
}

/// Why a node may not do this. A member of the nodes' group that is no node owns nothing.
pub(super) fn not_its_own(user: &User, request: &Request<'_>) -> Option<String> {
    let writes = matches!(request.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
    let one_per_node = match (request.group, request.resource) {
        ("", "nodes") => true,
        ("coordination.k8s.io", "leases") => request.namespace == NODE_LEASES,
        _ => false,
    };
    if !(writes && one_per_node && user.is_in(NODES)) {
        return None;
    }
    let own = user.node().unwrap_or_default();
    let not_known_yet = request.verb == "create" && request.name.is_empty();
    let good = !own.is_empty() && (not_known_yet || request.name == own);
    (!good).then(|| format!("node {own:?} may only write its own {}", request.resource))
}
