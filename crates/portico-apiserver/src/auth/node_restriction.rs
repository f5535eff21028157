//! What nodes, and machines that become nodes, may write of the objects that rules let them write:
//! the rules of kube-apiserver's admission plugin NodeRestriction for Nodes and Pods. Leases and
//! names are for `rbac::node`, tokens for [`join`](super::join).
//!
//! In two places it is narrower. Through `nodes/status` a node changes nothing of its metadata
//! unless it may also update its Node, since pools and BGP peers choose nodes by their labels. And
//! a machine that joins is held to the same labels as a node.

use super::join;
use super::rbac::{Request, forbidden};
use super::service_account::Objects;
use super::user::{NODES, User};
use portico_api::object;
use portico_api::status::Result;
use serde_json::{Map, Value};

const MIRROR: &str = "kubernetes.io/config.mirror";
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// Labels of Kubernetes' own domains that a node may give itself; all others of those are for
/// administrators.
const OWN_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const OWN_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];
/// Sources of volumes that refer to no object.
const PLAIN_VOLUMES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Fields anywhere in a Pod's spec that refer to Secrets, ConfigMaps and claims.
const REFERENCES: &[&str] = &[
    "configMapKeyRef",
    "configMapRef",
    "imagePullSecrets",
    "nodePublishSecretRef",
    "resourceClaims",
    "secretKeyRef",
    "secretRef",
];

/// A write that is about to happen.
pub(crate) struct Write<'a> {
    pub user: &'a User,
    pub request: Request<'a>,
    /// As it would be stored; nothing when it is deleted.
    pub new: Option<&'a Value>,
    pub old: Option<&'a Value>,
    /// May the user update the object itself, rather than its status?
    pub may_update_main: bool,
}

/// Whether writes of this resource by this user are restricted.
pub(crate) fn concerns(user: &User, group: &str, resource: &str) -> bool {
    let restricted = user.is_in(NODES) || join::joiner(user).is_some();
    restricted
        && matches!(
            (group, resource),
            ("", "nodes" | "pods") | ("coordination.k8s.io", "leases")
        )
}

/// 403 for what a node may not write.
pub(crate) fn check(write: &Write<'_>, objects: &dyn Objects) -> Result<()> {
    let refused = match write.request.resource {
        "nodes" => write.node(),
        "pods" => write.pod(objects),
        _ => None,
    };
    refused.map_or(Ok(()), |why| Err(forbidden(&write.request, &why)))
}

impl Write<'_> {
    fn who(&self) -> &str {
        self.user.node().unwrap_or_default()
    }

    fn node(&self) -> Option<String> {
        let new = self.new?;
        let Some(old) = self.old else {
            return self.joins(new).or_else(|| self.labels(new, &Value::Null));
        };
        for (path, what) in [
            ("spec.taints", "taints"),
            ("metadata.ownerReferences", "ownerReferences"),
        ] {
            if object::items(new, path) != object::items(old, path) {
                return Some(format!("node {:?} may not change {what}", self.who()));
            }
        }
        self.metadata_by_status(new, old)
            .or_else(|| self.labels(new, old))
    }

    /// A machine that joins makes a Node that its own token can be bound to, and no other's.
    fn joins(&self, new: &Value) -> Option<String> {
        let id = join::joiner(self.user)?;
        let with = entries(new, "metadata.annotations").and_then(|all| all.get(join::JOINED_WITH));
        (with.and_then(Value::as_str) != Some(id)).then(|| {
            format!(
                "the annotation {} must be the id of the token, {id}",
                join::JOINED_WITH
            )
        })
    }

    fn metadata_by_status(&self, new: &Value, old: &Value) -> Option<String> {
        if self.request.subresource != "status" || self.may_update_main {
            return None;
        }
        let same = |path: &str| {
            entries(new, path).unwrap_or(&Map::new()) == entries(old, path).unwrap_or(&Map::new())
        };
        let kept = same("metadata.labels")
            && same("metadata.annotations")
            && object::items(new, "metadata.finalizers")
                == object::items(old, "metadata.finalizers");
        (!kept).then(|| {
            format!(
                "node {:?} may change its status alone: labels, annotations and finalizers need \
                 the right to update nodes",
                self.who()
            )
        })
    }

    fn labels(&self, new: &Value, old: &Value) -> Option<String> {
        let (new, old) = (
            entries(new, "metadata.labels"),
            entries(old, "metadata.labels"),
        );
        let value = |labels: Option<&Map<String, Value>>, key: &str| {
            labels.and_then(|labels| labels.get(key)).cloned()
        };
        let mut refused: Vec<&str> = new
            .into_iter()
            .chain(old)
            .flat_map(Map::keys)
            .filter(|key| value(new, key) != value(old, key) && !is_own_label(key))
            .map(String::as_str)
            .collect();
        refused.sort_unstable();
        refused.dedup();
        let who = &self.user.name;
        (!refused.is_empty()).then(|| {
            format!(
                "{who:?} may not set or change the labels {}",
                refused.join(", ")
            )
        })
    }

    fn pod(&self, objects: &dyn Objects) -> Option<String> {
        let own = self.who();
        let is_here = |pod: &Value| !own.is_empty() && object::text(pod, "spec.nodeName") == own;
        let here = |pod: &Value, what: &str| {
            (!is_here(pod)).then(|| {
                format!("node {own:?} may {what} only pods whose spec.nodeName is its own name")
            })
        };
        match (self.request.subresource, self.new, self.old) {
            ("", None, Some(old)) => here(old, "delete"),
            ("", Some(new), None) => here(new, "create").or_else(|| mirror(own, new, objects)),
            ("status", Some(new), Some(old)) => {
                here(old, "change the status of").or_else(|| pod_status(own, new, old))
            }
            _ => Some(format!(
                "node {own:?} may create and delete mirror pods, and change the status of its own"
            )),
        }
    }
}

