//! A Service, its slices and the node become service ports.

use super::node::{Here, contains, of_family};
use super::parse::host;
use super::partitions::{Division, Selection};
use super::pods::Access;
use super::services::{Address, PortRecord, ServiceRecord, Visibility};
use super::slices::{self, Candidate, SliceRecord};
use super::topology::{Needs, Pools, pools};
use crate::announce::Announceable;
use crate::edge::{Edge, EdgeNode, Way, slots};
use crate::key::ObjectKey;
use crate::table::{
    Claim, Claims, Endpoint, Family, Frontend, FrontendIndex, FrontendKey, FrontendKind,
    HealthCheck, Masquerade, Outcome, PerFamily, PortKey, ServicePort, unservable,
};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// The Service with all that is known of it.
pub(super) struct Parts<'a> {
    pub name: &'a ObjectKey,
    pub record: &'a ServiceRecord,
    pub slices: &'a [SliceRecord],
    pub here: &'a Here,
    pub access: &'a Access,
    pub division: &'a Division,
}

/// What claims depend on beside the Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimedWith {
    /// The node's primary addresses. A cluster IP among them would have the node refuse its own
    /// ports; external addresses may be the node's, since that is how many clusters are reached.
    pub own: PerFamily<Option<IpAddr>>,
    pub division: Arc<Division>,
}

/// Every frontend that a Service wants.
pub(super) fn claims(name: &ObjectKey, record: &ServiceRecord, with: &ClaimedWith) -> Claims {
    let ClaimedWith { own, division } = with;
    let mut claims = Claims::default();
    for (port, family) in ports(record) {
        let key = port_key(name, port, family);
        let claim = |kind, address, number| {
            let frontend = FrontendKey {
                family,
                address,
                port: number,
                protocol: port.protocol,
            };
            (frontend, Claim::new(kind, record.created, key.clone()))
        };
        let lacks_partition = record.selection.as_ref().is_some_and(|selection| {
            port.node_port != 0 && division.addresses(selection, family).is_none()
        });
        if lacks_partition {
            claims
                .refused
                .push(claim(FrontendKind::NodePort, None, port.node_port));
        }
        for at in record.addresses(port, family, division) {
            let is_own = at.kind == FrontendKind::ClusterIp && at.address == *own.get(family);
            let wanted = claim(at.kind, at.address, at.port);
            match is_own || at.address.and_then(unservable).is_some() {
                true => claims.refused.push(wanted),
                false => claims.ours.push(wanted),
            }
        }
        let of_family = record
            .proxied_ips
            .iter()
            .filter(|address| Family::of(**address) == family);
        claims.proxied.extend(
            of_family.map(|address| claim(FrontendKind::LoadBalancerIp, Some(*address), port.port)),
        );
    }
    claims
}

