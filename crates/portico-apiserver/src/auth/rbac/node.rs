//! Nodes write only what is theirs. Their rules speak of nodes in general; this is what rules
//! cannot say.

use super::Request;
use crate::auth::user::{NODES, User};
use portico_api::status::{ApiError, Result, Subject};

/// The namespace with one lease per node.
const NODE_LEASES: &str = "kube-node-lease";
/// Where each node has a lease for its report, among those of others.
const SYSTEM: &str = "kube-system";
const REPORT_PREFIX: &str = "portico-node-";

/// Checks a request of a node. A create is checked once more with the name in its body, when that
/// is known.
pub(crate) fn check_node(user: &User, request: &Request<'_>) -> Result<()> {
    not_its_own(user, request).map_or(Ok(()), |why| Err(forbidden(request, &why)))
}

pub(crate) fn forbidden(request: &Request<'_>, why: &str) -> ApiError {
    ApiError::forbidden(
        Subject {
            group: request.group,
            resource: request.resource,
        },
        request.name,
        why,
    )
}

/// Why a node may not do this. A member of the nodes' group that is no node owns nothing.
pub(super) fn not_its_own(user: &User, request: &Request<'_>) -> Option<String> {
    let writes = matches!(
        request.verb,
        "create" | "update" | "patch" | "delete" | "deletecollection"
    );
    if !(writes && user.is_in(NODES)) {
        return None;
    }
    let own = user.node().unwrap_or_default();
    let prefix = match (request.group, request.resource, request.namespace) {
        ("", "nodes", _) | ("coordination.k8s.io", "leases", NODE_LEASES) => "",
        ("coordination.k8s.io", "leases", SYSTEM) => REPORT_PREFIX,
        ("coordination.k8s.io", "leases", _) => {
            return Some(format!(
                "node {own:?} may write leases only in {NODE_LEASES} and {SYSTEM}"
            ));
        }
        // Which pods are its own stands in them: see `node_restriction`.
        ("", "pods", _) if own.is_empty() || request.verb == "deletecollection" => {
            return Some(format!("node {own:?} may only write its own pods"));
        }
        _ => return None,
    };
    let not_known_yet = request.verb == "create" && request.name.is_empty();
    let good = !own.is_empty() && (not_known_yet || request.name.strip_prefix(prefix) == Some(own));
    (!good).then(|| format!("node {own:?} may only write its own {}", request.resource))
}
