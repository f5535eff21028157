//! Which routers this node speaks with: BgpPeers whose selector matches it, and the Secrets with
//! their passwords.

use super::config::{Password, PeerConfig};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use portico_client::error::chain;
use portico_client::reflector::watch;
use portico_client::wait::Backoff;
use portico_model::key::ObjectKey;
use portico_model::pools::{self, BgpPeerSpec, SecretKey};
use portico_model::report::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// The most changes that wait for their reader.
const WAITING: usize = 16;

/// What this node should speak with, and what it cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub peers: Vec<PeerConfig>,
    /// With the reason as their trouble.
    pub broken: Vec<Session>,
}

/// What a Secret has; `None` if it is not there.
type Values = Option<BTreeMap<String, Vec<u8>>>;

enum Change {
    /// All BgpPeers.
    Peers(BTreeMap<String, Result<BgpPeerSpec, String>>),
    Secret(ObjectKey, Values),
}

/// Follows the API.
pub(super) struct Peers {
    client: Client,
    labels: watch::Receiver<BTreeMap<String, String>>,
    sender: mpsc::Sender<Change>,
    changes: mpsc::Receiver<Change>,
    /// `None` until they have been listed.
    peers: Option<BTreeMap<String, Result<BgpPeerSpec, String>>>,
    secrets: BTreeMap<ObjectKey, Followed>,
    tasks: JoinSet<()>,
    told: Option<Wanted>,
}

struct Followed {
    /// `None` until the API has answered.
    values: Option<Values>,
    task: tokio::task::AbortHandle,
}

impl Peers {
    pub(super) fn follow(
        client: Client,
        labels: watch::Receiver<BTreeMap<String, String>>,
    ) -> Self {
        let (sender, changes) = mpsc::channel(WAITING);
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_peers(client.clone(), sender.clone()));
        Self {
            client,
            labels,
            sender,
            changes,
            peers: None,
            secrets: BTreeMap::new(),
            tasks,
            told: None,
        }
    }

    /// What is wanted, when it is no longer what was told last. Nothing is lost if it is dropped
    /// half way.
    pub(super) async fn next(&mut self) -> Wanted {
        loop {
            tokio::select! {
                Some(change) = self.changes.recv() => self.apply(change),
                Ok(()) = self.labels.changed() => {}
                else => std::future::pending().await,
            }
            let Some(peers) = &self.peers else { continue };
            let labels = self.labels.borrow_and_update().clone();
            let wanted = wanted(peers, &labels, |secret| {
                let followed = self
                    .secrets
                    .get(&ObjectKey::new(&secret.namespace, &secret.name))?;
                followed.values.as_ref()
            });
            if self.told.as_ref() != Some(&wanted) {
                self.told = Some(wanted.clone());
                return wanted;
            }
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Peers(peers) => {
                self.follow_secrets(&peers);
                self.peers = Some(peers);
            }
            Change::Secret(name, values) => {
                if let Some(followed) = self.secrets.get_mut(&name) {
                    followed.values = Some(values);
                }
            }
        }
    }

    /// Follows the Secrets of all peers, so that they are known when a change of labels selects
    /// another peer.
    fn follow_secrets(&mut self, peers: &BTreeMap<String, Result<BgpPeerSpec, String>>) {
        let specs = peers.values().flatten();
        let named = specs.filter_map(|spec| spec.password_secret.as_ref());
        let wanted: BTreeSet<ObjectKey> = named
            .map(|key| ObjectKey::new(&key.namespace, &key.name))
            .collect();
        self.secrets.retain(|name, followed| {
            let keep = wanted.contains(name);
            if !keep {
                followed.task.abort();
            }
            keep
        });
        for name in wanted {
            let (client, sender) = (self.client.clone(), self.sender.clone());
            let tasks = &mut self.tasks;
            self.secrets
                .entry(name)
                .or_insert_with_key(|name| Followed {
                    values: None,
                    task: tasks.spawn(follow_secret(client, name.clone(), sender)),
                });
        }
        while self.tasks.try_join_next().is_some() {}
    }
}

async fn follow_peers(client: Client, sender: mpsc::Sender<Change>) {
    let kind = GroupVersionKind::gvk(pools::GROUP, pools::VERSION, "BgpPeer");
    let api: Api<DynamicObject> = Api::all_with(
        client,
        &ApiResource::from_gvk_with_plural(&kind, "bgppeers"),
    );
    let mut events = watch(api, watcher::Config::default(), Backoff::of_nodes());
    let (mut all, mut listed, mut failing) = (BTreeMap::new(), false, false);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => (all, listed) = (BTreeMap::new(), false),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                all.insert(name_of(&object), decode(&object));
            }
            Ok(Event::Delete(object)) => _ = all.remove(&name_of(&object)),
            Ok(Event::InitDone) => listed = true,
            Err(error) => {
                match std::mem::replace(&mut failing, true) {
                    false => {
                        tracing::warn!(error = %chain(&error), "cannot follow BgpPeers, will try again")
                    }
                    true => tracing::debug!(error = %chain(&error), "still cannot follow BgpPeers"),
                }
                continue;
            }
        }
        failing = false;
        if listed && sender.send(Change::Peers(all.clone())).await.is_err() {
            return;
        }
    }
}

