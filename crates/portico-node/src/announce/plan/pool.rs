//! A pool, as far as announcing its addresses goes.

use super::{NodeFacts, Servers};
use crate::announce::Share;
use portico_model::pools::{AddressPoolSpec, AddressRange, Announce, LabelSelector, PoolBgp};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pool {
    pub ranges: Vec<AddressRange>,
    pub layer2: bool,
    /// `None` where addresses are not announced by BGP.
    pub bgp: Option<Arc<PoolBgp>>,
    selector: Option<LabelSelector>,
    /// The share of every address that any node can serve; it has the nodes that the selector
    /// matches.
    share: Arc<Share>,
}

impl Pool {
    pub(super) fn new(spec: &AddressPoolSpec, nodes: &BTreeMap<Arc<str>, NodeFacts>) -> Self {
        let bgp = spec
            .announces(Announce::Bgp)
            .then(|| Arc::new(spec.bgp.clone().unwrap_or_default()));
        let mut pool = Self {
            // What is wrong with the others is told by the controller.
            ranges: spec.ranges().0,
            layer2: spec.announces(Announce::Layer2),
            bgp,
            selector: spec.node_selector.clone(),
            share: Arc::new(Share {
                nodes: None,
                interfaces: spec.interfaces.clone().into(),
            }),
        };
        pool.select(nodes);
        pool
    }

    /// Which nodes there are changed. Returns whether this changes which nodes may announce.
    pub(super) fn select(&mut self, nodes: &BTreeMap<Arc<str>, NodeFacts>) -> bool {
        let Some(selector) = &self.selector else {
            return false;
        };
        let matching = nodes
            .iter()
            .filter(|(_, facts)| selector.matches(&facts.labels));
        let nodes: Arc<[Arc<str>]> = matching.map(|(name, _)| Arc::clone(name)).collect();
        if self.share.nodes.as_ref() == Some(&nodes) {
            return false;
        }
        self.share = Arc::new(Share {
            nodes: Some(nodes),
            interfaces: Arc::clone(&self.share.interfaces),
        });
        true
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    pub(super) fn permits(&self, node: &Arc<str>) -> bool {
        self.share
            .nodes
            .as_ref()
            .is_none_or(|nodes| nodes.binary_search(node).is_ok())
    }

    /// How an address is shared out that these can serve.
    pub(super) fn share(&self, servers: &Servers) -> Option<Arc<Share>> {
        if !self.layer2 {
            return None;
        }
        match servers {
            Servers::Nobody => None,
            Servers::Everybody => Some(Arc::clone(&self.share)),
            Servers::Only(nodes) => {
                let nodes: Arc<[Arc<str>]> = nodes
                    .iter()
                    .filter(|node| self.permits(node))
                    .map(Arc::clone)
                    .collect();
                let interfaces = Arc::clone(&self.share.interfaces);
                (!nodes.is_empty()).then(|| {
                    Arc::new(Share {
                        nodes: Some(nodes),
                        interfaces,
                    })
                })
            }
        }
    }
}
