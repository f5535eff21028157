//! Which flows are stale: those to a frontend that do not go to an endpoint which still serves it, or
//! whose client may no longer use it. Pure.

use super::flow::Flow;
use ipnet::IpNet;
use portico_model::table::{
    Change, DmzPods, Endpoint, Family, ForwardingTable, Frontend, FrontendKey, FrontendKind,
    NodePortAddresses, NodeRules, PerFamily, PortKey, Protocol, ServicePort,
};
use std::collections::{BTreeMap, btree_map::Entry};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How long flows to a port that lost its last endpoint are left alone. No other endpoint can take
/// them, and the endpoint may be back in a moment; but its address may also become another pod's.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(10);

/// Which flows to end: what holds for each frontend that can have stale ones. Flows to anything
/// else are not touched.
#[derive(Clone, Debug, Default)]
pub struct Stale {
    frontends: BTreeMap<FrontendKey, Fate>,
    node_ports: PerFamily<NodePortAddresses>,
    dmz: PerFamily<DmzPods>,
    /// Ports without endpoints, whose flows are to be looked at with [`check`] after
    /// [`ABANDONED_AFTER`].
    pub abandoned: Vec<PortKey>,
}

#[derive(Clone, Debug)]
enum Fate {
    /// Flows of who may use it that go to one of its endpoints stay. All others end, also those that nobody
    /// translated: they began before the frontend was there.
    Served(Arc<ServicePort>),
    /// There is no such frontend any more. Flows end that go to an endpoint it had; what else is
    /// sent there is not ours.
    Gone(Arc<ServicePort>),
}

/// What changed ports make stale. To be used after the change is installed.
pub fn plan(changes: &[Change], rules: &NodeRules) -> Stale {
    let changes = || {
        changes
            .iter()
            .filter(|change| is_ended(change.key.protocol))
    };
    if changes().next().is_none() {
        return Stale::default();
    }
    let mut stale = Stale::new(rules);
    for change in changes() {
        if let Some(after) = &change.after {
            stale.changed(&change.key, change.before.as_deref(), after);
        }
    }
    // Last, since a frontend that one port lost may now be another's.
    for change in changes() {
        if let Some(before) = &change.before {
            stale.lost(&change.key, before, change.after.as_deref());
        }
    }
    stale
}

/// All flows that are stale by the table alone, for these of its ports: at the start, after a
/// change of the node's rules, and for abandoned ports.
pub fn check<'a>(table: &ForwardingTable, ports: impl IntoIterator<Item = &'a PortKey>) -> Stale {
    let mut stale = Stale::new(&table.rules);
    for key in ports.into_iter().filter(|key| is_ended(key.protocol)) {
        if let Some(port) = table.ports.get(key) {
            for frontend in &port.frontends {
                stale.insert(key, frontend, Fate::Served(Arc::clone(port)));
            }
        }
    }
    stale
}

impl Stale {
    fn new(rules: &NodeRules) -> Self {
        Self {
            node_ports: rules.node_ports.clone(),
            dmz: rules.dmz.clone(),
            ..Self::default()
        }
    }

    /// There is nothing to look for now.
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    fn insert(&mut self, key: &PortKey, frontend: &Frontend, fate: Fate) {
        self.frontends.insert(FrontendKey::of(frontend, key), fate);
    }

    fn changed(&mut self, key: &PortKey, before: Option<&ServicePort>, after: &Arc<ServicePort>) {
        let (had, has_endpoints) = (before.is_some_and(has_endpoints), has_endpoints(after));
        if had && !has_endpoints {
            self.abandoned.push(key.clone());
        }
        // Without endpoints before, there may be flows left from when there were some.
        let others =
            has_endpoints && before.is_some_and(|before| !had || loses_endpoints(before, after));
        for frontend in &after.frontends {
            let is_new = !before.is_some_and(|before| has(before, frontend));
            let narrower = before.is_some_and(|before| excludes_more(before, after, frontend));
            if is_new || others || narrower {
                self.insert(key, frontend, Fate::Served(Arc::clone(after)));
            }
        }
    }

    fn lost(&mut self, key: &PortKey, before: &Arc<ServicePort>, after: Option<&ServicePort>) {
        for frontend in before
            .frontends
            .iter()
            .filter(|frontend| !after.is_some_and(|after| has(after, frontend)))
        {
            if let Entry::Vacant(free) = self.frontends.entry(FrontendKey::of(frontend, key)) {
                free.insert(Fate::Gone(Arc::clone(before)));
            }
        }
    }

    pub(super) fn ends(&self, flow: &Flow, mut is_local: impl FnMut(IpAddr) -> bool) -> bool {
        self.judge(
            flow.protocol,
            flow.from,
            flow.to,
            flow.answered_by,
            &mut is_local,
        )
    }