fn name_of(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

fn decode(object: &DynamicObject) -> Result<BgpPeerSpec, String> {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    serde_json::from_value(spec).map_err(|error| format!("the BgpPeer cannot be read: {error}"))
}

async fn follow_secret(client: Client, key: ObjectKey, sender: mpsc::Sender<Change>) {
    let api: Api<Secret> = Api::namespaced(client, &key.namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let mut events = watch(api, only, Backoff::of_nodes());
    let (mut values, mut failing) = (None, false);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                values = None;
                continue;
            }
            Ok(Event::InitApply(secret)) => {
                values = Some(values_of(secret));
                continue;
            }
            Ok(Event::InitDone) => {}
            Ok(Event::Apply(secret)) => values = Some(values_of(secret)),
            Ok(Event::Delete(_)) => values = None,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(error = %chain(&error), %key, "cannot read the Secret of a BgpPeer, will try again");
                }
                continue;
            }
        }
        failing = false;
        if sender
            .send(Change::Secret(key.clone(), values.clone()))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn values_of(secret: Secret) -> BTreeMap<String, Vec<u8>> {
    secret
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key, value.0))
        .collect()
}

/// What follows from all BgpPeers for a node with these labels. `secret` tells a Secret, or `None`
/// if it is not known yet.
fn wanted<'a>(
    peers: &BTreeMap<String, Result<BgpPeerSpec, String>>,
    labels: &BTreeMap<String, String>,
    secret: impl Fn(&SecretKey) -> Option<&'a Values>,
) -> Wanted {
    let mut wanted = Wanted::default();
    for (name, spec) in peers {
        let spec = match spec {
            Ok(spec)
                if !spec
                    .node_selector
                    .as_ref()
                    .is_none_or(|selector| selector.matches(labels)) =>
            {
                continue;
            }
            Ok(spec) => spec,
            Err(problem) => {
                wanted.broken.push(broken(name, problem.clone()));
                continue;
            }
        };
        match password(spec, &secret).and_then(|password| peer(name, spec, password)) {
            Ok(peer) => wanted.peers.push(peer),
            Err(problem) => wanted.broken.push(broken(name, problem)),
        }
    }
    wanted
}

fn broken(peer: &str, trouble: String) -> Session {
    Session {
        peer: peer.to_owned(),
        trouble,
        ..Session::default()
    }
}

/// Without a password that should be there, nothing is tried.
fn password<'a>(
    spec: &BgpPeerSpec,
    secret: impl Fn(&SecretKey) -> Option<&'a Values>,
) -> Result<Option<Password>, String> {
    let Some(key) = &spec.password_secret else {
        return Ok(None);
    };
    let which = format!("the Secret {}/{}", key.namespace, key.name);
    let values =
        secret(key).ok_or_else(|| format!("{which} with the password has not been read yet"))?;
    let values = values
        .as_ref()
        .ok_or_else(|| format!("{which} with the password is not there"))?;
    let value = values
        .get(&key.key)
        .ok_or_else(|| format!("{which} has no key {:?}", key.key))?;
    // A line end is what an editor leaves, not what a router has.
    let text = std::str::from_utf8(value)
        .ok()
        .map(|text| text.trim_end_matches(['\r', '\n']));
    let password = text.and_then(Password::new);
    password.map(Some).ok_or_else(|| {
        format!(
            "the password in {which} is not of 1 to {} octets of text",
            Password::LONGEST
        )
    })
}

fn peer(name: &str, spec: &BgpPeerSpec, password: Option<Password>) -> Result<PeerConfig, String> {
    let address = spec
        .peer()
        .ok_or_else(|| format!("peerAddress {:?} is not an address", spec.peer_address))?;
    let optional = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let source = optional(&spec.source_address).map(|text| text.parse());
    let source = source
        .transpose()
        .map_err(|_| format!("sourceAddress {:?} is not an address", spec.source_address))?;
    let router_id = optional(&spec.router_id).map(|text| text.parse());
    let router_id = router_id
        .transpose()
        .map_err(|_| format!("routerID {:?} is not one", spec.router_id))?;
    if spec.my_asn == 0 || spec.peer_asn == 0 {
        return Err("myASN and peerASN have to be given".to_owned());
    }
    let keepalive = Some(seconds(spec.keepalive())).filter(|_| !spec.keepalive_time.is_empty());
    Ok(PeerConfig {
        source,
        router_id,
        hold_time: seconds(spec.hold()),
        keepalive_time: keepalive,
        connect_time: spec.connect().max(Duration::from_secs(1)),
        password,
        ebgp_multihop: spec.ebgp_multi_hop,
        restart_time: spec.graceful_restart.then(|| seconds(spec.restart())),
        ..PeerConfig::new(
            name,
            SocketAddr::new(address, spec.peer_port),
            spec.my_asn,
            spec.peer_asn,
        )
    })
}

fn seconds(time: Duration) -> u16 {
    u16::try_from(time.as_secs()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
