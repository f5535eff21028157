//! How a machine becomes a node. It begins with a join token, `ID.SECRET`, which is the Secret
//! `bootstrap-token-ID` in `kube-system` as in Kubernetes. With it the machine makes its Node, and
//! asks for a token of the ServiceAccount [`ACCOUNT`] that is bound to that Node: the bearer of
//! such a token is the node, and the token is void when the Node is gone.

use super::rbac::{Request, forbidden};
use super::service_account::Objects;
use super::user::{NODE_PREFIX, NODES, User};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use portico_api::object;
use portico_api::status::Result;
use serde_json::Value;

pub(crate) const NAMESPACE: &str = "kube-system";
/// Its tokens that are bound to a Node are that node's.
pub(crate) const ACCOUNT: &str = "portico-node";
pub(crate) const JOINERS: &str = "system:bootstrappers";
/// On a Node: the ID of the token that it joined with.
pub(crate) const JOINED_WITH: &str = "portico.dev/joined-with";

const JOINER_PREFIX: &str = "system:bootstrap:";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// A token for a node is good for so long at most.
const MOST_SECONDS: i64 = 30 * 24 * 3600;

/// The user of a join token; `None` if the token does not count. Takes as long for every wrong
/// secret.
pub(crate) fn authenticate(token: &str, objects: &dyn Objects, now: Timestamp) -> Option<User> {
    let (id, secret) = split(token)?;
    let found = objects.get("Secret", NAMESPACE, &format!("bootstrap-token-{id}"))?;
    let value = |key: &str| {
        let bytes = STANDARD
            .decode(found.get("data")?.get(key)?.as_str()?)
            .ok()?;
        String::from_utf8(bytes).ok()
    };
    let is_token = object::text(&found, "type") == SECRET_TYPE
        && object::text(&found, "metadata.deletionTimestamp").is_empty()
        && value("token-id").as_deref() == Some(id)
        && value("usage-bootstrap-authentication").as_deref() == Some("true");
    let is_known =
        value("token-secret").is_some_and(|known| super::authenticate::same_secret(&known, secret));
    // One without an end is taken for one that has ended.
    let is_young = value("expiration")
        .and_then(|end| end.parse::<Timestamp>().ok())
        .is_some_and(|end| now < end);
    (is_token && is_known && is_young)
        .then(|| User::new(&format!("{JOINER_PREFIX}{id}"), &[JOINERS]))
}

/// ID and secret of something that looks like a join token.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (id.len() == ID_LENGTH && secret.len() == SECRET_LENGTH && plain(id) && plain(secret))
        .then_some((id, secret))
}

/// The user of a service account's token that is bound to this Node.
pub(crate) fn node_of(namespace: &str, account: &str, node: &str) -> Option<User> {
    let is_nodes = (namespace, account) == (NAMESPACE, ACCOUNT) && !node.is_empty();
    is_nodes.then(|| User::new(&format!("{NODE_PREFIX}{node}"), &[NODES]))
}

/// The id of the join token that this user came with, if it did.
pub(crate) fn joiner(user: &User) -> Option<&str> {
    user.name
        .strip_prefix(JOINER_PREFIX)
        .filter(|_| user.is_in(JOINERS))
}

/// Nodes ask for tokens of their own, and of the pods that run on them; a joining machine for
/// tokens of the Node that it made. `may` tells whether the user is allowed a request.
pub(crate) fn check_request(
    user: &User,
    request: &Request<'_>,
    asked: &Value,
    objects: &dyn Objects,
    may: &dyn Fn(&Request<'_>) -> bool,
) -> Result<()> {
    let joiner = joiner(user);
    if !user.is_in(NODES) && joiner.is_none() {
        return Ok(());
    }
    if (request.namespace, request.name) != (NAMESPACE, ACCOUNT) {
        return match user.node() {
            Some(node) => of_a_pod(node, request, asked, objects, may),
            None => Err(forbidden(
                request,
                &format!("{} may only ask for a token of its own Node", user.name),
            )),
        };
    }
    let reference = object::at(asked, "spec.boundObjectRef");
    let (kind, name) = (
        object::text(reference, "kind"),
        object::text(reference, "name"),
    );
    let node = objects.get("Node", "", name).filter(|_| kind == "Node");
    let joined_with = |node: &Value| {
        node.pointer("/metadata/annotations")
            .and_then(|all| all.get(JOINED_WITH))
            .cloned()
    };
    let own = match joiner {
        Some(id) => node.is_some_and(|node| joined_with(&node).is_some_and(|with| with == id)),
        None => node.is_some() && user.node() == Some(name),
    };
    let short = object::at(asked, "spec.expirationSeconds")
        .as_i64()
        .is_none_or(|seconds| seconds <= MOST_SECONDS);
    // For others than this server a node speaks by the tokens of its pods.
    let for_this_server = object::items(asked, "spec.audiences").is_empty();
    match own && short && for_this_server {
        true => Ok(()),
        false => Err(forbidden(
            request,
            &format!(
                "{} may only ask for a token that is bound to its own Node, for this server, and \
                 for {MOST_SECONDS} s at most",
                user.name
            ),
        )),
    }
}

/// The token of a service account that a pod on this node runs as, for an audience that the pod has
/// in its spec.
fn of_a_pod(
    node: &str,
    request: &Request<'_>,
    asked: &Value,
    objects: &dyn Objects,
    may: &dyn Fn(&Request<'_>) -> bool,
) -> Result<()> {
    let refuse = |why: &str| Err(forbidden(request, &format!("node {node:?} {why}")));
    let reference = object::at(asked, "spec.boundObjectRef");
    let text = |key: &str| object::text(reference, key);
    if (text("apiVersion"), text("kind")) != ("v1", "Pod")
        || text("name").is_empty()
        || text("uid").is_empty()
    {
        return refuse("may only ask for tokens that are bound to a pod by its name and uid");
    }
    let pod = objects.get("Pod", request.namespace, text("name"));
    let Some(pod) = pod.filter(|pod| {
        object::text(pod, "metadata.uid") == text("uid")
            && object::text(pod, "spec.nodeName") == node
    }) else {
        return refuse("may only ask for tokens of pods that run on it");
    };
    let audience = match object::items(asked, "spec.audiences") {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return refuse("may ask for one audience at a time"),
    };
    let in_pod = object::items(&pod, "spec.volumes")
        .iter()
        .flat_map(|volume| object::items(volume, "projected.sources"))
        .map(|source| object::at(source, "serviceAccountToken"))
        .any(|token| token.is_object() && object::text(token, "audience") == audience);
    let for_audience = Request {
        verb: "request-serviceaccounts-token-audience",
        resource: audience,
        subresource: "",
        ..*request
    };
    if in_pod || may(&for_audience) {
        return Ok(());
    }
    refuse(&format!(
        "may only ask for audiences that the pod has in a volume, not {audience:?}"
    ))
}

#[cfg(test)]
mod tests;
