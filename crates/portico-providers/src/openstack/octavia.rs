//! The API of load balancers (Octavia v2): its resources, as far as they matter here, and the calls
//! that are needed.
//!
//! Any write makes the whole load balancer `PENDING_UPDATE`, and until that is over every other one
//! is answered with 409.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::list::list;
use crate::cloud::{Call, CallError, Client, encode, found};

/// Something that exists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Made<T> {
    pub id: String,
    #[serde(flatten)]
    pub spec: T,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct LoadBalancer {
    pub id: String,
    pub name: String,
    pub provisioning_status: String,
    pub vip_address: IpAddr,
    pub vip_port_id: Option<String>,
    pub vip_subnet_id: Option<String>,
    #[serde(default)]
    pub additional_vips: Vec<Vip>,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub created_at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Vip {
    pub subnet_id: Option<String>,
    #[serde(skip_serializing)]
    pub ip_address: Option<IpAddr>,
}

/// The ids of what was created with a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Tree {
    #[serde(default)]
    pub listeners: Vec<TreeListener>,
    #[serde(default)]
    pub pools: Vec<TreePool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct TreeListener {
    pub id: String,
    pub protocol: String,
    pub protocol_port: u16,
    pub default_pool_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct TreePool {
    pub id: String,
    pub healthmonitor: Option<Id>,
}

impl LoadBalancer {
    pub(super) fn is_pending(&self) -> bool {
        self.provisioning_status.starts_with("PENDING")
    }

    pub(super) fn is_failed(&self) -> bool {
        self.provisioning_status == "ERROR"
    }

    /// The state in words.
    pub(super) fn state(&self) -> String {
        format!("{self} is {}", self.provisioning_status)
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let more = self.additional_vips.iter().filter_map(|vip| vip.ip_address);
        [self.vip_address].into_iter().chain(more).collect()
    }
}

impl fmt::Display for LoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load balancer {} ({})", self.name, self.id)
    }
}

