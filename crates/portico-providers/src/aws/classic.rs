//! Classic load balancers: what there is, and the steps from there to what is wanted. Pure. One
//! answer of the vendor has everything but tags.

pub(super) mod act;

use std::collections::BTreeSet;

use super::annotations::CROSS_ZONE;
use super::api::ec2::Tags;
use super::groups::{GroupStep, Groups, missing_tags};
use super::network::changes;
use super::settings::{self, tags_at_first};
use super::wanted::{Check, Wanted, refused};
use crate::ProviderError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balancer {
    pub host: String,
    pub internal: bool,
    pub groups: Vec<String>,
    pub listeners: BTreeSet<PortPair>,
    /// `None` if it is none that Portico makes.
    pub check: Option<Check>,
    pub instances: BTreeSet<String>,
    /// Policies that there are, whether they are used or not.
    pub policies: BTreeSet<String>,
    /// Node ports to which connections begin with the PROXY protocol.
    pub proxied: BTreeSet<u16>,
    pub tags: Tags,
}

/// A port of the balancer and where it leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortPair {
    pub port: u16,
    pub node_port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    pub groups: Groups,
    pub balancer: Option<Balancer>,
    /// For a balancer that has to be made.
    pub subnets: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Group(GroupStep),
    Create {
        internal: bool,
        subnets: Vec<String>,
        listeners: Vec<PortPair>,
        tags: Tags,
    },
    UseGroup,
    Tag(Tags),
    SetAttributes(Tags),
    CreateListeners(Vec<PortPair>),
    DeleteListeners(Vec<u16>),
    CreateProxyPolicy,
    /// Whether connections to a node port begin with the PROXY protocol.
    Proxy(u16, bool),
    SetCheck(Check),
    Register(Vec<String>),
    Deregister(Vec<String>),
    Delete,
}

impl Observed {
    /// A step was done; `host` is the name in DNS of a balancer that it made. Those of security
    /// groups are noted where they are done.
    pub(super) fn done(&mut self, step: &Step, host: Option<String>) {
        let group = self.groups.own_id();
        if let Step::Create {
            internal,
            listeners,
            tags,
            ..
        } = step
        {
            let listeners = listeners.iter().copied().collect();
            let (host, groups) = (host.unwrap_or_default(), vec![group]);
            let (internal, tags) = (*internal, tags.clone());
            self.balancer = Some(Balancer {
                host,
                internal,
                groups,
                listeners,
                tags,
                ..Balancer::default()
            });
            self.subnets.clear();
            return;
        }
        let Some(it) = &mut self.balancer else { return };
        match step {
            Step::UseGroup => it.groups = vec![group],
            Step::Tag(tags) => it.tags.extend(tags.clone()),
            Step::CreateListeners(ports) => it.listeners.extend(ports),
            Step::DeleteListeners(ports) => it.listeners.retain(|pair| !ports.contains(&pair.port)),
            Step::CreateProxyPolicy => _ = it.policies.insert(PROXY_POLICY.to_owned()),
            Step::Proxy(node_port, true) => _ = it.proxied.insert(*node_port),
            Step::Proxy(node_port, false) => _ = it.proxied.remove(node_port),
            Step::SetCheck(check) => it.check = Some(check.clone()),
            Step::Register(ids) => it.instances.extend(ids.iter().cloned()),
            Step::Deregister(ids) => it.instances.retain(|id| !ids.contains(id)),
            Step::Delete => self.balancer = None,
            Step::Create { .. } | Step::Group(_) | Step::SetAttributes(_) => {}
        }
    }
}

/// The group goes last.
pub(super) fn removal(seen: &Observed) -> Vec<Step> {
    let balancer = seen.balancer.iter().map(|_| Step::Delete);
    balancer
        .chain(seen.groups.remove().into_iter().map(Step::Group))
        .collect()
}

/// The name of the policy that turns the PROXY protocol on.
pub(super) const PROXY_POLICY: &str = "k8s-proxyprotocol-enabled";

