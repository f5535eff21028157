//! A port partition, and which addresses of nodes are in it.

use crate::node::NodeView;
use portico_model::partitions::PortPartition;
use serde::Serialize;

/// A port partition and the addresses that it has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionView {
    /// The PortPartition's name.
    pub name: String,
    /// As they are written; none is all of its nodes.
    pub addresses: Vec<String>,
    /// Of how many nodes it has addresses.
    pub nodes: usize,
    /// Those addresses, as the nodes report them.
    pub in_use: Vec<String>,
    /// What keeps it from being used, for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
}

impl PartitionView {
    /// Each partition with what the nodes report of it.
    pub fn all(partitions: &[PortPartition], nodes: &[NodeView]) -> Vec<Self> {
        let of = |partition: &PortPartition| Self::of(partition, partitions, nodes);
        partitions.iter().map(of).collect()
    }

    fn of(one: &PortPartition, all: &[PortPartition], nodes: &[NodeView]) -> Self {
        let name = one.metadata.name.as_str();
        let of_nodes: Vec<&[String]> = nodes
            .iter()
            .filter_map(|node| {
                let report = &node.report.as_ref()?.content;
                let mut partitions = report.partitions.iter();
                let here = partitions.find(|partition| partition.name == name)?;
                Some(here.addresses.as_slice())
            })
            .collect();
        let reported = nodes.iter().any(NodeView::reports);
        let mut trouble: Vec<String> = all
            .iter()
            .filter(|other| other.metadata.name != name)
            .filter_map(|other| overlap(one, other))
            .collect();
        if of_nodes.is_empty() && reported {
            trouble.push("no node has an address of it".to_owned());
        }
        Self {
            name: name.to_owned(),
            addresses: one.spec.addresses.clone(),
            nodes: of_nodes.len(),
            in_use: of_nodes.concat(),
            trouble,
        }
    }
}

/// What two partitions have of the same nodes. Where both select nodes, which ones is not known
/// here; the nodes themselves say it.
fn overlap(one: &PortPartition, other: &PortPartition) -> Option<String> {
    let (ours, theirs) = (&one.spec, &other.spec);
    let other_nodes = ours.node_selector.is_some()
        && theirs.node_selector.is_some()
        && ours.node_selector != theirs.node_selector;
    if other_nodes {
        return None;
    }
    let (mine, yours) = ours.overlap(theirs)?;
    Some(format!(
        "{mine} overlaps {yours} of port partition {}: an address in both is that of the older \
         one",
        other.metadata.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn overlaps_name_both() {
        let partition = |name: &str, spec: Value| -> PortPartition {
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        let on = |edge: &str| json!({"matchLabels": {"edge": edge}});
        let all = [
            partition("left", json!({"addresses": ["10.0.0.0/24"]})),
            partition(
                "right",
                json!({"addresses": ["10.0.1.0/24", "10.0.0.9-10.0.0.12"]}),
            ),
            partition(
                "a",
                json!({"nodeSelector": on("a"), "addresses": ["10.9.0.0/16"]}),
            ),
            partition(
                "b",
                json!({"nodeSelector": on("b"), "addresses": ["10.9.0.0/16"]}),
            ),
        ];
        let views = PartitionView::all(&all, &[]);
        assert_eq!(
            views[0].trouble,
            [
                "10.0.0.0/24 overlaps 10.0.0.9-10.0.0.12 of port partition right: an address in both is \
              that of the older one"
            ]
        );
        assert_eq!(views[1].trouble.len(), 1);
        assert_eq!((views[2].trouble.len(), views[3].trouble.len()), (0, 0));
    }
}
