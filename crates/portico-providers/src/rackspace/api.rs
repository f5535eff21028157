//! The vendor's resources, as far as they are used, and a method for each call.

use std::net::IpAddr;
use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cloud::{Call, CallError, Client, Dialect, Page, all_pages, found};

/// A page of a list has no more.
const PAGE: usize = 100;
/// Ids in one request that deletes.
pub(super) const BATCH: usize = 10;

/// In lists without nodes and what follows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LoadBalancer {
    pub id: u64,
    pub name: String,
    pub status: String,
    pub protocol: String,
    pub port: u16,
    pub algorithm: String,
    pub timeout: u16,
    pub virtual_ips: Vec<VirtualIp>,
    pub nodes: Vec<Node>,
    pub health_monitor: Option<HealthMonitor>,
    pub session_persistence: Option<SessionPersistence>,
    pub access_list: Vec<NetworkItem>,
}

impl LoadBalancer {
    /// It is as good as deleted, or deleted: those are shown for months.
    pub(super) fn is_leaving(&self) -> bool {
        ["PENDING_DELETE", "DELETED"].contains(&self.status.as_str())
    }

    /// It takes no writes, and will.
    pub(super) fn is_pending(&self) -> bool {
        ["BUILD", "PENDING_UPDATE"].contains(&self.status.as_str())
    }