impl Parts<'_> {
    /// The service ports in the order of the Service. A port that owns no frontend is left out.
    pub(super) fn service_ports(&self, index: &FrontendIndex) -> Vec<(PortKey, ServicePort)> {
        let all = ports(self.record).map(|(port, family)| {
            let key = port_key(self.name, port, family);
            let built = self.service_port(&key, port, index);
            (key, built)
        });
        all.filter(|(_, port)| !port.frontends.is_empty()).collect()
    }

    pub(super) fn health_check(&self) -> Option<HealthCheck> {
        let families = self.record.families();
        if self.record.health_check_port == 0
            || self.record.ports.is_empty()
            || families == PerFamily::default()
        {
            return None;
        }
        let ready = |family| {
            if *families.get(family) {
                slices::ready_here(self.slices, family)
            } else {
                0
            }
        };
        let of_families = |selection: &Selection| -> Arc<[IpAddr]> {
            Family::BOTH
                .into_iter()
                .flat_map(|family| {
                    self.division
                        .addresses(selection, family)
                        .unwrap_or_default()
                })
                .collect()
        };
        Some(HealthCheck {
            port: self.record.health_check_port,
            addresses: self.record.selection.as_deref().map(of_families),
            families,
            ready: PerFamily {
                v4: ready(Family::V4),
                v6: ready(Family::V6),
            },
        })
    }

    /// `None` where no load balancer delivers packets to its address.
    pub(super) fn announceable(&self) -> Option<Announceable> {
        let local = self.record.external_local;
        let addresses = self.record.load_balancer_ips.iter();
        let addresses: Box<[IpAddr]> = addresses
            .filter(|address| unservable(**address).is_none())
            .copied()
            .collect();
        if addresses.is_empty() || self.record.ports.is_empty() {
            return None;
        }
        let served =
            |family| *self.record.families().get(family) && slices::served(self.slices, family);
        let nodes = |family| {
            if local {
                slices::places(self.slices, family)
            } else {
                Box::default()
            }
        };
        Some(Announceable {
            addresses,
            local,
            served: PerFamily {
                v4: served(Family::V4),
                v6: served(Family::V6),
            },
            nodes: PerFamily {
                v4: nodes(Family::V4),
                v6: nodes(Family::V6),
            },
        })
    }

    fn service_port(&self, key: &PortKey, port: &PortRecord, index: &FrontendIndex) -> ServicePort {
        let mut addresses = self.record.addresses(port, key.family, self.division);
        let external = addresses
            .iter()
            .any(|address| address.kind != FrontendKind::ClusterIp);
        let edge = self.edge(key, &addresses, index);
        let needs = Needs {
            cluster: !self.record.internal_local || external,
            local: self.record.internal_local
                || (self.record.external_local && external)
                || edge.is_some(),
        };
        let candidates = slices::candidates(self.slices, key.family, &key.port, key.protocol);
        let pools = pools(&candidates, needs, &self.here.zone);
        let (sources, pods) = (self.sources(key.family), self.pods(key.family));
        addresses.retain(|a| {
            let frontend = FrontendKey {
                family: key.family,
                address: a.address,
                port: a.port,
                protocol: key.protocol,
            };
            index.owner(&frontend) == Some(key)
        });
        let frontends = addresses
            .iter()
            .map(|address| {
                let sources = match address.kind {
                    FrontendKind::ClusterIp => pods.clone(),
                    FrontendKind::LoadBalancerIp => sources.clone(),
                    FrontendKind::ExternalIp | FrontendKind::NodePort => None,
                };
                self.frontend(address, key.family, &pools, sources)
            })
            .collect();
        let health_check = Some(self.record.health_check_port).filter(|port| *port != 0);
        ServicePort {
            affinity: self.record.affinity,
            health_check,
            dmz: self.dmz(key.family),
            ..assemble(frontends, pools, &candidates, edge)
        }
    }

    /// `None` where this node treats packets from outside as if there were no edge: by all of what
    /// is asked here, or since it serves none of the addresses that nodes announce.
    fn edge(
        &self,
        key: &PortKey,
        addresses: &[Address],
        index: &FrontendIndex,
    ) -> Option<Arc<Edge>> {
        let surroundings = self.here.surroundings.as_deref()?;
        if !self.record.edge || !*self.here.pods_known.get(key.family) {
            return None;
        }
        let of_edge = |at: &&Address| {
            let frontend = FrontendKey {
                family: key.family,
                address: at.address,
                port: at.port,
                protocol: key.protocol,
            };
            at.kind == FrontendKind::LoadBalancerIp && index.owner(&frontend) == Some(key)
        };
        let addresses: Box<[IpAddr]> = addresses
            .iter()
            .filter(of_edge)
            .filter_map(|at| at.address)
            .filter(|address| surroundings.announces(*address))
            .collect();
        if addresses.is_empty() {
            return None;
        }
        let weights = slices::weights(self.slices, key.family, &key.port, key.protocol)?;
        let slots = slots::assign(&weights)?;
        let way = |name: &Arc<str>| match surroundings.neighbours.get(name) {
            _ if *name == self.here.name => Way::Here,
            Some(known) => known.get(key.family).map_or(Way::None, Way::Neighbour),
            None => Way::None,
        };
        let node = |(name, endpoints): (Arc<str>, u32)| EdgeNode {
            way: way(&name),
            name,
            endpoints,
        };
        Some(Arc::new(Edge {
            addresses,
            by_address: self.record.affinity.is_some(),
            nodes: weights.into_iter().map(node).collect(),
            slots,
        }))
    }

    fn frontend(
        &self,
        at: &Address,
        family: Family,
        pools: &Pools,
        sources: Option<Arc<[IpNet]>>,
    ) -> Frontend {
        let cluster = if pools.anywhere {
            Outcome::Cluster
        } else {
            Outcome::Reject
        };
        let local = match (pools.anywhere, pools.local.is_empty()) {
            (false, _) => Outcome::Reject,
            (true, true) => Outcome::Drop,
            (true, false) => Outcome::Local,
        };
        let (inside, outside, masquerade) = match (
            at.kind,
            self.record.internal_local,
            self.record.external_local,
        ) {
            (FrontendKind::ClusterIp, true, _) => {
                (local, local, self.masquerade_cluster_ip(family))
            }
            (FrontendKind::ClusterIp, false, _) => {
                (cluster, cluster, self.masquerade_cluster_ip(family))
            }
            (_, _, false) => (cluster, cluster, Masquerade::Always),
            (_, _, true) => (cluster, local, Masquerade::OnlyNode),
        };
        Frontend {
            kind: at.kind,
            address: at.address,
            port: at.port,
            inside,
            outside,
            masquerade,
            sources,
        }
    }

    fn masquerade_cluster_ip(&self, family: Family) -> Masquerade {
        match (self.here.masquerade_all, self.here.pods_known.get(family)) {
            (true, _) => Masquerade::Always,
            (false, true) => Masquerade::UnlessPod,
            (false, false) => Masquerade::Never,
        }
    }

    /// Who may use the cluster IP.
    fn pods(&self, family: Family) -> Option<Arc<[IpNet]>> {
        let own = || self.access.outside_dmz(&self.name.namespace, family);
        (self.record.visibility == Visibility::Namespace).then(|| own().map(host).collect())
    }

    fn dmz(&self, family: Family) -> Arc<[IpAddr]> {
        match self.record.visibility {
            Visibility::Dmz => self.access.in_dmz(&self.name.namespace, family).collect(),
            Visibility::Cluster | Visibility::Namespace => Arc::default(),
        }
    }

    /// Who may use the load balancer's addresses. If this node may, so may these addresses
    /// themselves: where the node has them on an interface, its own packets to them come from them.
    fn sources(&self, family: Family) -> Option<Arc<[IpNet]>> {
        let mut ranges = of_family(&self.record.sources, family);
        if ranges.is_empty() {
            return None;
        }
        if contains(&ranges, *self.here.address.get(family)) {
            let own = self
                .record
                .load_balancer_ips
                .iter()
                .filter(|address| Family::of(**address) == family);
            ranges.extend(own.map(|address| host(*address)));
        }
        Some(IpNet::aggregate(&ranges).into())
    }
}

