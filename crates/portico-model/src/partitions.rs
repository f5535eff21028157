//! Port partitions of `portico.dev/v1`, as they come from the API: addresses of nodes that have a
//! space of node ports of their own. What a field means is told in the schema of the API server.

use crate::objects::Metadata;
use crate::pools::{AddressRange, LabelSelector};
use serde::{Deserialize, Serialize};

/// On a Service: the PortPartition in whose port space its node ports are.
pub const PORT_PARTITION: &str = "portico.dev/port-partition";
/// On a Service: networks and ranges, separated by commas, of the addresses on which its node ports
/// answer.
pub const NODE_PORT_ADDRESSES: &str = "portico.dev/node-port-addresses";

/// Addresses of nodes with a space of node ports of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortPartition {
    /// Its name, and when it was made: of two with one address the older has it.
    pub metadata: Metadata,
    /// Which addresses.
    pub spec: PortPartitionSpec,
}

/// Which addresses a partition has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortPartitionSpec {
    /// All addresses of its nodes if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// On which nodes; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
}

impl PortPartitionSpec {
    /// The first two texts of which the ranges have an address in common; `*` is all addresses.
    pub fn overlap(&self, other: &Self) -> Option<(String, String)> {
        let ranges = |spec: &Self| -> Vec<(String, Option<AddressRange>)> {
            if spec.addresses.is_empty() {
                return vec![("*".to_owned(), None)];
            }
            let read = |text: &String| Some((text.clone(), Some(text.parse().ok()?)));
            spec.addresses.iter().filter_map(read).collect()
        };
        let theirs = ranges(other);
        ranges(self).into_iter().find_map(|(mine, range)| {
            let meets = |other: &AddressRange| range.is_none_or(|range| range.overlaps(other));
            let (yours, _) = theirs
                .iter()
                .find(|(_, other)| other.as_ref().is_none_or(meets))?;
            Some((mine, yours.clone()))
        })
    }
}

/// The ranges of a Service's [`NODE_PORT_ADDRESSES`], or what is wrong with them.
pub fn ranges(text: &str) -> Result<Vec<AddressRange>, String> {
    let read = |part: &str| {
        let range = part.trim().parse::<AddressRange>();
        range.map_err(|problem| format!("{:?}: {problem}", part.trim()))
    };
    text.split(',').map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_service() {
        let read = |text: &str| {
            let ranges = ranges(text)?;
            Ok::<Vec<String>, String>(ranges.iter().map(ToString::to_string).collect())
        };
        assert_eq!(
            read("192.0.2.0/30, 2001:db8::5-2001:db8::7").unwrap(),
            ["192.0.2.0-192.0.2.3", "2001:db8::5-2001:db8::7"]
        );
        for bad in [
            "",
            "192.0.2.1",
            "192.0.2.0/24,",
            "x",
            "192.0.2.0/24 10.0.0.0/8",
        ] {
            read(bad).expect_err(bad);
        }
    }
}
