//! The Service of `core/v1` as Rust types, with the field of KEP-4144.
//!
//! Reading and writing gives the JSON that Kubernetes writes: zero values are left out, except
//! where it writes them (`port`, `targetPort`, `status.loadBalancer`). Words such as the type stay
//! strings, because a wrong one must reach validation. Metadata and conditions are kept as they
//! are.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub(crate) const CLUSTER_IP: &str = "ClusterIP";
pub(crate) const NODE_PORT: &str = "NodePort";
pub(crate) const LOAD_BALANCER: &str = "LoadBalancer";
pub(crate) const EXTERNAL_NAME: &str = "ExternalName";

/// The cluster IP of a headless Service.
pub(crate) const NONE: &str = "None";

pub(crate) const IPV4: &str = "IPv4";
pub(crate) const IPV6: &str = "IPv6";

pub(crate) const SINGLE_STACK: &str = "SingleStack";
pub(crate) const PREFER_DUAL_STACK: &str = "PreferDualStack";
pub(crate) const REQUIRE_DUAL_STACK: &str = "RequireDualStack";

pub(crate) const CLUSTER: &str = "Cluster";
pub(crate) const LOCAL: &str = "Local";

pub(crate) const CLIENT_IP: &str = "ClientIP";

/// Names the PortPartition in whose port space the node ports of a Service are.
pub(crate) const PORT_PARTITION: &str = "portico.dev/port-partition";

/// Networks and ranges, separated by commas, of the addresses on which the node ports of a Service
/// answer.
pub(crate) const NODE_PORT_ADDRESSES: &str = "portico.dev/node-port-addresses";

pub(crate) const VIP: &str = "VIP";
pub(crate) const PROXY: &str = "Proxy";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Service {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    pub metadata: Map<String, Value>,
    pub spec: ServiceSpec,
    pub status: ServiceStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    #[serde(rename = "clusterIP", skip_serializing_if = "String::is_empty")]
    pub cluster_ip: String,
    #[serde(rename = "clusterIPs", skip_serializing_if = "Vec::is_empty")]
    pub cluster_ips: Vec<String>,
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_: String,
    #[serde(rename = "externalIPs", skip_serializing_if = "Vec::is_empty")]
    pub external_ips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session_affinity: String,
    #[serde(rename = "loadBalancerIP", skip_serializing_if = "String::is_empty")]
    pub load_balancer_ip: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub load_balancer_source_ranges: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_traffic_policy: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub health_check_node_port: i32,
    #[serde(skip_serializing_if = "is_false")]
    pub publish_not_ready_addresses: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_families: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_load_balancer_node_ports: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
    /// KEP-4144. Absent means true.
    #[serde(
        rename = "allocateLoadBalancerHCNodePort",
        skip_serializing_if = "Option::is_none"
    )]
    pub allocate_load_balancer_hc_node_port: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    pub port: i32,
    pub target_port: IntOrString,
    #[serde(skip_serializing_if = "is_zero")]
    pub node_port: i32,
}

/// The port of a pod: a number, or the name it has there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        Self::Int(0)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionAffinityConfig {
    #[serde(rename = "clientIP", skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientIpConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    pub load_balancer: LoadBalancerStatus,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<LoadBalancerIngress>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerIngress {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// KEP-1860.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortStatus {
    pub port: i32,
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Service {
    /// Read a decoded object. What the schema lets through can be read.
    pub fn from_value(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    pub fn into_value(self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.metadata
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The PortPartition whose ports it has, instead of those that are the same on all addresses.
    pub fn port_partition(&self) -> Option<&str> {
        self.annotation(PORT_PARTITION)
            .filter(|name| !name.is_empty())
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.get("annotations")?.get(key)?.as_str()
    }
}

impl ServiceSpec {
    pub fn is_load_balancer(&self) -> bool {
        self.type_ == LOAD_BALANCER
    }

    pub fn is_external_name(&self) -> bool {
        self.type_ == EXTERNAL_NAME
    }

    /// Whether its type has ports on the nodes, whether or not the server assigns them.
    pub fn has_node_ports(&self) -> bool {
        self.type_ == NODE_PORT || self.is_load_balancer()
    }

    /// Ports without a node port get one.
    pub fn assigns_node_ports(&self) -> bool {
        self.has_node_ports()
            && !(self.is_load_balancer() && self.allocate_load_balancer_node_ports == Some(false))
    }

    /// Whether its type has a cluster IP, if only "None": every type but ExternalName has.
    pub fn has_cluster_ip(&self) -> bool {
        !self.is_external_name()
    }

    pub fn is_headless(&self) -> bool {
        self.cluster_ips == [NONE]
    }

    /// Reachable from outside the cluster, so that an external traffic policy makes sense.
    pub fn is_externally_accessible(&self) -> bool {
        self.has_node_ports() || self.type_ == CLUSTER_IP && !self.external_ips.is_empty()
    }

    /// A load balancer asks each node whether it has endpoints of its own.
    pub fn needs_health_check(&self) -> bool {
        self.is_load_balancer() && self.external_traffic_policy == LOCAL
    }

    /// A missing health-check port is assigned by the server; KEP-4144 can switch this off.
    pub fn assigns_health_check_port(&self) -> bool {
        self.needs_health_check() && self.allocate_load_balancer_hc_node_port != Some(false)
    }

    /// The family policy, "" when there is none.
    pub fn policy(&self) -> &str {
        self.ip_family_policy.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_survives_reading_and_writing() {
        let object = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [{"f": {}}]},
            "spec": {
                "ports": [{"name": "p", "protocol": "TCP", "appProtocol": "http", "port": 80, "targetPort": "web", "nodePort": 30001}],
                "selector": {"a": "b"}, "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "LoadBalancer",
                "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP", "loadBalancerIP": "1.1.1.1",
                "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalName": "e", "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 30002, "publishNotReadyAddresses": true,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}, "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "allocateLoadBalancerNodePorts": false, "loadBalancerClass": "x.y/z",
                "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose", "allocateLoadBalancerHCNodePort": false,
            },
            "status": {
                "loadBalancer": {"ingress": [
                    {"ip": "1.2.3.4", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP", "error": "x"}]}, {"hostname": "h"},
                ]},
                "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3}],
            },
        });
        assert_eq!(Service::from_value(&object).unwrap().into_value(), object);
    }

    #[test]
    fn zero_values_are_written_where_kubernetes_writes_them() {
        let object = json!({"metadata": {}, "spec": {"ports": [{}]}});
        assert_eq!(
            Service::from_value(&object).unwrap().into_value(),
            json!({"metadata": {}, "spec": {"ports": [{"port": 0, "targetPort": 0}]}, "status": {"loadBalancer": {}}})
        );
    }
}
