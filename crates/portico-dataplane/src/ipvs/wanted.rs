//! Service ports → the virtual servers, set entries and addresses that they need. Pure.

use super::server::{At, Server, Settings};
use super::sets::{Entry, Set};
use super::shadow::shadow;
use ipnet::IpNet;
use portico_model::table::{
    Endpoint, Family, Frontend, FrontendKind, NodePortAddresses, NodeRules, Outcome, PortKey,
    Protocol, ServicePort,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What is the same for all ports.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub rules: NodeRules,
    /// The addresses of the node, but for those of our link; sorted.
    pub own: Arc<[IpAddr]>,
    /// Frontends on addresses of the node: they come before node ports.
    pub claimed: BTreeSet<At>,
    /// The address that each shadow address stands for.
    pub shadows: BTreeMap<IpAddr, IpAddr>,
    pub scheduler: Arc<str>,
}

impl Surroundings {
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        self.own.binary_search(&address).is_ok()
    }

    /// Node ports answer on the node's own addresses alone, which our link must not take over.
    fn has_node_ports(&self, address: IpAddr) -> bool {
        self.is_own(address) && is_usable(address)
    }

    fn node_port_addresses(&self, family: Family) -> Vec<IpAddr> {
        let all = match self.rules.node_ports.get(family) {
            NodePortAddresses::AllLocal { .. } => &self.own[..],
            NodePortAddresses::Listed(listed) => listed,
        };
        let usable = |address: &&IpAddr| Family::of(**address) == family && is_usable(**address);
        all.iter().filter(usable).copied().collect()
    }
}

/// IPVS does not let packets of loopback addresses leave the node.
fn is_usable(address: IpAddr) -> bool {
    !address.is_loopback() && !is_link_local(address)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The frontends of a port that are on addresses of the node.
pub(super) fn on_own<'a>(
    key: &'a PortKey,
    port: &'a ServicePort,
    own: &'a [IpAddr],
) -> impl Iterator<Item = At> + 'a {
    let at = |address, frontend: &Frontend| At {
        address,
        port: frontend.port,
        protocol: key.protocol,
    };
    let on_own = move |frontend: &Frontend| {
        frontend
            .address
            .filter(|address| own.binary_search(address).is_ok())
    };
    port.frontends
        .iter()
        .filter_map(move |frontend| Some(at(on_own(frontend)?, frontend)))
}

/// What some ports need, taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub servers: BTreeMap<At, Server>,
    /// The entries of all sets but those that count.
    pub entries: BTreeSet<(Set, Entry)>,
    /// Those that several ports may want, with how many do.
    pub shared: BTreeMap<(Set, Entry), u32>,
    /// Addresses for our link, with how many servers are on each.
    pub addresses: BTreeMap<IpAddr, u32>,
    /// The address that each shadow address stands for.
    pub shadows: BTreeMap<IpAddr, IpAddr>,
}

impl Wanted {
    pub(super) fn add(&mut self, key: &PortKey, port: &ServicePort, here: &Surroundings) {
        for frontend in &port.frontends {
            match frontend.address {
                Some(address)
                    if frontend.kind == FrontendKind::NodePort && !here.has_node_ports(address) => {
                }
                Some(address) => self.frontend(key, port, frontend, address, here),
                None => {
                    let at = |address| At {
                        address,
                        port: frontend.port,
                        protocol: key.protocol,
                    };
                    let free = |address: &IpAddr| !here.claimed.contains(&at(*address));
                    for address in here
                        .node_port_addresses(key.family)
                        .into_iter()
                        .filter(free)
                    {
                        self.frontend(key, port, frontend, address, here);
                    }
                }
            }
        }
        self.add_endpoints(key.protocol, port);
        if let Some(health_check) = port.health_check {
            self.share(Set::HealthCheck, Entry::Port(key.family, health_check));
        }
    }

    fn share(&mut self, set: Set, entry: Entry) {
        *self.shared.entry((set, entry)).or_default() += 1;
    }

