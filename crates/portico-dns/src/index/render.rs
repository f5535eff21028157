//! What a Service puts into the zone.

use super::{Index, NodeState, User, is_eligible};
use crate::facts::{Port, Reach, Service, Slice};
use crate::zone::names::host_name;
use crate::zone::{Content, Key, Member, Nodes, Patch, Target};
use portico_model::key::ObjectKey;
use portico_model::pools::AddressRange;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl Index {
    /// The names of a Service again, and only those that are otherwise now.
    pub(super) fn renew(&mut self, name: &ObjectKey, patches: &mut Vec<Patch>) {
        self.renew_probes(name);
        let wanted = self.render(name);
        let Some(state) = self.services.get_mut(name) else {
            return;
        };
        let kept: BTreeSet<&Key> = wanted.iter().map(|(key, _)| key).collect();
        let gone = state.keys.iter().filter(|key| !kept.contains(key)).cloned();
        patches.extend(gone.map(|key| Patch::Set(key, None)));
        state.keys = wanted.iter().map(|(key, _)| key.clone()).collect();
        patches.extend(
            wanted
                .into_iter()
                .map(|(key, content)| Patch::Set(key, Some(content))),
        );
        if state.facts.is_none() && state.slices.is_empty() {
            self.services.remove(name);
        }
    }

    /// Health-check ports: only of nodes that have endpoints and are fit, so that the number of
    /// probes follows that of endpoints and not that of nodes, and a dead node is not probed once
    /// for each Service.
    fn renew_probes(&mut self, name: &ObjectKey) {
        let Some(state) = self.services.get(name) else {
            return;
        };
        let nodes = state
            .facts
            .as_ref()
            .filter(|facts| needs_own_nodes(facts))
            .map(|_| ready(state.slices.values()));
        let on: BTreeSet<&String> = nodes.iter().flat_map(BTreeMap::keys).collect();
        let facts = state.facts.as_ref();
        let port = facts.and_then(|facts| facts.health_port);
        let partition = facts.and_then(|facts| facts.partition.as_deref());
        let at = |node: &&String| {
            let node = self.nodes.get(*node);
            let node = node.filter(|node| self.is_fit(node, partition))?;
            node.standing(partition)?.probe
        };
        let probes: BTreeSet<SocketAddr> = port
            .map(|port| {
                on.iter()
                    .filter_map(at)
                    .map(|probe| SocketAddr::new(probe.ip(), port))
                    .collect()
            })
            .unwrap_or_default();
        let on: BTreeSet<String> = on.into_iter().cloned().collect();
        self.depend(name, on);
        if facts_select(
            self.services
                .get(name)
                .and_then(|state| state.facts.as_ref()),
        ) {
            self.selecting.insert(name.clone());
        } else {
            self.selecting.remove(name);
        }
        let before = self
            .services
            .get(name)
            .map(|state| state.probes.clone())
            .unwrap_or_default();
        let user = User::Service(name.clone());
        before
            .difference(&probes)
            .for_each(|probe| self.swap_probe(&user, Some(*probe), None));
        probes
            .difference(&before)
            .for_each(|probe| self.swap_probe(&user, None, Some(*probe)));
        if let Some(state) = self.services.get_mut(name) {
            state.probes = probes;
        }
    }

    /// A Service looks at these nodes, and at no others.
    fn depend(&mut self, name: &ObjectKey, on: BTreeSet<String>) {
        let Some(state) = self.services.get_mut(name) else {
            return;
        };
        let before = std::mem::replace(&mut state.nodes, on.clone());
        for node in before.difference(&on) {
            if let Some(services) = self.local.get_mut(node) {
                services.remove(name);
                if services.is_empty() {
                    self.local.remove(node);
                }
            }
        }
        for node in on {
            self.local.entry(node).or_default().insert(name.clone());
        }
    }

    fn render(&self, name: &ObjectKey) -> Vec<(Key, Content)> {
        let Some(state) = self.services.get(name) else {
            return Vec::new();
        };
        let Some(facts) = &state.facts else {
            return Vec::new();
        };
        let names = Names {
            index: self,
            name,
            facts,
        };
        match facts.reach {
            Reach::Balanced if !facts.addresses.is_empty() || !facts.hosts.is_empty() => {
                names.balanced()
            }
            Reach::Balanced | Reach::Public => {
                let nodes = self.nodes_of(facts, state.slices.values());
                match &facts.within {
                    None => names.public(nodes),
                    Some(within) => names.selected(self.addresses_within(&nodes, within)),
                }
            }
            Reach::Cluster if self.settings.cluster_services => names.cluster(),
            Reach::Cluster => Vec::new(),
        }
    }

    /// Of the addresses that are given for nodes, these.
    fn addresses_within(&self, nodes: &Nodes, within: &[AddressRange]) -> Arc<[IpAddr]> {
        let members = match nodes {
            Nodes::Shared(partition) => self.members(partition.as_deref()),
            Nodes::Own(members) => members.to_vec(),
        };
        let mut addresses: Vec<IpAddr> = members
            .iter()
            .flat_map(|member| &member.node.addresses)
            .filter(|address| within.iter().any(|range| range.contains(**address)))
            .copied()
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.into()
    }

    fn nodes_of<'a>(&self, facts: &Service, slices: impl Iterator<Item = &'a Slice>) -> Nodes {
        let shared = Nodes::Shared(facts.partition.clone());
        if !facts.local {
            return shared;
        }
        let partition = facts.partition.as_deref();
        let ready = ready(slices);
        let with = |fit: &dyn Fn(&NodeState) -> bool| -> Vec<Member> {
            let found = ready
                .iter()
                .filter_map(|(name, weight)| Some((self.nodes.get(name)?, *weight)));
            let fit = found.filter(|(node, _)| is_eligible(node, partition) && fit(node));
            fit.filter_map(|(node, weight)| {
                Some(Member {
                    node: node.standing(partition)?.entry.clone(),
                    weight,
                })
            })
            .collect()
        };
        let probe = |node: &NodeState| node.standing(partition)?.probe;
        let says_yes = |node: &NodeState| match (facts.health_port, probe(node)) {
            (Some(port), Some(probe)) => {
                self.health.get(&SocketAddr::new(probe.ip(), port)) == Some(&true)
            }
            _ => true,
        };
        let fit = with(&|node| self.is_fit(node, partition) && says_yes(node));
        // Rather all that have endpoints than none, and rather all nodes than none.
        let given = if fit.is_empty() { with(&|_| true) } else { fit };
        if given.is_empty() {
            shared
        } else {
            Nodes::Own(Arc::from(given))
        }
    }
}

