//! The cloud's resources, as far as they are used. Field names are Google's.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Something that is got, inserted and deleted by its name.
pub(super) trait Resource: Serialize + DeserializeOwned + Send + Sync {
    /// Below the project; `{region}` stands for the region.
    const PATH: &'static str;
    const GET: &'static str;
    const INSERT: &'static str;
    const DELETE: &'static str;
}

macro_rules! resource {
    ($type:ty, $scope:literal, $collection:literal) => {
        impl Resource for $type {
            const PATH: &'static str = concat!($scope, "/", $collection);
            const GET: &'static str = concat!($collection, ".get");
            const INSERT: &'static str = concat!($collection, ".insert");
            const DELETE: &'static str = concat!($collection, ".delete");
        }
    };
}

resource!(Address, "regions/{region}", "addresses");
resource!(ForwardingRule, "regions/{region}", "forwardingRules");
resource!(TargetPool, "regions/{region}", "targetPools");
resource!(Firewall, "global", "firewalls");
resource!(HttpHealthCheck, "global", "httpHealthChecks");

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Address {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    pub network_tier: String,
    /// What it is used by, as addresses of resources.
    #[serde(skip_serializing)]
    pub users: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ForwardingRule {
    pub name: String,
    pub description: String,
    /// Empty in one that is to be made: the cloud chooses.
    #[serde(rename = "IPAddress", skip_serializing_if = "String::is_empty")]
    pub address: String,
    #[serde(rename = "IPProtocol")]
    pub protocol: String,
    pub port_range: String,
    pub load_balancing_scheme: String,
    pub network_tier: String,
    pub target: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TargetPool {
    pub name: String,
    pub description: String,
    pub session_affinity: String,
    pub instances: Vec<String>,
    pub health_checks: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Firewall {
    pub name: String,
    pub description: String,
    pub network: String,
    pub source_ranges: Vec<String>,
    pub destination_ranges: Vec<String>,
    pub target_tags: Vec<String>,
    pub allowed: Vec<Allowed>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Allowed {
    #[serde(rename = "IPProtocol")]
    pub protocol: String,
    pub ports: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HttpHealthCheck {
    pub name: String,
    pub description: String,
    pub port: u16,
    pub request_path: String,
    pub check_interval_sec: u32,
    pub timeout_sec: u32,
    pub healthy_threshold: u32,
    pub unhealthy_threshold: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Instance {
    pub name: String,
    pub tags: Tags,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Tags {
    pub items: Vec<String>,
}

/// A page of a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List<T> {
    #[serde(default = "Vec::new")]
    pub items: Vec<T>,
    #[serde(default)]
    pub next_page_token: String,
}

/// What a change is while it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Operation {
    pub name: String,
    pub status: String,
    pub operation_type: String,
    pub target_link: String,
    pub progress: u32,
    /// If it is of a region.
    pub region: String,
    pub http_error_status_code: u16,
    pub error: OperationErrors,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct OperationErrors {
    pub errors: Vec<OperationError>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct OperationError {
    pub code: String,
    pub message: String,
}

/// The end of a resource's address: it may begin with several hosts and versions.
pub(super) fn name_of(link: &str) -> &str {
    link.rsplit('/').next().unwrap_or_default()
}
