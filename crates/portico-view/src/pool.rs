//! A pool of addresses, and what is left of it.

use portico_model::pools::AddressPoolSpec;
use serde::{Deserialize, Serialize};

/// As it comes from the API.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressPool {
    pub metadata: Metadata,
    pub spec: AddressPoolSpec,
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    pub assigned: i64,
    pub ipv4: Family,
    pub ipv6: Family,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Family {
    pub available: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    pub status: String,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    pub name: String,
    pub addresses: Vec<String>,
    pub auto_assign: bool,
    pub assigned: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_ipv4: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_ipv6: Option<i64>,
    pub announce: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
}

impl PoolView {
    pub fn of(pool: &AddressPool) -> PoolView {
        let bad = pool
            .status
            .conditions
            .iter()
            .filter(|held| held.status == "False");
        PoolView {
            name: pool.metadata.name.clone(),
            addresses: pool.spec.addresses.clone(),
            auto_assign: pool.spec.auto_assign,
            assigned: pool.status.assigned,
            free_ipv4: pool.status.ipv4.available,
            free_ipv6: pool.status.ipv6.available,
            announce: pool
                .spec
                .announce
                .iter()
                .map(|way| format!("{way:?}"))
                .collect(),
            trouble: bad.map(|held| held.message.clone()).collect(),
        }
    }
}
