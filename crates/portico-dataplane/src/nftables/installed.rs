//! What one address family has installed, and how a changed port changes it. Pure: the allocation
//! of pools, slots, classes and members, and the elements that several ports share. No two ports
//! have the same frontend: the model sees to that.

use super::classes::{self, Classes};
use super::counts::Counts;
use super::delta::Delta;
use super::edge;
use super::element::{Element, Set, Target};
use super::number::PAIRS;
use super::port::Port;
use super::rules::Class;
use super::slots;
use super::sticky::Sticky;
use crate::ApplyError;
use portico_model::hash::Map;
use portico_model::table::{
    Change, DmzPods, Family, ForwardingTable, FrontendKind, NodePortAddresses, PortKey, ServicePort,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Endpoints that most Services do not have more of.
const PREPARED: u32 = 16;

/// Names a port; its pools are twice this and one more.
pub(super) type Pair = u32;

pub struct Installed {
    family: Family,
    ports: Vec<Option<Port>>,
    pairs: Map<PortKey, Pair>,
    free: Vec<Pair>,
    /// The numbers of ports that went in a batch that is not committed yet.
    freed: Vec<Pair>,
    classes: Classes,
    cluster_ips: Counts,
    hairpins: Counts,
    node_port_addresses: Vec<IpAddr>,
    dmz_pods: Vec<IpAddr>,
}

/// Slots and members as the kernel has them.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The slots of the pool of the cluster, and of the pool of this node.
    pub slots: [Vec<Option<Target>>; 2],
    pub members: Vec<Option<Target>>,
    pub edge: edge::Found,
}

impl Installed {
    pub fn new(family: Family) -> Self {
        Self {
            family,
            // Zero is not used: `nft` prints it as `none`.
            ports: vec![None],
            pairs: Map::default(),
            free: Vec::new(),
            freed: Vec::new(),
            classes: Classes::default(),
            cluster_ips: Counts::default(),
            hairpins: Counts::default(),
            node_port_addresses: Vec::new(),
            dmz_pods: Vec::new(),
        }
    }