/// Whether the nodes of a Service are its own, by its endpoints.
fn needs_own_nodes(facts: &Service) -> bool {
    let by_balancer = !facts.addresses.is_empty() || !facts.hosts.is_empty();
    facts.local && (facts.reach == Reach::Public || facts.reach == Reach::Balanced && !by_balancer)
}

/// It gives addresses of its own choice, which follow from all nodes.
fn facts_select(facts: Option<&Service>) -> bool {
    facts.is_some_and(|facts| facts.within.is_some())
}

/// Ready endpoints by node. Slices of both families have the same pods, and those count once.
fn ready<'a>(slices: impl Iterator<Item = &'a Slice>) -> BTreeMap<String, u16> {
    let mut kinds: BTreeMap<&str, BTreeMap<&String, u16>> = BTreeMap::new();
    for slice in slices {
        let of_kind = kinds.entry(&slice.kind).or_default();
        for (node, count) in &slice.ready {
            let sum = of_kind.entry(node).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
    let mut ready = BTreeMap::new();
    for (node, count) in kinds.into_values().flatten() {
        let most: &mut u16 = ready.entry(node.clone()).or_default();
        *most = count.max(*most);
    }
    ready
}

/// The names of one Service. One that would be too long for DNS is not there.
struct Names<'a> {
    index: &'a Index,
    name: &'a ObjectKey,
    facts: &'a Service,
}

impl Names<'_> {
    fn key(&self, kind: &str) -> Option<Key> {
        self.index
            .settings
            .origin
            .key(&[&self.name.name, &self.name.namespace, kind])
    }

    fn srv_key(&self, port: &Port) -> Option<Key> {
        let label = format!("_{}", port.name);
        let parts = [
            label.as_str(),
            port.protocol,
            &self.name.name,
            &self.name.namespace,
            "svc",
        ];
        self.index
            .settings
            .origin
            .key(&parts)
            .filter(|_| !port.name.is_empty())
    }

    fn public(&self, nodes: Nodes) -> Vec<(Key, Content)> {
        let families = self.facts.families;
        let with_port = self
            .facts
            .ports
            .iter()
            .filter_map(|port| Some((port, port.node_port?)));
        let ports = with_port.clone().filter_map(|(port, node_port)| {
            let content = Content::NodePort {
                nodes: nodes.clone(),
                families,
                port: node_port,
            };
            Some((self.srv_key(port)?, content))
        });
        let mut names: Vec<(Key, Content)> = ports.collect();
        if with_port.count() > 0 {
            names.extend(
                self.key("svc")
                    .map(|key| (key, Content::Nodes { nodes, families })),
            );
        }
        names
    }

    fn balanced(&self) -> Vec<(Key, Content)> {
        let addresses: Arc<[_]> = self.facts.addresses.clone().into();
        let hosts: Vec<_> = self
            .facts
            .hosts
            .iter()
            .filter_map(|host| host_name(host))
            .collect();
        let content = match hosts.first() {
            Some(host) if addresses.is_empty() => Content::Alias(host.clone()),
            _ => Content::Addresses(addresses.clone()),
        };
        let own = self.key("lb").filter(|_| !addresses.is_empty());
        let own = own.map(|key| {
            self.index
                .settings
                .origin
                .full(std::borrow::Borrow::borrow(&key))
        });
        let of_port = |port: &Port| {
            let own = own.clone().map(|name| (name, addresses.clone()));
            let others = hosts.iter().map(|host| (host.clone(), Arc::from([])));
            let target = |(name, addresses)| Target {
                name,
                port: port.port,
                addresses,
            };
            Some((
                self.srv_key(port)?,
                Content::Targets(own.into_iter().chain(others).map(target).collect()),
            ))
        };
        let plain = ["svc", "lb"]
            .into_iter()
            .filter_map(|kind| Some((self.key(kind)?, content.clone())));
        plain
            .chain(self.facts.ports.iter().filter_map(of_port))
            .collect()
    }

    fn cluster(&self) -> Vec<(Key, Content)> {
        let addresses: Arc<[_]> = self.facts.cluster_ips.clone().into();
        self.at_addresses(addresses, |port| Some(port.port))
    }

    /// Node ports on some addresses alone: the names of nodes have others as well.
    fn selected(&self, addresses: Arc<[IpAddr]>) -> Vec<(Key, Content)> {
        let families = self.facts.families;
        let addresses = addresses.iter().filter(|address| families.has(address));
        self.at_addresses(addresses.copied().collect(), |port| port.node_port)
    }

    fn at_addresses(
        &self,
        addresses: Arc<[IpAddr]>,
        number: impl Fn(&Port) -> Option<u16>,
    ) -> Vec<(Key, Content)> {
        let Some(key) = self.key("svc").filter(|_| !addresses.is_empty()) else {
            return Vec::new();
        };
        let name = self
            .index
            .settings
            .origin
            .full(std::borrow::Borrow::borrow(&key));
        let of_port = |port: &Port| {
            let target = Target {
                name: name.clone(),
                port: number(port)?,
                addresses: addresses.clone(),
            };
            Some((self.srv_key(port)?, Content::Targets(vec![target])))
        };
        let ports: Vec<_> = self.facts.ports.iter().filter_map(of_port).collect();
        std::iter::once((key, Content::Addresses(addresses.clone())))
            .chain(ports)
            .collect()
    }
}
