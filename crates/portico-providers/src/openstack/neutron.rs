//! The API of networks (Neutron v2.0), as far as load balancers need it: floating IPs, and which
//! subnet is where.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::list::list;
use super::octavia::take;
use crate::Family;
use crate::cloud::{Call, CallError, Client, encode, found};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct FloatingIp {
    pub id: String,
    pub floating_ip_address: IpAddr,
    pub port_id: Option<String>,
    #[serde(default)]
    pub description: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NewFloatingIp {
    pub floating_network_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
    /// Which one is for administrators to choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floating_ip_address: Option<IpAddr>,
    pub port_id: String,
    pub description: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Subnet {
    pub id: String,
    pub network_id: String,
    pub ip_version: u8,
}

#[derive(Debug, Deserialize)]
struct Port {
    fixed_ips: Vec<FixedIp>,
}

#[derive(Debug, Deserialize)]
struct FixedIp {
    subnet_id: String,
    ip_address: IpAddr,
}

#[derive(Debug, Deserialize)]
struct Network {
    id: String,
}

#[derive(Clone)]
pub(super) struct Neutron {
    pub client: Arc<Client>,
    /// `http://.../v2.0`
    pub url: String,
}

impl Neutron {
    /// Filtered by one field.
    pub(super) async fn floating_ips(
        &self,
        field: &str,
        value: &str,
    ) -> Result<Vec<FloatingIp>, CallError> {
        let url = format!("{}/floatingips?{field}={}", self.url, encode(value));
        list(&self.client, "floatingips.list", url, "floatingips").await
    }

    pub(super) async fn create_floating_ip(
        &self,
        new: &NewFloatingIp,
    ) -> Result<FloatingIp, CallError> {
        let call = Call::post("floatingips.create", format!("{}/floatingips", self.url));
        take(
            self.client
                .send(call.json(&json!({ "floatingip": new })))
                .await?
                .json()?,
            "floatingip",
        )
    }

    /// Attaches a floating IP to a port, or detaches it.
    pub(super) async fn attach_floating_ip(
        &self,
        id: &str,
        port: Option<&str>,
    ) -> Result<(), CallError> {
        let call = Call::put(
            "floatingips.update",
            format!("{}/floatingips/{}", self.url, encode(id)),
        );
        let call = call
            .json(&json!({"floatingip": {"port_id": port}}))
            .repeatable();
        found(self.client.send(call).await).map(drop)
    }

    pub(super) async fn delete_floating_ip(&self, id: &str) -> Result<(), CallError> {
        let call = Call::delete(
            "floatingips.delete",
            format!("{}/floatingips/{}", self.url, encode(id)),
        );
        found(self.client.send(call).await).map(drop)
    }

    /// Networks with addresses of the world outside.
    pub(super) async fn external_networks(&self) -> Result<Vec<String>, CallError> {
        let url = format!("{}/networks?router:external=true", self.url);
        let networks: Vec<Network> = list(&self.client, "networks.list", url, "networks").await?;
        Ok(networks.into_iter().map(|network| network.id).collect())
    }

    pub(super) async fn subnets(&self, field: &str, value: &str) -> Result<Vec<Subnet>, CallError> {
        let url = format!("{}/subnets?{field}={}", self.url, encode(value));
        list(&self.client, "subnets.list", url, "subnets").await
    }

    /// Where one of the addresses of a machine is from.
    pub(super) async fn subnet_of_machine(
        &self,
        machine: &str,
        addresses: &[IpAddr],
    ) -> Result<Option<String>, CallError> {
        let url = format!("{}/ports?device_id={}", self.url, encode(machine));
        let ports: Vec<Port> = list(&self.client, "ports.list", url, "ports").await?;
        let mut at = ports.into_iter().flat_map(|port| port.fixed_ips);
        Ok(at
            .find(|at| addresses.contains(&at.ip_address))
            .map(|at| at.subnet_id))
    }
}

impl Subnet {
    pub(super) fn family(&self) -> Family {
        if self.ip_version == 6 {
            Family::V6
        } else {
            Family::V4
        }
    }
}