fn entries<'a>(object: &'a Value, path: &str) -> Option<&'a Map<String, Value>> {
    object::at(object, path).as_object()
}

/// Whether a node may choose this label of its own. What is of no domain of Kubernetes it may.
fn is_own_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in = |wanted: &str| {
        domain
            .strip_suffix(wanted)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let kubernetes = is_in("kubernetes.io") || is_in("k8s.io");
    !is_in(RESTRICTED)
        && (!kubernetes
            || OWN_LABELS.contains(&key)
            || OWN_DOMAINS.iter().any(|domain| is_in(domain)))
}

/// A mirror pod shows what a node runs by itself: it is the node's, and needs no object.
fn mirror(own: &str, pod: &Value, objects: &dyn Objects) -> Option<String> {
    if entries(pod, "metadata.annotations").is_none_or(|all| !all.contains_key(MIRROR)) {
        return Some(format!(
            "node {own:?} may create only pods with the annotation {MIRROR}"
        ));
    }
    let uid = objects
        .get("Node", "", own)
        .map(|node| object::text(&node, "metadata.uid").to_owned());
    let owned = match object::items(pod, "metadata.ownerReferences") {
        [owner] => {
            let text = |key: &str| object::text(owner, key);
            let flag = |key: &str| object::at(owner, key) == true;
            (text("apiVersion"), text("kind"), text("name")) == ("v1", "Node", own)
                && uid.is_some_and(|uid| uid == text("uid"))
                && flag("controller")
                && !flag("blockOwnerDeletion")
        }
        _ => false,
    };
    if !owned {
        return Some(format!(
            "node {own:?} may create only pods with one owner: its own Node with its uid, as \
             controller and without blockOwnerDeletion"
        ));
    }
    referenced(pod)
        .map(|what| format!("node {own:?} may not create pods that refer to objects: {what}"))
}

/// What in a Pod refers to another object.
fn referenced(pod: &Value) -> Option<String> {
    let spec = object::at(pod, "spec");
    if !object::text(spec, "serviceAccountName").is_empty() {
        return Some("serviceAccountName".to_owned());
    }
    if let Some(key) = find_key(spec, REFERENCES) {
        return Some(key.to_owned());
    }
    object::items(spec, "volumes").iter().find_map(|volume| {
        let sources = volume.as_object()?.keys().filter(|key| *key != "name");
        let plain = |source: &str| match source {
            "projected" => object::items(volume, "projected.sources")
                .iter()
                .all(|part| {
                    part.as_object()
                        .is_some_and(|part| part.keys().all(|key| key == "downwardAPI"))
                }),
            source => PLAIN_VOLUMES.contains(&source),
        };
        let mut others = sources.filter(|source| !plain(source));
        others.next().map(|source| format!("volumes of {source}"))
    })
}

/// One of these keys, wherever it is.
fn find_key<'a>(value: &Value, keys: &[&'a str]) -> Option<&'a str> {
    match value {
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let found = keys.iter().find(|wanted| **wanted == key).copied();
            found
                .filter(|_| value.as_array().is_none_or(|list| !list.is_empty()))
                .or_else(|| find_key(value, keys))
        }),
        Value::Array(items) => items.iter().find_map(|item| find_key(item, keys)),
        _ => None,
    }
}

fn pod_status(own: &str, new: &Value, old: &Value) -> Option<String> {
    const CLAIMS: &[&str] = &[
        "status.resourceClaimStatuses",
        "status.extendedResourceClaimStatus",
        "status.nodeAllocatableResourceClaimStatuses",
    ];
    let labels = |pod: &Value| entries(pod, "metadata.labels").cloned().unwrap_or_default();
    if labels(new) != labels(old) {
        return Some(format!(
            "node {own:?} may not change labels through the status of a pod"
        ));
    }
    let changed = CLAIMS
        .iter()
        .find(|path| object::at(new, path) != object::at(old, path))?;
    Some(format!("node {own:?} may not change {changed}"))
}

#[cfg(test)]
mod tests;