    /// Make a port what it is to be.
    pub fn set(
        &mut self,
        key: &PortKey,
        wanted: Option<&Arc<ServicePort>>,
        delta: &mut Delta,
    ) -> Result<(), ApplyError> {
        match (self.pairs.get(key).copied(), wanted) {
            (Some(pair), Some(wanted)) => self.update(pair, wanted, &Found::default(), delta),
            (None, Some(wanted)) => self.adopt(key, wanted, None, &Found::default(), delta),
            (Some(pair), None) => {
                self.update(pair, &Arc::default(), &Found::default(), delta)?;
                self.pairs.remove(key);
                self.put(pair, None);
                self.freed.push(pair);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// A new port, which the kernel may already have, under a number that is not taken.
    pub fn adopt(
        &mut self,
        key: &PortKey,
        wanted: &Arc<ServicePort>,
        pair: Option<Pair>,
        found: &Found,
        delta: &mut Delta,
    ) -> Result<(), ApplyError> {
        let pair = match pair {
            Some(pair) => pair,
            None => self.new_pair()?,
        };
        self.put(pair, Some(Port::new(key)));
        self.pairs.insert(key.clone(), pair);
        self.update(pair, wanted, found, delta)
    }

    pub fn adopt_class(&mut self, number: u32, class: Class) {
        self.classes.adopt(number, class);
    }

    /// Make some classes before they are needed. The rule of a new chain takes the kernel the
    /// longer the more endpoints there are, since it looks at all that the rule could find; while
    /// there are none it takes nothing.
    pub fn prepare_classes(&mut self, delta: &mut Delta) -> Result<(), ApplyError> {
        for endpoints in 1..=PREPARED {
            let number = self.classes.acquire(
                Class {
                    endpoints,
                    affinity: None,
                },
                delta,
            )?;
            self.classes.release(number);
        }
        Ok(())
    }

    /// Frees the numbers below this one for new ports, except those that will be adopted.
    pub fn reserve(&mut self, below: Pair, will_be_adopted: impl Fn(Pair) -> bool) {
        self.ports.resize_with(below.max(1) as usize, || None);
        self.free = (1..below)
            .rev()
            .filter(|pair| !will_be_adopted(*pair))
            .collect();
    }

    /// What has to change for the table to be installed.
    pub fn changes_to(&self, table: &ForwardingTable) -> Vec<Change> {
        let installed = |key: &PortKey| {
            self.pairs
                .get(key)
                .and_then(|pair| self.port(*pair))
                .map(|port| &port.wanted)
        };
        let wanted = table
            .ports
            .iter()
            .filter(|(key, _)| key.family == self.family);
        let changed = wanted.filter(|(key, port)| {
            installed(key).is_none_or(|old| !Arc::ptr_eq(old, port) && old != *port)
        });
        let change = |key: &PortKey, after: Option<&Arc<ServicePort>>| Change {
            key: key.clone(),
            before: installed(key).cloned(),
            after: after.cloned(),
        };
        let gone = self
            .pairs
            .keys()
            .filter(|key| !table.ports.contains_key(key));
        changed
            .map(|(key, port)| change(key, Some(port)))
            .chain(gone.map(|key| change(key, None)))
            .collect()
    }

    /// A set of a given size will not have more elements than this when these changes are made.
    pub fn at_most(&self, set: Set, changes: &[Change]) -> usize {
        let ports = self.ports.iter().flatten();
        let changed = changes
            .iter()
            .filter(|change| change.key.family == self.family);
        let new = changed.filter_map(|change| change.after.as_ref());
        let endpoints = |port: &ServicePort| port.cluster.len() + port.local.len();
        match set {
            Set::Frontends => ports
                .map(|port| &port.wanted)
                .chain(new)
                .map(|port| port.frontends.len())
                .sum(),
            Set::Hairpin => self.hairpins.len() + new.map(|port| endpoints(port)).sum::<usize>(),
            _ => {
                let slots = ports
                    .flat_map(|port| &port.pools)
                    .map(|pool| pool.slots.len());
                slots.sum::<usize>() + new.map(|port| endpoints(port)).sum::<usize>()
            }
        }
    }

    pub fn set_node_port_addresses(&mut self, addresses: &NodePortAddresses, delta: &mut Delta) {
        let mut wanted = match addresses {
            NodePortAddresses::Listed(listed) => listed.clone(),
            NodePortAddresses::AllLocal { .. } => Vec::new(),
        };
        wanted.retain(|address| Family::of(*address) == self.family);
        wanted.sort_unstable();
        wanted.dedup();
        delta.removed.extend(
            self.node_port_addresses
                .drain(..)
                .map(Element::NodePortAddress),
        );
        delta
            .added
            .extend(wanted.iter().copied().map(Element::NodePortAddress));
        self.node_port_addresses = wanted;
    }

    pub fn set_dmz_pods(&mut self, dmz: &DmzPods, delta: &mut Delta) {
        let (DmzPods::Listed(wanted) | DmzPods::AllBut(wanted)) = dmz;
        let gone = std::mem::replace(&mut self.dmz_pods, wanted.clone());
        delta.removed.extend(gone.into_iter().map(Element::DmzPod));
        delta
            .added
            .extend(wanted.iter().copied().map(Element::DmzPod));
    }

    /// The number of a port.
    pub fn pair(&self, key: &PortKey) -> Option<Pair> {
        self.pairs.get(key).copied()
    }

    /// The batch is in: numbers of what went may be used again.
    pub fn committed(&mut self) {
        self.free.append(&mut self.freed);
    }

    pub fn classes(&self) -> impl Iterator<Item = Class> {
        self.classes.iter().map(|(_, class)| class)
    }

    pub fn class_elements(&self) -> impl Iterator<Item = Element> {
        self.classes
            .iter()
            .map(|(number, class)| classes::element(number, &class))
    }

    /// All elements that are installed.
    pub fn elements(&self) -> Vec<Element> {
        let mut all = Vec::new();
        for (pair, port) in self.ports.iter().enumerate() {
            let (pair, Some(port)) = (pair as Pair, port) else {
                continue;
            };
            port.elements(pair, &mut all);
        }
        all.extend(self.cluster_ips.addresses().map(Element::ClusterIp));
        all.extend(self.hairpins.addresses().map(Element::Hairpin));
        all.extend(
            self.node_port_addresses
                .iter()
                .copied()
                .map(Element::NodePortAddress),
        );
        all.extend(self.dmz_pods.iter().copied().map(Element::DmzPod));
        all.extend(self.class_elements());
        all
    }

    fn new_pair(&mut self) -> Result<Pair, ApplyError> {
        if let Some(pair) = self.free.pop() {
            return Ok(pair);
        }
        if self.ports.len() >= PAIRS {
            return Err(ApplyError::Limit(format!(
                "more than {PAIRS} service ports in one address family"
            )));
        }
        self.ports.push(None);
        Ok(self.ports.len() as Pair - 1)
    }

    fn port(&self, pair: Pair) -> Option<&Port> {
        self.ports.get(pair as usize)?.as_ref()
    }

    fn put(&mut self, pair: Pair, port: Option<Port>) {
        if let Some(place) = self.ports.get_mut(pair as usize) {
            *place = port;
        }
    }

    /// Brings a port from what is installed to what is wanted: all of the old is removed, all of
    /// the new added, and the delta keeps the difference.
    fn update(
        &mut self,
        pair: Pair,
        wanted: &Arc<ServicePort>,
        found: &Found,
        delta: &mut Delta,
    ) -> Result<(), ApplyError> {
        let Some(port) = self.port(pair) else {
            return Ok(());
        };
        let before = port.wanted.clone();
        port.elements(pair, &mut delta.removed);
        self.fill(pair, wanted, found, delta)?;
        self.count(&before, wanted, delta);
        self.port(pair)
            .into_iter()
            .for_each(|port| port.elements(pair, &mut delta.added));
        Ok(())
    }

    /// Give the wanted endpoints slots, members' indexes and classes.
    fn fill(
        &mut self,
        pair: Pair,
        wanted: &Arc<ServicePort>,
        found: &Found,
        delta: &mut Delta,
    ) -> Result<(), ApplyError> {
        let Some(port) = self.ports.get_mut(pair as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        let mut sides =
            [&wanted.cluster, &wanted.local].map(|side| slots::targets(self.family, side.iter()));
        let mut wanted = wanted.clone();
        port.before = edge::before(
            port.wanted.edge.as_deref(),
            &port.before,
            &found.edge,
            wanted.edge.as_deref(),
        );
        // What it had may be what it needs.
        for old in port.pools.iter_mut().filter_map(|pool| pool.class.take()) {
            self.classes.release(old);
        }
        port.members = match Sticky::of(&wanted, &sides) {
            Some(sticky) if self.classes.has_room(&sticky.classes) => {
                sides = sticky.sides;
                let old = if port.members.is_empty() {
                    &found.members
                } else {
                    &port.members
                };
                slots::assign_fixed(old, &sticky.members)
            }
            Some(_) => {
                tracing::warn!(port = %port.name, "there are too many timeouts of session affinity: it is served without");
                wanted = Arc::new(ServicePort {
                    affinity: None,
                    ..ServicePort::clone(&wanted)
                });
                Vec::new()
            }
            None => Vec::new(),
        };
        for (side, targets) in sides.iter().enumerate() {
            let (Some(pool), Some(found)) = (port.pools.get_mut(side), found.slots.get(side))
            else {
                continue;
            };
            let class = Port::class_of(targets.len(), wanted.affinity, side == 1);
            pool.class = class
                .map(|class| self.classes.acquire(class, delta))
                .transpose()?;
            let old: Vec<Option<Target>> = pool.slots.iter().copied().map(Some).collect();
            pool.slots = slots::assign(if old.is_empty() { found } else { &old }, targets);
        }
        port.wanted = wanted;
        Ok(())
    }

    fn count(&mut self, before: &ServicePort, after: &ServicePort, delta: &mut Delta) {
        let addresses = |port| (cluster_ips(self.family, port), hairpins(self.family, port));
        let ((old_ips, old_hairpins), (new_ips, new_hairpins)) =
            (addresses(before), addresses(after));
        let (come, gone) = self.cluster_ips.exchange(&old_ips, &new_ips);
        delta.added.extend(come.into_iter().map(Element::ClusterIp));
        delta
            .removed
            .extend(gone.into_iter().map(Element::ClusterIp));
        let (come, gone) = self.hairpins.exchange(&old_hairpins, &new_hairpins);
        delta.added.extend(come.into_iter().map(Element::Hairpin));
        delta.removed.extend(gone.into_iter().map(Element::Hairpin));
    }
}

fn cluster_ips(family: Family, port: &ServicePort) -> Vec<IpAddr> {
    let of_cluster = port
        .frontends
        .iter()
        .filter(|frontend| frontend.kind == FrontendKind::ClusterIp);
    sorted(
        of_cluster
            .filter_map(|frontend| frontend.address)
            .filter(|address| Family::of(*address) == family),
    )
}

/// Endpoints that may be given their own connections, and then do not see the answer come back.
/// Endpoints of other nodes count too: they ask for a node port here, or run here without a node
/// name.
fn hairpins(family: Family, port: &ServicePort) -> Vec<IpAddr> {
    let all = port.cluster.iter().chain(port.local.iter());
    sorted(
        all.map(|endpoint| endpoint.address)
            .filter(|address| Family::of(*address) == family),
    )
}

fn sorted(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}
