//! A pool of addresses, and what is left of it.

use portico_model::pools::AddressPoolSpec;
use serde::{Deserialize, Serialize};

/// As it comes from the API.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressPool {
    /// Its name.
    pub metadata: Metadata,
    /// The addresses, and how they are given out and announced.
    pub spec: AddressPoolSpec,
    /// What the controller wrote about its use.
    pub status: Status,
}

/// What of an AddressPool's metadata is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// The name of the pool.
    pub name: String,
}

/// What of an AddressPool's status is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// How many addresses Services have.
    pub assigned: i64,
    /// What is left of IPv4.
    pub ipv4: Family,
    /// What is left of IPv6.
    pub ipv6: Family,
    /// What the controller found wrong, or not.
    pub conditions: Vec<Condition>,
}

/// What is left of one family.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Family {
    /// Free addresses; absent where the controller has not counted them.
    pub available: Option<i64>,
}

/// What of a condition is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason, for people.
    pub message: String,
}

/// A pool as tools show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// The name of the pool.
    pub name: String,
    /// Its ranges, as they are written in its spec.
    pub addresses: Vec<String>,
    /// Whether Services that ask for no pool get addresses of it.
    pub auto_assign: bool,
    /// How many addresses Services have.
    pub assigned: i64,
    /// Free IPv4 addresses; absent where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_ipv4: Option<i64>,
    /// Free IPv6 addresses; absent where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_ipv6: Option<i64>,
    /// How its addresses are announced: `l2`, `bgp`.
    pub announce: Vec<String>,
    /// The messages of conditions that are False.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
}

impl PoolView {
    /// The view of a pool as the API has it.
    pub fn of(pool: &AddressPool) -> Self {
        let bad = pool
            .status
            .conditions
            .iter()
            .filter(|held| held.status == "False");
        Self {
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