    fn judge(
        &self,
        protocol: Protocol,
        from: IpAddr,
        to: SocketAddr,
        answered_by: SocketAddr,
        is_local: &mut dyn FnMut(IpAddr) -> bool,
    ) -> bool {
        let family = Family::of(to.ip());
        let fate_at = |address| {
            self.frontends.get(&FrontendKey {
                family,
                address,
                port: to.port(),
                protocol,
            })
        };
        let node_port = || fate_at(None).filter(|_| self.has_node_ports(to.ip(), is_local));
        match fate_at(Some(to.ip())).or_else(node_port) {
            Some(Fate::Served(port)) => {
                !serves(port, answered_by) || self.shuts_out(port, from, to, is_local)
            }
            Some(Fate::Gone(port)) if has_endpoints(port) => serves(port, answered_by),
            // Those it had before that are not known any more; whatever was translated went to one
            // of them.
            Some(Fate::Gone(_)) => answered_by != to,
            None => false,
        }
    }

    /// A pod may have the address of one that was let in.
    fn shuts_out(
        &self,
        port: &ServicePort,
        from: IpAddr,
        to: SocketAddr,
        is_local: &mut dyn FnMut(IpAddr) -> bool,
    ) -> bool {
        let at_cluster_ip = |frontend: &&Frontend| {
            frontend.kind == FrontendKind::ClusterIp
                && (frontend.address, frontend.port) == (Some(to.ip()), to.port())
        };
        let Some(frontend) = port.frontends.iter().find(at_cluster_ip) else {
            return false;
        };
        let is_let_in = |sources: &Arc<[IpNet]>| sources.iter().any(|own| own.contains(&from));
        let kept_in_dmz =
            self.dmz.get(Family::of(from)).has(from) && port.dmz.binary_search(&from).is_err();
        frontend
            .sources
            .as_ref()
            .is_some_and(|sources| !is_let_in(sources))
            || (kept_in_dmz && !is_local(from))
    }

    fn has_node_ports(&self, address: IpAddr, is_local: &mut dyn FnMut(IpAddr) -> bool) -> bool {
        match self.node_ports.get(Family::of(address)) {
            NodePortAddresses::Listed(listed) => listed.contains(&address),
            NodePortAddresses::AllLocal { loopback: false } if address.is_loopback() => false,
            NodePortAddresses::AllLocal { .. } => is_local(address),
        }
    }

    /// What the kernel has to list.
    pub(super) fn scopes(&self) -> Vec<Scope> {
        let mut scopes: BTreeMap<(Family, Protocol), Scope> = BTreeMap::new();
        for key in self.frontends.keys() {
            let scope = scopes
                .entry((key.family, key.protocol))
                .or_insert_with(|| Scope::of(key));
            scope.address = scope
                .address
                .filter(|address| key.address == Some(*address));
            scope.port = scope.port.filter(|port| key.port == *port);
        }
        scopes.into_values().collect()
    }
}

/// Flows of one family and protocol; if they all have the same destination address or port, with
/// that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub family: Family,
    pub protocol: Protocol,
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
}

impl Scope {
    fn of(key: &FrontendKey) -> Self {
        Self {
            family: key.family,
            protocol: key.protocol,
            address: key.address,
            port: Some(key.port),
        }
    }
}

fn is_ended(protocol: Protocol) -> bool {
    match protocol {
        Protocol::Udp | Protocol::Sctp => true,
        Protocol::Tcp => false,
    }
}

fn has(port: &ServicePort, frontend: &Frontend) -> bool {
    port.frontends
        .iter()
        .any(|other| (other.address, other.port) == (frontend.address, frontend.port))
}

/// Some client of the cluster IP may no longer use it.
fn excludes_more(before: &ServicePort, after: &ServicePort, frontend: &Frontend) -> bool {
    if frontend.kind != FrontendKind::ClusterIp {
        return false;
    }
    let mut old = before
        .frontends
        .iter()
        .filter(|old| old.kind == frontend.kind);
    let lost = |old: &Frontend| match (&old.sources, &frontend.sources) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => old.iter().any(|source| !new.contains(source)),
    };
    old.any(lost)
        || before
            .dmz
            .iter()
            .any(|pod| after.dmz.binary_search(pod).is_err())
}

/// All that serve, whether they get new connections or not.
fn endpoints(port: &ServicePort) -> impl Iterator<Item = &Endpoint> {
    [&port.cluster, &port.local, &port.lingering]
        .into_iter()
        .flat_map(|pool| pool.iter())
}

fn has_endpoints(port: &ServicePort) -> bool {
    endpoints(port).next().is_some()
}

fn serves(port: &ServicePort, at: SocketAddr) -> bool {
    let wanted = (at.ip(), at.port());
    let has = |pool: &[Endpoint]| {
        pool.binary_search_by_key(&wanted, |endpoint| (endpoint.address, endpoint.port))
            .is_ok()
    };
    has(&port.cluster) || has(&port.local) || has(&port.lingering)
}

fn loses_endpoints(before: &ServicePort, after: &ServicePort) -> bool {
    endpoints(before)
        .any(|endpoint| !serves(after, SocketAddr::new(endpoint.address, endpoint.port)))
}

#[cfg(test)]
mod tests;
