//! One port as it is installed, and the elements that it consists of.

use super::edge;
use super::element::{At, Element, Target};
use super::encode::as_comment;
use super::number::{Number, Treatment};
use super::rules::{Affinity, Class};
use ipnet::IpNet;
use portico_model::table::{
    Family, Frontend, FrontendKind, Masquerade, Outcome, PortKey, ServicePort,
};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) struct Port {
    pub key: PortKey,
    pub wanted: Arc<ServicePort>,
    /// The pool of the cluster, and that of this node.
    pub pools: [Pool; 2],
    /// With affinity: endpoints by the index that clients are remembered with.
    pub members: Vec<Option<Target>>,
    /// With an edge: nodes that had slots of this node before it.
    pub before: edge::Before,
    pub name: Arc<str>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub slots: Vec<Target>,
    /// None if it is empty.
    pub class: Option<u32>,
}

/// About as many elements as a port has, those included that it may share with others: its cluster
/// IP, and its endpoints once more.
pub(super) fn most_elements(port: &ServicePort) -> usize {
    port.frontends.len() + 1 + 2 * (port.cluster.len() + port.local.len())
}

impl Port {
    pub(super) fn new(key: &PortKey) -> Self {
        Self {
            key: key.clone(),
            wanted: Arc::default(),
            pools: Default::default(),
            members: Vec::new(),
            before: edge::Before::new(),
            name: Arc::from(as_comment(&key.label())),
        }
    }

    pub(super) fn class_of(endpoints: usize, affinity: Option<u32>, local: bool) -> Option<Class> {
        let affinity = affinity.map(|seconds| Affinity { seconds, local });
        (endpoints > 0).then_some(Class {
            endpoints: endpoints as u32,
            affinity,
        })
    }

    /// All that is installed for it alone.
    pub(super) fn elements(&self, pair: u32, out: &mut Vec<Element>) {
        self.pool_elements(pair, out);
        let is_ours = |frontend: &&Frontend| {
            frontend
                .address
                .is_none_or(|a| Family::of(a) == self.key.family)
        };
        for frontend in self.wanted.frontends.iter().filter(is_ours) {
            self.outcome_elements(pair, frontend, out);
            self.source_elements(frontend, out);
        }
        self.edge_elements(pair, out);
    }

    fn edge_elements(&self, pair: u32, out: &mut Vec<Element>) {
        let Some(wanted) = self.wanted.edge.as_deref() else {
            return;
        };
        let is_edge = |frontend: &&Frontend| {
            let address = frontend.address.as_ref();
            address.is_some_and(|address| wanted.addresses.contains(address))
        };
        for frontend in self.wanted.frontends.iter().filter(is_edge) {
            let at = at(&self.key, frontend);
            out.push(Element::Edge {
                at,
                number: edge::number(pair, wanted),
                name: self.name.clone(),
            });
            if let Some(number) = self.number(pair, Treatment::Plain, Outcome::Local) {
                out.push(Element::EdgeLocal { at, number });
            }
        }
        edge::slot_elements(pair, wanted, &self.before, out);
    }

    /// Slots, members, and the way from the pool of the cluster to that of this node.
    fn pool_elements(&self, pair: u32, out: &mut Vec<Element>) {
        match self.wanted.affinity {
            None => self.plain_slots(pair, out),
            Some(_) => self.sticky_slots(pair, out),
        }
        // The same for all frontends that have one: a port has one external policy.
        out.extend(
            self.wanted
                .frontends
                .iter()
                .find_map(|frontend| self.local_pool(pair, frontend)),
        );
    }

    fn plain_slots(&self, pair: u32, out: &mut Vec<Element>) {
        for (pool, slots) in self.numbered_pools(pair) {
            let element = |(slot, target): (usize, &Target)| Element::Endpoint {
                pool,
                slot: slot as u32,
                target: *target,
            };
            out.extend(slots.iter().enumerate().map(element));
        }
    }