    pub(super) fn state(&self) -> String {
        format!("load balancer {} is {}", self.id, self.status)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct VirtualIp {
    pub id: u64,
    pub address: IpAddr,
    /// `PUBLIC` or `SERVICENET`
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Node {
    pub id: u64,
    /// People may have added one by name.
    pub address: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HealthMonitor {
    #[serde(rename = "type")]
    pub kind: String,
    pub delay: u16,
    pub timeout: u16,
    pub attempts_before_deactivation: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionPersistence {
    pub persistence_type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct NetworkItem {
    pub id: u64,
    pub address: String,
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewLoadBalancer {
    pub name: String,
    pub protocol: &'static str,
    pub port: u16,
    #[serde(flatten)]
    pub settings: Settings,
    pub virtual_ips: Vec<NewVirtualIp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NewNode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_monitor: Option<HealthMonitor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<SessionPersistence>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_list: Vec<NewItem>,
    pub metadata: Vec<Meta>,
}

/// What can be changed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Settings {
    pub algorithm: String,
    pub timeout: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum NewVirtualIp {
    Shared {
        id: u64,
    },
    #[serde(rename_all = "camelCase")]
    New {
        #[serde(rename = "type")]
        kind: &'static str,
        /// `None`: both, if it is public.
        #[serde(skip_serializing_if = "Option::is_none")]
        ip_version: Option<&'static str>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct NewNode {
    pub address: String,
    pub port: u16,
    pub condition: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct NewItem {
    pub address: String,
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Meta {
    pub key: &'static str,
    pub value: String,
}

#[derive(Clone)]
pub(super) struct Api {
    pub client: Arc<Client>,
    /// `https://ord.loadbalancers.api.rackspacecloud.com/v1.0/1234`
    pub url: String,
}

impl Api {
    /// All of the account, without details.
    pub(super) async fn list(&self) -> Result<Vec<LoadBalancer>, CallError> {
        all_pages(|marker: Option<u64>| async move {
            let call =
                Call::get("loadbalancers.list", self.all()).query("limit", &PAGE.to_string());
            // The one with the id of the marker would be the first.
            let call = if let Some(marker) = marker {
                call.query("marker", &marker.to_string())
            } else {
                call
            };
            let Listed {
                load_balancers: items,
            } = self.client.send(call).await?.json()?;
            let last = items
                .iter()
                .map(|balancer| balancer.id)
                .max()
                .filter(|_| items.len() >= PAGE);
            Ok(Page {
                items,
                next: last.map(|id| id + 1),
            })
        })
        .await
    }

    pub(super) async fn get(&self, id: u64) -> Result<Option<LoadBalancer>, CallError> {
        let reply = found(
            self.client
                .send(Call::get("loadbalancers.get", self.one(id, "")))
                .await,
        )?;
        reply
            .map(|reply| reply.json().map(|shown: Shown| shown.load_balancer))
            .transpose()
    }

    pub(super) async fn create(&self, new: &NewLoadBalancer) -> Result<LoadBalancer, CallError> {
        let call =
            Call::post("loadbalancers.create", self.all()).json(&json!({ "loadBalancer": new }));
        let Shown { load_balancer } = self.client.send(call).await?.json()?;
        Ok(load_balancer)
    }

    /// All or none.
    pub(super) async fn delete(&self, ids: &[u64]) -> Result<(), CallError> {
        let call = match ids {
            [id] => Call::delete("loadbalancers.delete", self.one(*id, "")),
            ids => with_ids(Call::delete("loadbalancers.delete", self.all()), ids),
        };
        self.client.send(call).await.map(drop)
    }

    pub(super) async fn update(&self, id: u64, settings: &Settings) -> Result<(), CallError> {
        let call = Call::put("loadbalancers.update", self.one(id, "")).repeatable();
        self.client
            .send(call.json(&json!({ "loadBalancer": settings })))
            .await
            .map(drop)
    }

    pub(super) async fn set_monitor(
        &self,
        id: u64,
        monitor: &HealthMonitor,
    ) -> Result<(), CallError> {
        let call = Call::put("healthmonitor.update", self.one(id, "/healthmonitor")).repeatable();
        self.client
            .send(call.json(&json!({ "healthMonitor": monitor })))
            .await
            .map(drop)
    }

    pub(super) async fn set_persistence(
        &self,
        id: u64,
        wanted: Option<&SessionPersistence>,
    ) -> Result<(), CallError> {
        let url = self.one(id, "/sessionpersistence");
        let call = match wanted {
            Some(wanted) => Call::put("sessionpersistence.update", url)
                .json(&json!({ "sessionPersistence": wanted })),
            None => Call::delete("sessionpersistence.delete", url),
        };
        self.client.send(call).await.map(drop)
    }

    /// Adds nodes, and returns them as the cloud has them.
    pub(super) async fn add_nodes(
        &self,
        id: u64,
        nodes: &[NewNode],
    ) -> Result<Vec<Node>, CallError> {
        let call =
            Call::post("nodes.create", self.one(id, "/nodes")).json(&json!({ "nodes": nodes }));
        let Nodes { nodes } = self.client.send(call).await?.json()?;
        Ok(nodes)
    }

    pub(super) async fn remove_nodes(&self, id: u64, nodes: &[u64]) -> Result<(), CallError> {
        let call = with_ids(Call::delete("nodes.delete", self.one(id, "/nodes")), nodes);
        self.client.send(call).await.map(drop)
    }

    pub(super) async fn add_items(&self, id: u64, items: &[NewItem]) -> Result<(), CallError> {
        let call = Call::post("accesslist.create", self.one(id, "/accesslist"));
        self.client
            .send(call.json(&json!({ "accessList": items })))
            .await
            .map(drop)
    }

    /// None is all.
    pub(super) async fn remove_items(&self, id: u64, items: &[u64]) -> Result<(), CallError> {
        let call = with_ids(
            Call::delete("accesslist.delete", self.one(id, "/accesslist")),
            items,
        );
        self.client.send(call).await.map(drop)
    }

    fn all(&self) -> String {
        format!("{}/loadbalancers", self.url)
    }

    fn one(&self, id: u64, part: &str) -> String {
        format!("{}/loadbalancers/{id}{part}", self.url)
    }
}

fn with_ids(call: Call, ids: &[u64]) -> Call {
    ids.iter()
        .fold(call, |call, id| call.query("id", &id.to_string()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    load_balancers: Vec<LoadBalancer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    load_balancer: LoadBalancer,
}

#[derive(Deserialize)]
struct Nodes {
    nodes: Vec<Node>,
}

/// It does not take a write now, and will later.
pub(super) fn is_busy(error: &CallError) -> bool {
    let says_so = |message: &str| message.contains("immutable") || message.contains("not ACTIVE");
    error
        .status()
        .is_some_and(|it| matches!(it.status.as_u16(), 400 | 422) && says_so(&it.message))
}

/// Load balancers tell mistakes at the top, Identity and what counts requests under a name.
pub(super) const DIALECT: Dialect = Dialect {
    read: |body| {
        let answer: Value = serde_json::from_slice(body).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(problems) = answer["validationErrors"]["messages"].as_array() {
            let problems: Vec<String> = problems.iter().filter_map(text).collect();
            return Some((String::new(), problems.join("; ")));
        }
        let plain = || Some((String::new(), text(&answer["message"])?));
        let named = || {
            answer
                .as_object()?
                .iter()
                .find_map(|(name, fault)| Some((name.clone(), text(&fault["message"])?)))
        };
        plain().or_else(named)
    },
    // 413 is also the answer to too many nodes or load balancers.
    is_throttled: |status, code| status == StatusCode::PAYLOAD_TOO_LARGE && code == "overLimit",
};