/// Keep of the pools what the frontends use.
fn assemble(
    frontends: Vec<Frontend>,
    pools: Pools,
    candidates: &[Candidate<'_>],
    edge: Option<Arc<Edge>>,
) -> ServicePort {
    let used = |outcome| {
        frontends
            .iter()
            .any(|frontend| frontend.inside == outcome || frontend.outside == outcome)
    };
    let cluster = if used(Outcome::Cluster) {
        pools.cluster
    } else {
        Vec::new()
    };
    let local = if used(Outcome::Local) || edge.is_some() {
        pools.local
    } else {
        Vec::new()
    };
    let idle = |e: &Endpoint| cluster.binary_search(e).is_err() && local.binary_search(e).is_err();
    let serving = candidates
        .iter()
        .filter(|candidate| candidate.condition.serving);
    let lingering: Vec<Endpoint> = serving
        .map(|candidate| candidate.endpoint)
        .filter(idle)
        .collect();
    let same = cluster == local;
    let cluster = shared(cluster);
    let local = if same { cluster.clone() } else { shared(local) };
    ServicePort {
        frontends,
        cluster,
        local,
        lingering: shared(lingering),
        edge,
        ..ServicePort::default()
    }
}

/// Nothing is allocated for no endpoints.
fn shared(endpoints: Vec<Endpoint>) -> Arc<[Endpoint]> {
    if endpoints.is_empty() {
        Arc::default()
    } else {
        endpoints.into()
    }
}

fn ports(record: &ServiceRecord) -> impl Iterator<Item = (&PortRecord, Family)> {
    let families = record.families();
    let served = move || {
        Family::BOTH
            .into_iter()
            .filter(move |family| *families.get(*family))
    };
    record
        .ports
        .iter()
        .flat_map(move |port| served().map(move |family| (port, family)))
}

fn port_key(name: &ObjectKey, port: &PortRecord, family: Family) -> PortKey {
    PortKey {
        service: name.clone(),
        port: port.name.clone(),
        protocol: port.protocol,
        family,
    }
}