    fn sticky_slots(&self, pair: u32, out: &mut Vec<Element>) {
        let index_of: HashMap<Target, u32> = self
            .members
            .iter()
            .enumerate()
            .filter_map(|(index, target)| Some(((*target)?, index as u32)))
            .collect();
        for (pool, slots) in self.numbered_pools(pair) {
            for (slot, target) in slots.iter().enumerate() {
                let Some(index) = index_of.get(target) else {
                    continue;
                };
                let member = Number::member(*index, pool);
                out.push(Element::Slot {
                    pool,
                    slot: slot as u32,
                    member,
                });
                out.push(Element::Sticky {
                    member,
                    target: *target,
                });
            }
        }
    }

    fn numbered_pools(&self, pair: u32) -> impl Iterator<Item = (u32, &[Target])> {
        self.pools
            .iter()
            .zip([0, 1])
            .map(move |(pool, side)| (pair * 2 + side, pool.slots.as_slice()))
    }

    fn outcome_elements(&self, pair: u32, frontend: &Frontend, out: &mut Vec<Element>) {
        let (at, name) = (at(&self.key, frontend), self.name.clone());
        let inside = self.number(pair, treatment(frontend), frontend.inside);
        if let Some(number) = inside {
            out.push(Element::Frontend {
                at,
                number,
                name: name.clone(),
            });
        }
        match frontend.outside {
            Outcome::Reject => out.push(Element::Refused { at, name }),
            Outcome::Drop => out.push(Element::Dropped { at, name }),
            Outcome::Cluster | Outcome::Local if inside.is_none() => {
                out.push(Element::Refused { at, name })
            }
            Outcome::Cluster | Outcome::Local => {}
        }
    }

    fn source_elements(&self, frontend: &Frontend, out: &mut Vec<Element>) {
        if frontend.address.is_none() {
            return;
        }
        let at = at(&self.key, frontend);
        if frontend.sources.is_some() {
            out.push(Element::Guarded {
                at,
                name: self.name.clone(),
            });
        }
        let in_dmz = self.wanted.dmz.iter();
        let in_dmz = in_dmz.filter(|_| frontend.kind == FrontendKind::ClusterIp);
        let of_family: Vec<IpNet> = frontend
            .sources
            .iter()
            .flat_map(|sources| sources.iter().copied())
            .chain(in_dmz.copied().map(IpNet::from))
            .filter(|network| Family::of(network.addr()) == self.key.family)
            .collect();
        // The kernel refuses ranges that overlap.
        out.extend(
            IpNet::aggregate(&of_family)
                .into_iter()
                .map(|network| Element::AllowedSource { at, network }),
        );
    }

    /// Where packets from outside go, where it is not where those from inside go.
    fn local_pool(&self, pair: u32, frontend: &Frontend) -> Option<Element> {
        if treatment(frontend) != Treatment::ExternalLocal {
            return None;
        }
        let pool = self
            .number(pair, Treatment::Internal, frontend.inside)?
            .pool();
        let number = self.number(pair, Treatment::Internal, frontend.outside)?;
        Some(Element::LocalPool { pool, number })
    }

    fn number(&self, pair: u32, treatment: Treatment, outcome: Outcome) -> Option<Number> {
        let side = match outcome {
            Outcome::Cluster => 0,
            Outcome::Local => 1,
            Outcome::Reject | Outcome::Drop => return None,
        };
        let class = self.pools.get(side)?.class?;
        Some(Number::new(treatment, class, pair * 2 + side as u32))
    }
}

pub(super) fn at(key: &PortKey, frontend: &Frontend) -> At {
    At {
        address: frontend.address,
        protocol: key.protocol.number(),
        port: frontend.port,
    }
}

/// Inside and outside differ only with a Local external policy, and only there is the node the only
/// source to be masqueraded.
fn treatment(frontend: &Frontend) -> Treatment {
    match frontend.masquerade {
        _ if frontend.inside != frontend.outside => Treatment::ExternalLocal,
        Masquerade::OnlyNode => Treatment::ExternalLocal,
        Masquerade::Always => Treatment::External,
        Masquerade::UnlessPod => Treatment::Internal,
        Masquerade::Never => Treatment::Plain,
    }
}
