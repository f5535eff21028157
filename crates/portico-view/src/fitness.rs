//! May load balancers send traffic to a node? Decided as the service controller of Kubernetes
//! decides it, for the controller, announcing, DNS and every tool that shows nodes.

use k8s_openapi::api::core::v1::Node;
pub use portico_model::objects::TO_BE_DELETED_TAINT;
use std::fmt;

/// A node with this label gets no traffic from load balancers, unless its value means false.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Why load balancers may not use a node.
///
/// A node that is cordoned, or not ready, may be used: its health check takes it out, so that its
/// connections can end in peace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The Node has a deletion timestamp.
    BeingDeleted,
    /// The Node has the label [`EXCLUDE_LABEL`], and its value does not mean false.
    Excluded,
    /// The Node has the taint [`TO_BE_DELETED_TAINT`].
    ToBeDeletedByAutoscaler,
}

impl Unfit {
    /// The reason as the predicate of a sentence about the node.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeingDeleted => "is being deleted",
            Self::Excluded => {
                "has the label node.kubernetes.io/exclude-from-external-load-balancers"
            }
            Self::ToBeDeletedByAutoscaler => "is about to be deleted by the cluster autoscaler",
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What of a Node decides: for callers that read Nodes in their own form.
pub struct Marks<'a, T> {
    /// Whether the Node has a deletion timestamp.
    pub being_deleted: bool,
    /// The value of [`EXCLUDE_LABEL`], where the node has that label.
    pub exclude_label: Option<&'a str>,
    /// The keys of its taints.
    pub taints: T,
}

impl<'a, T: IntoIterator<Item = &'a str>> Marks<'a, T> {
    /// Why load balancers may not use this node; `None` where they may.
    pub fn unfit(self) -> Option<Unfit> {
        if self.being_deleted {
            return Some(Unfit::BeingDeleted);
        }
        if self.exclude_label.is_some_and(excludes) {
            return Some(Unfit::Excluded);
        }
        let mut taints = self.taints.into_iter();
        taints
            .any(|key| key == TO_BE_DELETED_TAINT)
            .then_some(Unfit::ToBeDeletedByAutoscaler)
    }
}

/// Why load balancers may not use this node; `None` where they may.
pub fn unfit(node: &Node) -> Option<Unfit> {
    let labels = node.metadata.labels.as_ref();
    let spec = node.spec.as_ref();
    let taints = spec
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let marks = Marks {
        being_deleted: node.metadata.deletion_timestamp.is_some(),
        exclude_label: labels
            .and_then(|labels| labels.get(EXCLUDE_LABEL))
            .map(String::as_str),
        taints: taints.iter().map(|taint| taint.key.as_str()),
    };
    marks.unfit()
}

/// The values that Go's `strconv.ParseBool` reads as false do not exclude. A value that is no
/// boolean excludes, as in Kubernetes.
fn excludes(value: &str) -> bool {
    !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn labelled(value: &str) -> Value {
        json!({"metadata": {"labels": {EXCLUDE_LABEL: value}}})
    }

    #[test]
    fn which_nodes_load_balancers_may_use() {
        let excluded = Some(Unfit::Excluded);
        let table = [
            (json!({}), None),
            (labelled(""), excluded),
            (labelled("true"), excluded),
            (labelled("perhaps"), excluded),
            (labelled("false"), None),
            (labelled("0"), None),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                Some(Unfit::BeingDeleted),
            ),
            (
                json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"},
                    {"key": TO_BE_DELETED_TAINT, "effect": "NoSchedule"}]}}),
                Some(Unfit::ToBeDeletedByAutoscaler),
            ),
            (json!({"spec": {"unschedulable": true}}), None),
            (
                json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
                None,
            ),
        ];
        for (node, expected) in table {
            let parsed: Node = serde_json::from_value(node.clone()).unwrap();
            assert_eq!(unfit(&parsed), expected, "{node}");
        }
    }
}
