//! Address pools, blocks of addresses and BGP peers of `portico.dev/v1`, as they come from the API:
//! what the controller and the nodes both read. What a field means is told in the schema of the API
//! server.

#![expect(
    missing_docs,
    reason = "the schema of the kinds says what each field means"
)]

mod ranges;
mod selector;

pub use ranges::{AddressRange, block_name, block_of};
pub use selector::{LabelSelector, SelectorRequirement};

use crate::duration;
use crate::objects::Metadata;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

pub const GROUP: &str = "portico.dev";
pub const VERSION: &str = "v1";

/// A pool, as a node needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressPool {
    pub metadata: Metadata,
    pub spec: AddressPoolSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressPoolSpec {
    pub addresses: Vec<String>,
    pub auto_assign: bool,
    #[serde(rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    pub priority: i32,
    pub namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    pub announce: Vec<Announce>,
    pub interfaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bgp: Option<PoolBgp>,
}

impl Default for AddressPoolSpec {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            auto_assign: true,
            avoid_buggy_ips: false,
            priority: 0,
            namespaces: Vec::new(),
            namespace_selector: None,
            service_selector: None,
            node_selector: None,
            announce: vec![Announce::Layer2, Announce::Bgp],
            interfaces: Vec::new(),
            bgp: None,
        }
    }
}

impl AddressPoolSpec {
    /// The ranges that can be read, in their order, and what is wrong with the others. An API
    /// server refuses those, but for what a custom resource cannot check.
    pub fn ranges(&self) -> (Vec<AddressRange>, Vec<String>) {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for text in &self.addresses {
            match text.parse::<AddressRange>() {
                Ok(range) => good.push(range),
                Err(problem) => bad.push(format!("{text}: {problem}")),
            }
        }
        (good, bad)
    }

    pub fn announces(&self, way: Announce) -> bool {
        self.announce.contains(&way)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Announce {
    Layer2,
    #[serde(rename = "BGP")]
    Bgp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolBgp {
    pub communities: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_preference: Option<u32>,
    pub aggregation_length: u8,
    pub aggregation_length_v6: u8,
    /// Names of BgpPeers; all if empty.
    pub peers: Vec<String>,
}

impl Default for PoolBgp {
    fn default() -> Self {
        Self {
            communities: Vec::new(),
            local_preference: None,
            aggregation_length: 32,
            aggregation_length_v6: 128,
            peers: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressBlockSpec {
    pub cidr: String,
    pub claims: Vec<AddressClaim>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressClaim {
    pub address: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sharing_key: String,
    pub services: Vec<ClaimService>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimService {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The ports of a Service that shares the address: `TCP/80`, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// The selector of a Service that shares the address under `externalTrafficPolicy: Local`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoints: String,
}

/// A BGP peer, as a node needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BgpPeer {
    pub metadata: Metadata,
    pub spec: BgpPeerSpec,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BgpPeerSpec {
    #[serde(rename = "myASN")]
    pub my_asn: u32,
    #[serde(rename = "peerASN")]
    pub peer_asn: u32,
    pub peer_address: String,
    pub peer_port: u16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source_address: String,
    #[serde(rename = "routerID", skip_serializing_if = "String::is_empty")]
    pub router_id: String,
    pub hold_time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub keepalive_time: String,
    pub connect_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_secret: Option<SecretKey>,
    pub ebgp_multi_hop: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    pub graceful_restart: bool,
    pub restart_time: String,
}

impl Default for BgpPeerSpec {
    fn default() -> Self {
        Self {
            my_asn: 0,
            peer_asn: 0,
            peer_address: String::new(),
            peer_port: 179,
            source_address: String::new(),
            router_id: String::new(),
            hold_time: "90s".into(),
            keepalive_time: String::new(),
            connect_time: "10s".into(),
            password_secret: None,
            ebgp_multi_hop: false,
            node_selector: None,
            graceful_restart: true,
            restart_time: "120s".into(),
        }
    }
}

impl BgpPeerSpec {
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer_address.parse().ok()
    }

    /// Zero is no limit.
    pub fn hold(&self) -> Duration {
        duration::parse(&self.hold_time).unwrap_or(Duration::from_secs(90))
    }

    pub fn keepalive(&self) -> Duration {
        duration::parse(&self.keepalive_time).unwrap_or(self.hold() / 3)
    }

    pub fn connect(&self) -> Duration {
        duration::parse(&self.connect_time).unwrap_or(Duration::from_secs(10))
    }

    pub fn restart(&self) -> Duration {
        duration::parse(&self.restart_time).unwrap_or(Duration::from_secs(120))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretKey {
    pub namespace: String,
    pub name: String,
    pub key: String,
}

impl Default for SecretKey {
    fn default() -> Self {
        Self {
            namespace: "kube-system".into(),
            name: String::new(),
            key: "password".into(),
        }
    }
}

#[cfg(test)]
mod tests;