/// A load balancer with everything in it, as it is created in one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NewLoadBalancer {
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_network_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_subnet_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip_port_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_vips: Vec<Vip>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<NewListener>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NewListener {
    #[serde(flatten)]
    pub spec: Listener,
    pub default_pool: NewPool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NewPool {
    #[serde(flatten)]
    pub spec: Pool,
    pub members: Vec<Member>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthmonitor: Option<Monitor>,
}

/// What is `None` is not ours to say, and not sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listener {
    pub name: String,
    pub protocol: String,
    pub protocol_port: u16,
    pub connection_limit: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_client_data: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_member_connect: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_member_data: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_tcp_inspect: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_cidrs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert_headers: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_tls_container_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_pool_id: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pool {
    pub name: String,
    pub protocol: String,
    pub lb_algorithm: String,
    pub session_persistence: Option<Persistence>,
    #[serde(default)]
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Persistence {
    #[serde(rename = "type")]
    pub kind: String,
    /// Seconds; only with UDP and SCTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence_timeout: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Member {
    pub address: IpAddr,
    pub protocol_port: u16,
    pub name: String,
    /// Where it is asked for its health, if not at the port that it serves.
    pub monitor_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Monitor {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub delay: u32,
    pub timeout: u32,
    pub max_retries: u32,
    pub max_retries_down: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_codes: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
}

/// A pool with what it knows of others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct LinkedPool {
    #[serde(flatten)]
    pub pool: Made<Pool>,
    pub healthmonitor_id: Option<String>,
}

#[derive(Clone)]
pub(super) struct Octavia {
    pub client: Arc<Client>,
    /// `http://.../v2.0/lbaas`
    pub url: String,
}

impl Octavia {
    /// The load balancers with a tag, the oldest first.
    pub(super) async fn tagged(&self, tag: &str) -> Result<Vec<LoadBalancer>, CallError> {
        let url = format!("{}/loadbalancers?tags={}", self.url, encode(tag));
        let mut found: Vec<LoadBalancer> =
            list(&self.client, "loadbalancers.list", url, "loadbalancers").await?;
        found.sort_by(|one, other| (&one.created_at, &one.id).cmp(&(&other.created_at, &other.id)));
        Ok(found)
    }

    pub(super) async fn balancer(&self, id: &str) -> Result<Option<LoadBalancer>, CallError> {
        let call = Call::get("loadbalancers.get", self.at("loadbalancers", id));
        found(self.client.send(call).await)?
            .map(|reply| take(reply.json()?, "loadbalancer"))
            .transpose()
    }

    /// Creates a load balancer, and returns it with what was created in it, if the answer says
    /// that.
    pub(super) async fn create_balancer(
        &self,
        new: &NewLoadBalancer,
    ) -> Result<(LoadBalancer, Tree), CallError> {
        let call = Call::post(
            "loadbalancers.create",
            format!("{}/loadbalancers", self.url),
        );
        let answer: Value = self
            .client
            .send(call.json(&json!({ "loadbalancer": new })))
            .await?
            .json()?;
        let tree = take(answer.clone(), "loadbalancer").unwrap_or_default();
        Ok((take(answer, "loadbalancer")?, tree))
    }

    /// Deletes a load balancer with everything in it.
    pub(super) async fn delete_balancer(&self, id: &str) -> Result<(), CallError> {
        let url = format!("{}?cascade=true", self.at("loadbalancers", id));
        found(
            self.client
                .send(Call::delete("loadbalancers.delete", url))
                .await,
        )
        .map(drop)
    }

    pub(super) async fn listeners(
        &self,
        balancer: &str,
        tag: &str,
    ) -> Result<Vec<Made<Listener>>, CallError> {
        let url = format!(
            "{}/listeners?load_balancer_id={balancer}&tags={}",
            self.url,
            encode(tag)
        );
        list(&self.client, "listeners.list", url, "listeners").await
    }

    pub(super) async fn pools(
        &self,
        balancer: &str,
        tag: &str,
    ) -> Result<Vec<LinkedPool>, CallError> {
        let url = format!(
            "{}/pools?loadbalancer_id={balancer}&tags={}",
            self.url,
            encode(tag)
        );
        list(&self.client, "pools.list", url, "pools").await
    }

    pub(super) async fn members(&self, pool: &str) -> Result<Vec<Member>, CallError> {
        let url = format!("{}/members", self.at("pools", pool));
        list(&self.client, "members.list", url, "members").await
    }

    pub(super) async fn monitors(&self, tag: &str) -> Result<Vec<Made<Monitor>>, CallError> {
        let url = format!("{}/healthmonitors?tags={}", self.url, encode(tag));
        list(&self.client, "healthmonitors.list", url, "healthmonitors").await
    }

    /// All of a pool, in place of those that it has.
    pub(super) async fn set_members(
        &self,
        pool: &str,
        members: &[Member],
    ) -> Result<(), CallError> {
        let url = format!("{}/members", self.at("pools", pool));
        let call = Call::put("members.set", url)
            .json(&json!({ "members": members }))
            .repeatable();
        self.client.send(call).await.map(drop)
    }

    /// Creates one of a collection (`pools`), whose fields are under `name` (`pool`), and returns
    /// its id.
    pub(super) async fn create(&self, kind: Kind, fields: Value) -> Result<String, CallError> {
        let call = Call::post(kind.create, format!("{}/{}", self.url, kind.collection));
        let made: Id = take(
            self.client
                .send(call.json(&json!({ kind.name: fields })))
                .await?
                .json()?,
            kind.name,
        )?;
        Ok(made.id)
    }

    pub(super) async fn update(
        &self,
        kind: Kind,
        id: &str,
        fields: Value,
    ) -> Result<(), CallError> {
        let call = Call::put(kind.update, self.at(kind.collection, id))
            .json(&json!({ kind.name: fields }));
        self.client.send(call.repeatable()).await.map(drop)
    }

    pub(super) async fn delete(&self, kind: Kind, id: &str) -> Result<(), CallError> {
        found(
            self.client
                .send(Call::delete(kind.delete, self.at(kind.collection, id)))
                .await,
        )
        .map(drop)
    }

    fn at(&self, collection: &str, id: &str) -> String {
        format!("{}/{collection}/{}", self.url, encode(id))
    }
}

/// What load balancers are made of, and what calls about it are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub name: &'static str,
    pub collection: &'static str,
    create: &'static str,
    update: &'static str,
    delete: &'static str,
}

pub(super) const LISTENER: Kind = Kind {
    name: "listener",
    collection: "listeners",
    create: "listeners.create",
    update: "listeners.update",
    delete: "listeners.delete",
};

pub(super) const POOL: Kind = Kind {
    name: "pool",
    collection: "pools",
    create: "pools.create",
    update: "pools.update",
    delete: "pools.delete",
};

pub(super) const MONITOR: Kind = Kind {
    name: "healthmonitor",
    collection: "healthmonitors",
    create: "healthmonitors.create",
    update: "healthmonitors.update",
    delete: "healthmonitors.delete",
};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Id {
    pub id: String,
}

/// What is under a name in an answer.
pub(super) fn take<T: DeserializeOwned>(
    mut answer: Value,
    name: &'static str,
) -> Result<T, CallError> {
    use crate::cloud::Problem;
    serde_json::from_value(answer[name].take())
        .map_err(|error| CallError::new(name, Problem::Decode(error)))
}
