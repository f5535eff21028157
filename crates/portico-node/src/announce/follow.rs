//! Follows AddressPools and Nodes of the API, for the plan.

use super::plan::NodeFacts;
use crate::client;
use futures_util::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use portico_client::error::chain;
use portico_client::reflector::watch;
use portico_client::wait::{Backoff, fraction};
use portico_model::objects::{NodeSpec, NodeStatus};
use portico_model::pools::{self, AddressPoolSpec};
use portico_view::fitness::{self, EXCLUDE_LABEL};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Changes that wait for the plan.
const WAITING: usize = 64;
/// The time between looks for AddressPools where the API server does not have them, or does not
/// show them.
const ABSENT: Duration = Duration::from_secs(60);
const POOLS: &str = "/apis/portico.dev/v1/addresspools?limit=1";

/// What is new of the API.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// A pool, with the second in which it was created; `None`: it is gone.
    Pool(String, Option<(i64, Box<AddressPoolSpec>)>),
    /// These are all pools.
    Pools(BTreeSet<String>),
    Node(String, Option<NodeFacts>),
    Nodes(BTreeSet<String>),
}

pub(super) struct Follower {
    client: Client,
    sender: mpsc::Sender<Change>,
    changes: mpsc::Receiver<Change>,
    nodes: bool,
    tasks: JoinSet<()>,
}

impl Follower {
    /// Follows pools, as soon as there is such a kind.
    pub(super) fn new(client: Client) -> Self {
        let (sender, changes) = mpsc::channel(WAITING);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_pools(client.clone(), sender.clone()));
        Self {
            client,
            sender,
            changes,
            nodes: false,
            tasks,
        }
    }

    /// Follows Nodes too, from now on.
    pub(super) fn follow_nodes(&mut self) {
        if !std::mem::replace(&mut self.nodes, true) {
            self.tasks
                .spawn(follow_nodes(self.client.clone(), self.sender.clone()));
        }
    }

    /// The next change. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Change {
        match self.changes.recv().await {
            Some(change) => change,
            None => std::future::pending().await,
        }
    }
}

async fn follow_pools(client: Client, sender: mpsc::Sender<Change>) {
    wait_for_the_kind(&client, &sender).await;
    let kind = GroupVersionKind::gvk(pools::GROUP, pools::VERSION, "AddressPool");
    let resource = ApiResource::from_gvk_with_plural(&kind, "addresspools");
    let decode = |pool: &DynamicObject| {
        let created = pool
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(i64::MAX, |time| time.0.as_second());
        Ok(Change::Pool(
            pool.name_any(),
            Some((created, Box::new(part(pool, "spec")?))),
        ))
    };
    let gone = |name| Change::Pool(name, None);
    follow(
        Api::all_with(client, &resource),
        decode,
        gone,
        Change::Pools,
        sender,
    )
    .await;
}

/// A cluster without the kind has nothing to announce, and may get it some day.
async fn wait_for_the_kind(client: &Client, sender: &mpsc::Sender<Change>) {
    let mut told = false;
    while let Err(error) = client::get(client, POOLS).await
        && error.is_denied()
    {
        if !std::mem::replace(&mut told, true) {
            tracing::info!(error = %chain(&error), "no address is announced: there are no AddressPools to be seen here (yet)");
            // Nobody listens any more only at the end.
            let _ = sender.send(Change::Pools(BTreeSet::new())).await;
        }
        tokio::time::sleep(ABSENT.mul_f64(0.5 + fraction())).await;
    }
}

async fn follow_nodes(client: Client, sender: mpsc::Sender<Change>) {
    let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
    let decode = |node: &DynamicObject| Ok(Change::Node(node.name_any(), Some(facts(node)?)));
    follow(
        Api::all_with(client, &resource),
        decode,
        |name| Change::Node(name, None),
        Change::Nodes,
        sender,
    )
    .await;
}