const DEFAULTS: &[(&str, &str)] = &[
    (CROSS_ZONE, "false"),
    ("connection_draining.timeout", "0"),
    ("idle_timeout", "60"),
];

pub(super) fn plan(wanted: &Wanted, seen: &Observed) -> Result<Vec<Step>, ProviderError> {
    let mut steps: Vec<Step> = seen
        .groups
        .open(&wanted.groups)
        .into_iter()
        .map(Step::Group)
        .collect();
    let ports = wanted.listeners.iter().map(|it| PortPair {
        port: it.port,
        node_port: it.node_port,
    });
    let ports: BTreeSet<PortPair> = ports.collect();
    if ports.is_empty() {
        return refused(
            "NoPorts",
            "a classic load balancer needs a port with a nodePort",
        );
    }
    let new = Balancer {
        internal: wanted.internal,
        groups: seen.groups.own.iter().map(|own| own.id.clone()).collect(),
        listeners: ports.clone(),
        tags: tags_at_first(wanted.tags.clone(), &wanted.settings),
        ..Balancer::default()
    };
    let balancer = seen.balancer.as_ref().unwrap_or(&new);
    if seen.balancer.is_none() {
        let (internal, subnets, tags) = (wanted.internal, seen.subnets.clone(), new.tags.clone());
        steps.push(Step::Create {
            internal,
            subnets,
            listeners: ports.iter().copied().collect(),
            tags,
        });
    }
    if balancer.internal != wanted.internal {
        return refused(
            "SchemeChanged",
            "a load balancer cannot become internal or public: create the Service anew",
        );
    }
    if balancer
        .groups
        .iter()
        .ne(seen.groups.own.as_ref().map(|own| &own.id))
    {
        steps.push(Step::UseGroup);
    }
    steps.extend(missing_tags(&balancer.tags, &wanted.tags).map(Step::Tag));
    if let Some(change) = settings::change(&balancer.tags, &wanted.settings, DEFAULTS) {
        steps.extend(change.before.map(Step::Tag));
        steps.push(Step::SetAttributes(change.attributes));
        steps.push(Step::Tag(change.after));
    }
    listeners(balancer, &ports, wanted.proxy_protocol, &mut steps);
    if balancer.check.as_ref() != Some(&wanted.check) {
        steps.push(Step::SetCheck(wanted.check.clone()));
    }
    let (gone, missing) = changes(&balancer.instances, &wanted.instances);
    steps.extend(gone.map(Step::Deregister));
    steps.extend(missing.map(Step::Register));
    steps.extend(
        seen.groups
            .close(&wanted.groups)
            .into_iter()
            .map(Step::Group),
    );
    Ok(steps)
}

/// A port can lead elsewhere only after its listener is gone. What was said of a node port outlives
/// its listeners.
fn listeners(balancer: &Balancer, wanted: &BTreeSet<PortPair>, proxy: bool, steps: &mut Vec<Step>) {
    let proxied: BTreeSet<u16> = wanted
        .iter()
        .filter(|_| proxy)
        .map(|it| it.node_port)
        .collect();
    let surplus = balancer.proxied.difference(&proxied);
    steps.extend(surplus.map(|node_port| Step::Proxy(*node_port, false)));
    let gone: Vec<u16> = balancer
        .listeners
        .difference(wanted)
        .map(|it| it.port)
        .collect();
    let new: Vec<PortPair> = wanted.difference(&balancer.listeners).copied().collect();
    steps.extend((!gone.is_empty()).then_some(Step::DeleteListeners(gone)));
    steps.extend((!new.is_empty()).then_some(Step::CreateListeners(new)));
    if proxy && !balancer.policies.contains(PROXY_POLICY) {
        steps.push(Step::CreateProxyPolicy);
    }
    steps.extend(
        proxied
            .difference(&balancer.proxied)
            .map(|node_port| Step::Proxy(*node_port, true)),
    );
}

#[cfg(test)]
mod tests;