    fn add_endpoints(&mut self, protocol: Protocol, port: &ServicePort) {
        let only_local = port
            .local
            .iter()
            .filter(|endpoint| port.cluster.binary_search(endpoint).is_err());
        let mut add = |endpoint: &Endpoint| {
            let at = At {
                address: endpoint.address,
                port: endpoint.port,
                protocol,
            };
            self.share(Set::LoopBack, Entry::Loop(at));
        };
        port.cluster.iter().for_each(&mut add);
        only_local.for_each(add);
    }

    fn frontend(
        &mut self,
        key: &PortKey,
        port: &ServicePort,
        frontend: &Frontend,
        address: IpAddr,
        here: &Surroundings,
    ) {
        let at = At {
            address,
            port: frontend.port,
            protocol: key.protocol,
        };
        let Frontend {
            inside, outside, ..
        } = *frontend;
        let (server, other) = match (inside, outside) {
            _ if inside == outside => (outside, None),
            // Sources that are not let in need no server.
            (_, Outcome::Drop) => (inside, None),
            _ => (outside, Some(inside)),
        };
        self.entries.insert((
            Set::of_frontend(frontend.kind, frontend.masquerade),
            Entry::At(at),
        ));
        self.server(at, port, server, here);
        if let Some((other, shadow)) =
            other.and_then(|other| Some((other, self.shadow_of(address, here)?)))
        {
            self.entries.insert((Set::Inside, Entry::At(at)));
            self.shadows.insert(shadow, address);
            self.server(
                At {
                    address: shadow,
                    ..at
                },
                port,
                other,
                here,
            );
        }
        if outside == Outcome::Drop {
            let set = if inside == Outcome::Drop {
                Set::Guarded
            } else {
                Set::DroppedOutside
            };
            self.entries.insert((set, Entry::At(at)));
        }
        if frontend.kind == FrontendKind::ClusterIp {
            self.admit_dmz(at, port, here);
        }
        self.guard(at, frontend);
    }

    /// Pods in the DMZ reach those cluster IPs that let them in.
    fn admit_dmz(&mut self, at: At, port: &ServicePort, here: &Surroundings) {
        if here.rules.dmz.get(at.family()).is_empty() {
            return;
        }
        self.share(Set::ClusterAddresses, Entry::Address(at.address));
        let pods = port
            .dmz
            .iter()
            .filter(|pod| Family::of(**pod) == at.family());
        self.entries
            .extend(pods.map(|pod| (Set::Sources, Entry::Source(at, IpNet::from(*pod)))));
    }

    /// Where the server for this node and its pods is. Where two addresses have the same shadow the
    /// first has it.
    fn shadow_of(&self, address: IpAddr, here: &Surroundings) -> Option<IpAddr> {
        let owner = |shadow: &IpAddr| {
            here.shadows
                .get(shadow)
                .or_else(|| self.shadows.get(shadow))
        };
        shadow(address).filter(|shadow| owner(shadow).is_none_or(|owner| *owner == address))
    }

    /// A set of networks has none of length 0, which would be no guard either.
    fn guard(&mut self, at: At, frontend: &Frontend) {
        let Some(sources) = &frontend.sources else {
            return;
        };
        if sources
            .iter()
            .any(|network| network.prefix_len() == 0 && Family::of(network.addr()) == at.family())
        {
            return;
        }
        self.entries.insert((Set::Guarded, Entry::At(at)));
        if frontend.inside == Outcome::Drop && frontend.outside == Outcome::Drop {
            return;
        }
        let of_family = sources
            .iter()
            .filter(|network| Family::of(network.addr()) == at.family());
        self.entries
            .extend(of_family.map(|network| (Set::Sources, Entry::Source(at, network.trunc()))));
    }

    fn server(&mut self, at: At, port: &ServicePort, outcome: Outcome, here: &Surroundings) {
        let pool = match outcome {
            Outcome::Cluster => port.cluster.clone(),
            Outcome::Local => port.local.clone(),
            // A server without endpoints rejects; silence is the sets' work.
            Outcome::Reject | Outcome::Drop => Arc::default(),
        };
        let settings = Settings::new(&here.scheduler, port.affinity);
        self.servers.insert(
            at,
            Server {
                settings,
                pool,
                lingering: port.lingering.clone(),
            },
        );
        if !here.is_own(at.address) {
            *self.addresses.entry(at.address).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests;