async fn follow(
    api: Api<DynamicObject>,
    decode: impl Fn(&DynamicObject) -> Result<Change, serde_json::Error>,
    gone: impl Fn(String) -> Change,
    listed: impl Fn(BTreeSet<String>) -> Change,
    sender: mpsc::Sender<Change>,
) {
    let mut events = watch(api.clone(), watcher::Config::default(), Backoff::of_nodes());
    let (mut names, mut failing) = (BTreeSet::new(), false);
    let kind = api.resource_url();
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(Event::Init) => {
                names.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                names.insert(object.name_any());
                decoded(&object, &decode)
            }
            Ok(Event::Apply(object)) => decoded(&object, &decode),
            Ok(Event::Delete(object)) => Some(gone(object.name_any())),
            Ok(Event::InitDone) => Some(listed(std::mem::take(&mut names))),
            Err(error) => {
                match std::mem::replace(&mut failing, true) {
                    false => {
                        tracing::warn!(kind, error = %chain(&error), "cannot follow, will try again")
                    }
                    true => tracing::debug!(kind, error = %chain(&error), "still cannot follow"),
                }
                continue;
            }
        };
        failing = false;
        if let Some(change) = change
            && sender.send(change).await.is_err()
        {
            return;
        }
    }
}

/// What cannot be read stays as it was known, and hides nothing else.
fn decoded(
    object: &DynamicObject,
    decode: impl Fn(&DynamicObject) -> Result<Change, serde_json::Error>,
) -> Option<Change> {
    let decoded = decode(object);
    if let Err(error) = &decoded {
        let kind = object
            .types
            .as_ref()
            .map(|types| types.kind.as_str())
            .unwrap_or_default();
        tracing::error!(kind, name = object.name_any(), %error, "cannot read it, it is left out");
    }
    decoded.ok()
}

fn part<T: DeserializeOwned + Default>(
    object: &DynamicObject,
    name: &str,
) -> Result<T, serde_json::Error> {
    let part = object.data.get(name).filter(|part| !part.is_null());
    part.map_or_else(|| Ok(T::default()), |part| T::deserialize(part))
}

fn facts(node: &DynamicObject) -> Result<NodeFacts, serde_json::Error> {
    let (spec, status): (NodeSpec, NodeStatus) = (part(node, "spec")?, part(node, "status")?);
    let marks = fitness::Marks {
        being_deleted: node.metadata.deletion_timestamp.is_some(),
        exclude_label: node.labels().get(EXCLUDE_LABEL).map(String::as_str),
        taints: spec.taints.iter().map(|taint| &*taint.key),
    };
    let leaving = marks.unfit().is_some();
    let of_type = |wanted: &'static str| {
        let matching = status
            .addresses
            .iter()
            .filter(move |address| address.type_ == wanted);
        matching.filter_map(|address| address.address.parse::<IpAddr>().ok())
    };
    let addresses = of_type("InternalIP").chain(of_type("ExternalIP")).collect();
    Ok(NodeFacts {
        labels: node.labels().clone(),
        addresses,
        leaving,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(change: impl FnOnce(&mut Value)) -> NodeFacts {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"rack": "1"}}, "spec": {},
            "status": {"addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "a"},
                {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}]},
        });
        change(&mut node);
        facts(&serde_json::from_value(node).unwrap()).unwrap()
    }

    #[test]
    fn addresses_of_the_inside_come_first() {
        let facts = node(|_| {});
        assert_eq!(
            facts.addresses,
            ["10.0.0.1", "fd00::1", "192.0.2.1"].map(|address| address.parse::<IpAddr>().unwrap())
        );
        assert_eq!(facts.labels.get("rack").map(String::as_str), Some("1"));
        assert!(!facts.leaving);
        assert_eq!(
            node(|node| node["status"] = Value::Null).addresses,
            Vec::<IpAddr>::new()
        );
    }

    #[test]
    fn who_leaves() {
        let labelled = |value: &'static str| {
            move |node: &mut Value| node["metadata"]["labels"][EXCLUDE_LABEL] = value.into()
        };
        assert!(
            node(labelled("")).leaving
                && node(labelled("true")).leaving
                && node(labelled("maybe")).leaving
        );
        assert!(!node(labelled("false")).leaving);
        assert!(
            node(|node| node["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into())
                .leaving
        );
        assert!(
            node(|node| node["spec"]["taints"] = json!([{"key": fitness::TO_BE_DELETED_TAINT}]))
                .leaving
        );
        // Cordoned: its pods go on, and so does what it forwards.
        assert!(!node(|node| node["spec"]["unschedulable"] = true.into()).leaving);
    }
}
