//! The cluster's nodes: which there are, and which of them load balancers may send traffic to.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node as ApiNode;

use portico_view::fitness;

use crate::provider::Node;

const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Debug, Default)]
pub(super) struct Nodes {
    /// With what a load balancer has to know of it, if it may get traffic.
    all: BTreeMap<Arc<str>, Option<Node>>,
    fit: Arc<[Node]>,
}

impl Nodes {
    /// Says whether this changes anything.
    pub(super) fn apply(&mut self, node: &ApiNode) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let facts = fitness::unfit(node).is_none().then(|| facts(name, node));
        self.all.insert(name.into(), facts.clone()) != Some(facts)
    }

    pub(super) fn delete(&mut self, name: &str) -> bool {
        self.all.remove(name).is_some()
    }

    /// Forget those that a list did not have.
    pub(super) fn retain(&mut self, listed: impl Fn(&str) -> bool) -> bool {
        let before = self.all.len();
        self.all.retain(|name, _| listed(name));
        self.all.len() != before
    }

    /// The nodes that load balancers may send traffic to, sorted by name: as of the last
    /// [`Nodes::settle`].
    pub(super) fn fit(&self) -> &Arc<[Node]> {
        &self.fit
    }

    /// Many changes in a short time become one. Says whether there is one.
    pub(super) fn settle(&mut self) -> bool {
        let fit: Arc<[Node]> = self.all.values().flatten().cloned().collect();
        let changed = fit != self.fit;
        if changed {
            self.fit = fit;
        }
        changed
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    pub(super) fn is_fit(&self, name: &str) -> bool {
        self.all.get(name).is_some_and(Option::is_some)
    }
}

fn facts(name: &str, node: &ApiNode) -> Node {
    let addresses = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default();
    let of_type = |wanted: &'static str| {
        let matching = addresses
            .iter()
            .filter(move |address| address.type_ == wanted);
        matching.filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let zone = node
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(ZONE));
    Node {
        name: name.to_owned(),
        provider_id: node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.clone())
            .unwrap_or_default(),
        zone: zone.cloned().unwrap_or_default(),
        addresses: of_type("InternalIP").chain(of_type("ExternalIP")).collect(),
        version: version(node),
    }
}

/// The version of the proxy, which is what answers for a node; a kubelet that does not know it has
/// the same or a newer one.
fn version(node: &ApiNode) -> String {
    let info = node
        .status
        .as_ref()
        .and_then(|status| status.node_info.as_ref());
    let versions = info.map(|info| [&info.kube_proxy_version, &info.kubelet_version]);
    versions
        .into_iter()
        .flatten()
        .find(|version| !version.is_empty())
        .cloned()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(change: impl FnOnce(&mut Value)) -> ApiNode {
        let mut node = json!({
            "metadata": {"name": "a", "labels": {}}, "spec": {"providerID": "x://1"},
            "status": {"conditions": [{"type": "Ready", "status": "False"}],
                "addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "InternalIP", "address": "10.0.0.1"},
                    {"type": "Hostname", "address": "a"}]},
        });
        change(&mut node);
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn who_may_get_traffic() {
        let labelled = |value: &'static str| {
            move |node: &mut Value| {
                node["metadata"]["labels"][fitness::EXCLUDE_LABEL] = value.into()
            }
        };
        let cases: [(&str, ApiNode, bool); 7] = [
            ("not ready", node(|_| {}), true),
            ("excluded", node(labelled("true")), false),
            ("excluded without a value", node(labelled("")), false),
            ("excluded with nonsense", node(labelled("maybe")), false),
            ("not excluded", node(labelled("false")), true),
            (
                "going",
                node(|node| {
                    node["spec"]["taints"] =
                        json!([{"key": fitness::TO_BE_DELETED_TAINT, "effect": "NoSchedule"}])
                }),
                false,
            ),
            (
                "deleted",
                node(|node| node["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()),
                false,
            ),
        ];
        for (name, node, fit) in cases {
            let mut nodes = Nodes::default();
            assert!(nodes.apply(&node), "{name}");
            assert_eq!(nodes.settle(), fit, "{name}");
            assert_eq!(
                (nodes.is_fit("a"), nodes.exists("a")),
                (fit, true),
                "{name}"
            );
        }
    }

    #[test]
    fn the_version_is_the_proxys_where_it_is_known() {
        let version = |info: Value| {
            let empty = [
                "architecture",
                "bootID",
                "containerRuntimeVersion",
                "kernelVersion",
                "machineID",
            ];
            let more = [
                "operatingSystem",
                "osImage",
                "systemUUID",
                "kubeletVersion",
                "kubeProxyVersion",
            ];
            let mut all: Value = empty
                .iter()
                .chain(&more)
                .map(|key| ((*key).to_owned(), Value::from("")))
                .collect();
            info.as_object()
                .unwrap()
                .iter()
                .for_each(|(key, value)| all[key] = value.clone());
            let mut nodes = Nodes::default();
            nodes.apply(&node(|node| node["status"]["nodeInfo"] = all));
            nodes.settle();
            nodes.fit()[0].version.clone()
        };
        assert_eq!(
            version(json!({"kubeletVersion": "v1.7.4", "kubeProxyVersion": "v1.7.1"})),
            "v1.7.1"
        );
        assert_eq!(version(json!({"kubeletVersion": "v1.36.4"})), "v1.36.4");
        assert_eq!(version(json!({})), "");
    }

    #[test]
    fn only_what_load_balancers_see_is_a_change() {
        let mut nodes = Nodes::default();
        nodes.apply(&node(|_| {}));
        nodes.settle();
        assert!(!nodes.apply(&node(|node| node["status"]["conditions"] = json!([]))));
        assert!(nodes.apply(&node(|node| node["spec"]["providerID"] = "x://2".into())));
        assert!(nodes.settle());
        assert_eq!(
            nodes.fit()[0].addresses,
            ["10.0.0.1", "192.0.2.1"].map(|address| address.parse::<IpAddr>().unwrap())
        );
        // There and back within one pass is nothing.
        nodes.apply(&node(|node| {
            node["metadata"]["labels"][fitness::EXCLUDE_LABEL] = "".into()
        }));
        nodes.apply(&node(|node| node["spec"]["providerID"] = "x://2".into()));
        assert!(!nodes.settle());
    }
}
