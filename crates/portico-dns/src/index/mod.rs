//! Objects and health in, changes of the zone out. A change costs what it touches: a Service its
//! own names, a node its name, the one list of fit nodes and the Services with endpoints on it
//! alone.
//!
//! It decides which nodes are given for a Service, and which addresses are to be probed for that;
//! it sends no probe itself.

mod render;

use crate::facts::{AddressKind, Node, Report, Service, Slice};
use crate::zone::{self, Key, Member, Origin, Patch};
use portico_model::checks::{Ranges, Refused};
use portico_model::key::ObjectKey;
use portico_view::fitness::Unfit;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Settings {
    pub origin: Origin,
    /// The addresses given for a node: for each family those of the first kind that it has.
    pub given: Vec<AddressKind>,
    /// The address that a node is probed at: the first of the first kind; the first that is given
    /// for it where this is empty.
    pub probed: Vec<AddressKind>,
    /// Which addresses may be probed: a Node's are written by the node itself.
    pub ranges: Ranges,
    pub healthz_port: u16,
    /// Services of the cluster itself are given too.
    pub cluster_services: bool,
}

#[derive(Default)]
struct ServiceState {
    facts: Option<Service>,
    /// By the name of the slice.
    slices: BTreeMap<Arc<str>, Slice>,
    /// What is in the zone.
    keys: Vec<Key>,
    /// What is probed for it.
    probes: BTreeSet<SocketAddr>,
    /// The nodes that it depends on.
    nodes: BTreeSet<String>,
}

struct NodeState {
    facts: Node,
    /// `None` where its name does not fit into the zone.
    entry: Option<Arc<zone::Node>>,
    probe: Option<SocketAddr>,
    /// Why its address is not probed.
    refused: Option<(IpAddr, Refused)>,
}

/// The part of the zone to which the health of an address matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum User {
    Node(String),
    Service(ObjectKey),
}

/// Addresses to probe from now on, and no longer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Probes {
    pub wanted: Vec<SocketAddr>,
    pub unwanted: Vec<SocketAddr>,
}

/// Why a node is given, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub name: String,
    pub given: bool,
    pub probe: Option<SocketAddr>,
    /// The address may not be probed.
    pub refused: Option<(IpAddr, Refused)>,
    pub left_out: Option<&'static str>,
    pub healthy: Option<bool>,
}

pub(crate) struct Index {
    settings: Settings,
    services: BTreeMap<ObjectKey, ServiceState>,
    slice_owners: HashMap<ObjectKey, ObjectKey>,
    nodes: BTreeMap<String, NodeState>,
    reports: BTreeMap<String, Report>,
    /// Services whose own list of nodes depends on a node.
    local: BTreeMap<String, BTreeSet<ObjectKey>>,
    health: HashMap<SocketAddr, bool>,
    users: HashMap<SocketAddr, BTreeSet<User>>,
    /// No node is fit, so that all nodes are given.
    nobody_fit: bool,
    touched: BTreeSet<ObjectKey>,
    touched_nodes: BTreeSet<String>,
    touched_shared: bool,
    probes: BTreeMap<SocketAddr, bool>,
}

