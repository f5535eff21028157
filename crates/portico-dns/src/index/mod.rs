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
    /// By port partition; `None` is for what is in none. Only where it has an address there, and a
    /// name that fits into the zone.
    standings: BTreeMap<Option<Arc<str>>, Standing>,
}

/// What a node is with its addresses in one port partition, or in none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    key: Key,
    entry: Arc<zone::Node>,
    probe: Option<SocketAddr>,
    /// Why its address is not probed.
    refused: Option<(IpAddr, Refused)>,
}

impl NodeState {
    fn standing(&self, partition: Option<&str>) -> Option<&Standing> {
        match partition {
            None => self.standings.get(&None),
            Some(partition) => self
                .standings
                .iter()
                .find(|(name, _)| name.as_deref() == Some(partition))
                .map(|(_, standing)| standing),
        }
    }

    fn probes(&self) -> BTreeSet<SocketAddr> {
        self.standings
            .values()
            .filter_map(|standing| standing.probe)
            .collect()
    }
}

/// Whom the health of an address matters to.
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
    /// Services whose addresses follow from all nodes.
    selecting: BTreeSet<ObjectKey>,
    /// The names of nodes in the zone.
    node_keys: BTreeMap<String, BTreeSet<Key>>,
    /// Port partitions of which there is a list of nodes.
    lists: BTreeSet<Arc<str>>,
    /// Nobody is fit, so that all nodes are given.
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
            selecting: BTreeSet::new(),
            node_keys: BTreeMap::new(),
            lists: BTreeSet::new(),
            nobody_fit: false,
            touched: BTreeSet::new(),
            touched_nodes: BTreeSet::new(),
            touched_shared: false,
            probes: BTreeMap::new(),
        }
    }

    pub(crate) fn set_service(&mut self, name: ObjectKey, facts: Option<Service>) {
        let state = self.services.entry(name.clone()).or_default();
        if state.facts != facts {
            state.facts = facts;
            self.touched.insert(name);
        } else if state.facts.is_none() {
            self.touched.insert(name);
        }
    }

    pub(crate) fn set_slice(&mut self, name: ObjectKey, slice: Option<Slice>) {
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
        let gone = self.nodes.remove(name);
        let probes = gone.map(|state| state.probes()).unwrap_or_default();
        if let Some(facts) = facts {
            let standings = BTreeMap::new();
            self.nodes
                .insert(name.to_owned(), NodeState { facts, standings });
        }
        self.place(name, probes);
    }

    /// Takes in what a node reports, if it does.
    pub(crate) fn set_report(&mut self, node: &str, report: Option<Report>) {
        let after = report.clone();
        let before = match report {
            Some(report) => self.reports.insert(node.to_owned(), report),
            None => self.reports.remove(node),
        };
        if before != after {
            let probes = self.nodes.get(node).map(NodeState::probes);
            self.place(node, probes.unwrap_or_default());
        }
    }

    /// Give and probe a node by what is known of it now. It was probed there before.
    fn place(&mut self, name: &str, before: BTreeSet<SocketAddr>) {
        let standings = self
            .nodes
            .get(name)
            .map(|state| self.standings(name, &state.facts))
            .unwrap_or_default();
        let after: BTreeSet<SocketAddr> = standings
            .values()
            .filter_map(|standing| standing.probe)
            .collect();
        let user = User::Node(name.to_owned());
        for probe in after.difference(&before) {
            self.swap_probe(&user, None, Some(*probe));
        }
        for probe in before.difference(&after) {
            self.swap_probe(&user, Some(*probe), None);
        }
        if let Some(state) = self.nodes.get_mut(name)
            && state.standings != standings
        {
            state.standings = standings;
            self.touched_nodes.insert(name.to_owned());
        }
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
        let probes = self.nodes.values().flat_map(NodeState::probes);
        let mut unknown = probes.filter(|probe| !self.health.contains_key(probe));
        unknown.next().is_none()
    }

    pub(crate) fn nobody_is_fit(&self) -> bool {
        self.nobody_fit
    }

    pub(crate) fn nodes(&self) -> Vec<NodeView> {
        let view = |(name, state): (&String, &NodeState)| {
            // What is in no partition comes first.
            let first = state.standings.iter().next();
            let (partition, standing) = first.unzip();
            let partition = partition.and_then(Option::as_deref);
            let probe = standing.and_then(|standing| standing.probe);
            NodeView {
                name: name.clone(),
                given: self.is_fit(state, partition)
                    || self.nobody_fit && is_eligible(state, partition),
                probe,
                refused: standing.and_then(|standing| standing.refused),
                left_out: match standing {
                    None => Some(
                        "has no address at which node ports answer, or a name that does not fit",
                    ),
                    Some(_) => state.facts.unfit.map(Unfit::as_str),
                },
                healthy: probe.and_then(|probe| self.health.get(&probe).copied()),
            }
        };
        self.nodes.iter().map(view).collect()
    }

    /// Health-check ports that do not say yes, and the Services whose they are.
    pub(crate) fn doubtful(&self) -> Vec<(ObjectKey, SocketAddr)> {
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
            self.rename(&name, &mut patches);
            self.touched
                .extend(self.local.get(&name).into_iter().flatten().cloned());
            self.touched_shared = true;
        }
        if mem::take(&mut self.touched_shared) {
            patches.extend(self.shared());
            self.touched.extend(self.selecting.iter().cloned());
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

    /// The names of a node again, with the addresses that it has in each partition.
    fn rename(&mut self, name: &str, patches: &mut Vec<Patch>) {
        let standings = self.nodes.get(name).map(|state| &state.standings);
        let standings = standings.into_iter().flat_map(BTreeMap::values);
        let wanted: BTreeMap<Key, Arc<[IpAddr]>> = standings
            .map(|standing| {
                (
                    standing.key.clone(),
                    standing.entry.addresses.clone().into(),
                )
            })
            .collect();
        let keys = wanted.keys().cloned().collect();
        let before = match wanted.is_empty() {
            true => self.node_keys.remove(name),
            false => self.node_keys.insert(name.to_owned(), keys),
        };
        let gone = before.unwrap_or_default();
        let gone = gone.into_iter().filter(|key| !wanted.contains_key(key));
        patches.extend(gone.map(|key| Patch::Set(key, None)));
        let contents = wanted
            .into_iter()
            .map(|(key, addresses)| Patch::Set(key, Some(zone::Content::Addresses(addresses))));
        patches.extend(contents);
    }

    /// The lists of nodes that serve what is on all of them.
    fn shared(&mut self) -> Vec<Patch> {
        let partitions: BTreeSet<Arc<str>> = self
            .nodes
            .values()
            .flat_map(|state| state.standings.keys().flatten().cloned())
            .collect();
        let gone = std::mem::replace(&mut self.lists, partitions);
        let all: BTreeSet<Option<Arc<str>>> = gone
            .into_iter()
            .chain(self.lists.iter().cloned())
            .map(Some)
            .chain([None])
            .collect();
        let members = self.members(None);
        let fit = |state: &NodeState| self.is_fit(state, None);
        self.nobody_fit = !members.is_empty() && !self.nodes.values().any(fit);
        all.into_iter()
            .map(|partition| {
                let members = self.members(partition.as_deref());
                Patch::Shared(partition, members.into())
            })
            .collect()
    }

    /// The nodes that are fit, or all rather than none.
    fn members(&self, partition: Option<&str>) -> Vec<Member> {
        let of = |fit: &dyn Fn(&NodeState) -> bool| -> Vec<Member> {
            let nodes = self.nodes.values().filter(|state| fit(state));
            let standings = nodes.filter_map(|state| state.standing(partition));
            standings
                .map(|standing| Member {
                    node: standing.entry.clone(),
                    weight: 1,
                })
                .collect()
        };
        let fit = of(&|state| self.is_fit(state, partition));
        if fit.is_empty() {
            of(&|state| is_eligible(state, partition))
        } else {
            fit
        }
    }

    fn is_fit(&self, state: &NodeState, partition: Option<&str>) -> bool {
        let probe = state
            .standing(partition)
            .and_then(|standing| standing.probe);
        is_eligible(state, partition)
            && probe.is_some_and(|probe| self.health.get(&probe) == Some(&true))
    }

    fn standings(&self, name: &str, facts: &Node) -> BTreeMap<Option<Arc<str>>, Standing> {
        let report = self.reports.get(name);
        let partitions = report
            .into_iter()
            .flat_map(|report| report.reach.partitions());
        let all = [None].into_iter().chain(partitions.map(Some));
        all.filter_map(|partition| {
            let standing = self.standing(name, facts, partition)?;
            Some((partition.map(Arc::from), standing))
        })
        .collect()
    }

    fn standing(&self, name: &str, facts: &Node, partition: Option<&str>) -> Option<Standing> {
        let parts: Vec<&str> = match partition {
            None => vec![name, "node"],
            Some(partition) => [name]
                .into_iter()
                .chain(partition.split('.'))
                .chain(["partition"])
                .collect(),
        };
        let key = self.settings.origin.key(&parts)?;
        let addresses = self.addresses(name, facts, partition);
        let given = *addresses.first()?;
        let full = self.settings.origin.full(std::borrow::Borrow::borrow(&key));
        let (probe, refused) = self.aim(name, facts, given);
        Some(Standing {
            key,
            entry: Arc::new(zone::Node {
                name: full,
                addresses,
            }),
            probe,
            refused,
        })
    }

    fn addresses(&self, name: &str, facts: &Node, partition: Option<&str>) -> Vec<IpAddr> {
        let report = self.reports.get(name);
        let answers = |ip: IpAddr| match report {
            Some(report) => report.reach.answers_at(ip, partition),
            None => partition.is_none(),
        };
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
        [first(true), first(false)]
            .into_iter()
            .flatten()
            .flatten()
            .collect()
    }

    /// Where a node that is given with this address first says whether it is fit.
    fn aim(
        &self,
        name: &str,
        facts: &Node,
        given: IpAddr,
    ) -> (Option<SocketAddr>, Option<(IpAddr, Refused)>) {
        let port = self
            .reports
            .get(name)
            .and_then(|report| report.healthz_port)
            .unwrap_or(self.settings.healthz_port);
        // An address that may not be probed is not passed over for another: the node would be
        // judged by an address that the operator did not mean.
        match self.probed_address(facts, given) {
            None => (None, None),
            Some(ip) => match self.settings.ranges.check(ip, true) {
                Ok(()) => (Some(SocketAddr::new(ip, port)), None),
                Err(why) => (None, Some((ip, why))),
            },
        }
    }

    fn probed_address(&self, facts: &Node, given: IpAddr) -> Option<IpAddr> {
        if self.settings.probed.is_empty() {
            return Some(given);
        }
        let of = |kind: &AddressKind| {
            let all = &facts.addresses;
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

fn is_eligible(state: &NodeState, partition: Option<&str>) -> bool {
    state.facts.unfit.is_none() && state.standing(partition).is_some()
}

#[cfg(test)]
mod tests;
