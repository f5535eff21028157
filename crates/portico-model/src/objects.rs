//! The parts of API objects that forwarding needs, read from the API's JSON; everything else is
//! ignored, so that a node holds little of a large cluster in memory.

#![expect(
    missing_docs,
    reason = "the fields are those of the Kubernetes API, which says what they mean"
)]

use crate::partitions::{NODE_PORT_ADDRESSES, PORT_PARTITION};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The Service that an EndpointSlice belongs to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// On slices of headless Services, whatever its value.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// On Services that another proxy serves, whatever its value.
pub const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// The zone of a Node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// On Services that not everything in the cluster may use: [`NAMESPACE`] or [`IN_DMZ`].
pub const VISIBILITY: &str = "portico.dev/visibility";
/// The visibility of a Service that pods of its own namespace may use.
pub const NAMESPACE: &str = "namespace";
/// The visibility of a Service that pods in the DMZ may use as well, if they are of its namespace.
pub const IN_DMZ: &str = "dmz";
/// On pods that are in the DMZ, whatever its value.
pub const DMZ: &str = "portico.dev/dmz";
/// When the change was made that an EndpointSlice follows.
pub const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The cluster autoscaler sets this taint on a node that it is about to remove.
pub const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// On EndpointSlices whose endpoints Portico checks, with the value `true`, so that they can be
/// followed without the others.
pub const HEALTH_CHECKED: &str = "portico.dev/health-checked";
/// How the endpoints of such a slice are checked.
pub const HEALTH_CHECK: &str = "portico.dev/health-check";
/// Which of its addresses fail their check and why: a line for each, `address: reason`.
pub const HEALTH_FAILING: &str = "portico.dev/health-failing";

/// On Services: `off` leaves their addresses out of the consistent edge.
pub const EDGE: &str = "portico.dev/edge";

const LABELS: [&str; 5] = [SERVICE_NAME, HEADLESS, SERVICE_PROXY_NAME, ZONE, DMZ];
const ANNOTATIONS: [&str; 5] = [
    LAST_CHANGE,
    VISIBILITY,
    PORT_PARTITION,
    NODE_PORT_ADDRESSES,
    EDGE,
];

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Those that this file has names for.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "labels"
    )]
    pub labels: BTreeMap<String, String>,
    /// Those that this file has names for.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "annotations"
    )]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    pub metadata: Metadata,
    pub spec: ServiceSpec,
    pub status: ServiceStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub type_: String,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
    pub ports: Vec<Port>,
    pub session_affinity: String,
    pub session_affinity_config: Option<SessionAffinityConfig>,
    pub internal_traffic_policy: String,
    pub external_traffic_policy: String,
    #[serde(deserialize_with = "port_number")]
    pub health_check_node_port: u16,
    pub load_balancer_source_ranges: Vec<String>,
    #[serde(rename = "ipFamilies")]
    pub ip_families: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    pub name: String,
    pub protocol: String,
    #[serde(deserialize_with = "port_number")]
    pub port: u16,
    #[serde(deserialize_with = "port_number")]
    pub node_port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIp {
    pub timeout_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    pub load_balancer: LoadBalancer,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancer {
    pub ingress: Vec<Ingress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ingress {
    pub ip: String,
    pub ip_mode: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    pub metadata: Metadata,
    pub address_type: String,
    pub ports: Option<Vec<SlicePort>>,
    pub endpoints: Option<Vec<SliceEndpoint>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlicePort {
    pub name: Option<String>,
    pub protocol: Option<String>,
    #[serde(deserialize_with = "optional_port_number")]
    pub port: Option<u16>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    pub addresses: Vec<String>,
    pub conditions: Conditions,
    pub node_name: Option<String>,
    pub zone: Option<String>,
    pub hints: Option<Hints>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    pub for_zones: Option<Vec<Named>>,
    pub for_nodes: Option<Vec<Named>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// With all labels, which selectors look at.
    #[serde(deserialize_with = "with_all_labels")]
    pub metadata: Metadata,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    pub addresses: Vec<NodeAddress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub type_: String,
    pub address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceCidr {
    pub metadata: Metadata,
    pub spec: ServiceCidrSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceCidrSpec {
    pub cidrs: Vec<String>,
}

/// A pod, as far as it says whose an address is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    pub metadata: Metadata,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: String,
    pub host_network: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
    pub conditions: Vec<PodCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodIp {
    pub ip: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
}

/// A number that is no port reads as 0, so that it costs its port and not the whole object: the API
/// server does not check those of EndpointSlices.
fn port_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    Ok(optional_port_number(deserializer)?.unwrap_or_default())
}

fn optional_port_number<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u16>, D::Error> {
    let number = Option::<i64>::deserialize(deserializer)?;
    Ok(number.map(|number| u16::try_from(number).unwrap_or_default()))
}

/// Metadata of which no label is left out.
fn with_all_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Metadata, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Whole {
        name: String,
        namespace: String,
        uid: String,
        resource_version: String,
        labels: Option<BTreeMap<String, String>>,
        creation_timestamp: Option<String>,
        deletion_timestamp: Option<String>,
    }
    let whole = Option::<Whole>::deserialize(deserializer)?.unwrap_or_default();
    Ok(Metadata {
        name: whole.name,
        namespace: whole.namespace,
        uid: whole.uid,
        resource_version: whole.resource_version,
        labels: whole.labels.unwrap_or_default(),
        creation_timestamp: whole.creation_timestamp,
        deletion_timestamp: whole.deletion_timestamp,
        ..Metadata::default()
    })
}

fn labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_option(Only(&LABELS))
}

fn annotations<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    deserializer.deserialize_option(Only(&ANNOTATIONS))
}

/// Reads of a map only the entries with these keys: annotations of others may be large, and there
/// are many objects.
struct Only(&'static [&'static str]);

impl<'de> Visitor<'de> for Only {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.0.contains(&key.as_str()) {
                found.insert(key, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_labels_and_annotations_that_are_needed_are_kept() {
        let metadata: Metadata = serde_json::from_value(json!({
            "name": "a", "labels": {"app": "web", SERVICE_NAME: "web"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", LAST_CHANGE: "now"}}))
        .unwrap();
        assert_eq!(
            metadata.labels,
            BTreeMap::from([(SERVICE_NAME.to_string(), "web".to_string())])
        );
        assert_eq!(
            metadata.annotations,
            BTreeMap::from([(LAST_CHANGE.to_string(), "now".to_string())])
        );
        let again: Metadata =
            serde_json::from_str(&serde_json::to_string(&metadata).unwrap()).unwrap();
        assert_eq!(again, metadata);
    }

    #[test]
    fn nothing_instead_of_labels_is_none() {
        let metadata: Metadata = serde_json::from_value(
            json!({"labels": null, "annotations": null, "creationTimestamp": null}),
        )
        .unwrap();
        assert_eq!(metadata, Metadata::default());
    }

    #[test]
    fn a_number_that_is_no_port_reads_as_none() {
        for (number, wanted) in [
            (json!(80), Some(80)),
            (json!(0), Some(0)),
            (json!(70000), Some(0)),
            (json!(-1), Some(0)),
            (json!(null), None),
        ] {
            let port: SlicePort = serde_json::from_value(json!({"port": number})).unwrap();
            assert_eq!(port.port, wanted, "{number}");
        }
    }
}