impl Index {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            services: BTreeMap::new(),
            slice_owners: HashMap::new(),
            nodes: BTreeMap::new(),
            reports: BTreeMap::new(),
            local: BTreeMap::new(),
            health: HashMap::new(),
            users: HashMap::new(),
            nobody_fit: false,
            touched: BTreeSet::new(),
            touched_nodes: BTreeSet::new(),
            touched_shared: false,
            probes: BTreeMap::new(),
        }
    }

    pub fn set_service(&mut self, name: ObjectKey, facts: Option<Service>) {
        let state = self.services.entry(name.clone()).or_default();
        if state.facts != facts {
            state.facts = facts;
            self.touched.insert(name);
        } else if state.facts.is_none() {
            self.touched.insert(name);
        }
    }

    pub fn set_slice(&mut self, name: ObjectKey, slice: Option<Slice>) {
        let owner = slice.as_ref().map(|slice| slice.service.clone());
        let before = self.slice_owners.get(&name).cloned();
        if let Some(before) = before.filter(|before| Some(before) != owner.as_ref()) {
            self.slice_owners.remove(&name);
            if let Some(state) = self.services.get_mut(&before) {
                state.slices.remove(&name.name);
            }
            self.touched.insert(before);
        }
        let (Some(owner), Some(slice)) = (owner, slice) else {
            return;
        };
        let state = self.services.entry(owner.clone()).or_default();
        if state.slices.get(&name.name) != Some(&slice) {
            state.slices.insert(name.name.clone(), slice);
            self.touched.insert(owner.clone());
        }
        self.slice_owners.insert(name, owner);
    }

    pub(crate) fn set_node(&mut self, name: &str, facts: Option<Node>) {
        let before = self.nodes.get(name).map(|state| &state.facts);
        if before == facts.as_ref() {
            return;
        }
        self.touched_nodes.insert(name.to_owned());
        match facts {
            None => {
                let probe = self.nodes.remove(name).and_then(|state| state.probe);
                self.swap_probe(&User::Node(name.to_owned()), probe, None);
            }
            Some(facts) => {
                let entry = self.node_entry(name, &facts);
                let probe = self.nodes.get(name).and_then(|state| state.probe);
                self.nodes.insert(
                    name.to_owned(),
                    NodeState {
                        facts,
                        entry,
                        probe,
                        refused: None,
                    },
                );
                self.aim(name);
            }
        }
    }

    /// Takes in what a node reports, if it does.
    pub(crate) fn set_report(&mut self, node: &str, report: Option<Report>) {
        let after = report.clone();
        let before = match report {
            Some(report) => self.reports.insert(node.to_owned(), report),
            None => self.reports.remove(node),
        };
        if before == after {
            return;
        }
        if let Some(facts) = self.nodes.get(node).map(|state| state.facts.clone()) {
            let entry = self.node_entry(node, &facts);
            if let Some(state) = self
                .nodes
                .get_mut(node)
                .filter(|state| state.entry != entry)
            {
                state.entry = entry;
                self.touched_nodes.insert(node.to_owned());
            }
        }
        self.aim(node);
    }

    pub(crate) fn set_health(&mut self, probe: SocketAddr, healthy: bool) {
        let Some(users) = self.users.get(&probe) else {
            return;
        };
        if self.health.insert(probe, healthy) == Some(healthy) {
            return;
        }
        for user in users {
            match user {
                User::Service(name) => drop(self.touched.insert(name.clone())),
                User::Node(name) => drop(self.touched_nodes.insert(name.clone())),
            }
        }
    }

    /// Whether the health of every node is known.
    pub(crate) fn is_informed(&self) -> bool {
        let probes = self.nodes.values().filter_map(|state| state.probe);
        let mut unknown = probes.filter(|probe| !self.health.contains_key(probe));
        unknown.next().is_none()
    }

    pub(crate) fn nobody_is_fit(&self) -> bool {
        self.nobody_fit
    }

    pub(crate) fn nodes(&self) -> Vec<NodeView> {
        let view = |(name, state): (&String, &NodeState)| NodeView {
            name: name.clone(),
            given: self.is_fit(state) || self.nobody_fit && is_eligible(state),
            probe: state.probe,
            refused: state.refused,
            left_out: match state.entry {
                None => {
                    Some("has no address at which node ports answer, or a name that does not fit")
                }
                Some(_) => state.facts.unfit.map(Unfit::as_str),
            },
            healthy: state
                .probe
                .and_then(|probe| self.health.get(&probe).copied()),
        };
        self.nodes.iter().map(view).collect()
    }

    /// Health-check ports that do not say yes, and the Services whose they are.
    pub fn doubtful(&self) -> Vec<(ObjectKey, SocketAddr)> {
        let of = |(name, state): (&ObjectKey, &ServiceState)| -> Vec<(ObjectKey, SocketAddr)> {
            let doubtful = state
                .probes
                .iter()
                .filter(|probe| self.health.get(probe) != Some(&true));
            doubtful.map(|probe| (name.clone(), *probe)).collect()
        };
        self.services.iter().flat_map(of).collect()
    }

    /// What has to change in the zone.
    pub(crate) fn take(&mut self) -> Vec<Patch> {
        let mut patches = Vec::new();
        for name in mem::take(&mut self.touched_nodes) {
            let entry = self.nodes.get(&name).and_then(|state| state.entry.clone());
            if let Some(key) = self.settings.origin.key(&[&name, "node"]) {
                let content =
                    entry.map(|entry| zone::Content::Addresses(entry.addresses.clone().into()));
                patches.push(Patch::Set(key, content));
            }
            self.touched
                .extend(self.local.get(&name).into_iter().flatten().cloned());
            self.touched_shared = true;
        }
        if mem::take(&mut self.touched_shared) {
            let shared = self.shared();
            patches.push(Patch::Shared(shared));
        }
        for name in mem::take(&mut self.touched) {
            self.renew(&name, &mut patches);
        }
        patches
    }

    /// What to probe, since the last time.
    pub(crate) fn take_probes(&mut self) -> Probes {
        let mut probes = Probes::default();
        for (probe, wanted) in mem::take(&mut self.probes) {
            if wanted {
                probes.wanted.push(probe)
            } else {
                probes.unwanted.push(probe)
            }
        }
        probes
    }

    /// The nodes that serve what is on all of them: those that are fit, or all rather than none.
    fn shared(&mut self) -> Arc<[Member]> {
        let member = |state: &NodeState| state.entry.clone().map(|node| Member { node, weight: 1 });
        let fit = self
            .nodes
            .values()
            .filter(|state| self.is_fit(state))
            .filter_map(member);
        let fit: Vec<Member> = fit.collect();
        let all = || {
            self.nodes
                .values()
                .filter(|state| is_eligible(state))
                .filter_map(member)
                .collect::<Vec<_>>()
        };
        let members = if fit.is_empty() { all() } else { fit.clone() };
        self.nobody_fit = fit.is_empty() && !members.is_empty();
        members.into()
    }

    fn is_fit(&self, state: &NodeState) -> bool {
        is_eligible(state)
            && state
                .probe
                .is_some_and(|probe| self.health.get(&probe) == Some(&true))
    }

    fn node_entry(&self, name: &str, facts: &Node) -> Option<Arc<zone::Node>> {
        let key = self.settings.origin.key(&[name, "node"])?;
        let report = self.reports.get(name);
        let answers = |ip: IpAddr| report.is_none_or(|report| report.answers_at(ip));
        let of = |kind: &AddressKind, v4: bool| -> Vec<IpAddr> {
            let all = facts
                .addresses
                .iter()
                .filter(|(its, ip)| its == kind && ip.is_ipv4() == v4 && answers(*ip));
            all.map(|(_, ip)| *ip).collect()
        };
        let first = |v4: bool| {
            self.settings
                .given
                .iter()
                .map(|kind| of(kind, v4))
                .find(|found| !found.is_empty())
        };
        let addresses: Vec<IpAddr> = [first(true), first(false)]
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        let full = self.settings.origin.full(std::borrow::Borrow::borrow(&key));
        (!addresses.is_empty()).then(|| {
            Arc::new(zone::Node {
                name: full,
                addresses,
            })
        })
    }

    /// Probe a node where it says whether it is fit.
    fn aim(&mut self, name: &str) {
        let Some(state) = self.nodes.get(name) else {
            return;
        };
        let port = self
            .reports
            .get(name)
            .and_then(|report| report.healthz_port)
            .unwrap_or(self.settings.healthz_port);
        // An address that may not be probed is not passed over for another: the node would be
        // judged by an address that the operator did not mean.
        let (probe, refused) = match self.probed_address(state) {
            None => (None, None),
            Some(ip) => match self.settings.ranges.check(ip, true) {
                Ok(()) => (Some(SocketAddr::new(ip, port)), None),
                Err(why) => (None, Some((ip, why))),
            },
        };
        let before = state.probe;
        if state.refused != refused
            && let Some(state) = self.nodes.get_mut(name)
        {
            state.refused = refused;
            self.touched_nodes.insert(name.to_owned());
        }
        if before != probe {
            self.swap_probe(&User::Node(name.to_owned()), before, probe);
            if let Some(state) = self.nodes.get_mut(name) {
                state.probe = probe;
            }
            self.touched_nodes.insert(name.to_owned());
        }
    }

    fn probed_address(&self, state: &NodeState) -> Option<IpAddr> {
        if self.settings.probed.is_empty() {
            let given = state.entry.as_ref()?;
            return given.addresses.first().copied();
        }
        let of = |kind: &AddressKind| {
            let all = &state.facts.addresses;
            all.iter().find(|(its, _)| its == kind).map(|(_, ip)| *ip)
        };
        self.settings.probed.iter().find_map(of)
    }

    fn swap_probe(&mut self, user: &User, before: Option<SocketAddr>, after: Option<SocketAddr>) {
        if before == after {
            return;
        }
        if let Some(probe) = after {
            let users = self.users.entry(probe).or_default();
            if users.is_empty() {
                self.probes.insert(probe, true);
            }
            users.insert(user.clone());
        }
        if let Some(probe) = before
            && let Some(users) = self.users.get_mut(&probe)
        {
            users.remove(user);
            if users.is_empty() {
                self.users.remove(&probe);
                self.health.remove(&probe);
                self.probes.insert(probe, false);
            }
        }
    }
}

fn is_eligible(state: &NodeState) -> bool {
    state.facts.unfit.is_none() && state.entry.is_some()
}

#[cfg(test)]
mod tests;
