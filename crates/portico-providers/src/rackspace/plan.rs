//! From what is wanted and what there is to the steps between. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::api::{
    BATCH, HealthMonitor, LoadBalancer, NewItem, NewLoadBalancer, NewNode, NewVirtualIp,
    SessionPersistence, Settings, VirtualIp,
};
use super::wanted::{self, MOST_ITEMS, Wanted, refused};
use crate::cloud::requested_ip;
use crate::{Family, Host, Ingress, ProviderError, Request};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// What a load balancer that is created gets. After the first, those of the first.
    pub addresses: Vec<NewVirtualIp>,
    /// What is for one load balancer stands together.
    pub steps: Vec<Step>,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Create(Box<NewLoadBalancer>),
    Update(u64, Settings),
    SetMonitor(u64, HealthMonitor),
    SetPersistence(u64, Option<SessionPersistence>),
    AddNodes(u64, Vec<NewNode>),
    RemoveNodes(u64, Vec<u64>),
    AddItems(u64, Vec<NewItem>),
    /// None is all.
    RemoveItems(u64, Vec<u64>),
    Delete(Vec<u64>),
}

impl Step {
    /// What is busy afterwards.
    pub(super) fn target(&self) -> Option<u64> {
        match self {
            Self::Create(_) | Self::Delete(_) => None,
            Self::Update(id, _)
            | Self::SetMonitor(id, _)
            | Self::SetPersistence(id, _)
            | Self::AddNodes(id, _)
            | Self::RemoveNodes(id, _)
            | Self::AddItems(id, _)
            | Self::RemoveItems(id, _) => Some(*id),
        }
    }
}

/// `own` with details, `all` of the account. What is new is made before what is old goes, so that
/// the address is never without a load balancer, which would be its end.
pub(super) fn plan(
    wanted: &Wanted,
    own: &[LoadBalancer],
    all: &[LoadBalancer],
    request: &Request,
) -> Result<Plan, ProviderError> {
    let kept = addresses(own, request);
    let addresses = match own {
        [] => new_addresses(wanted, all, request)?,
        _ => {
            check_unchangeable(wanted, &kept, request)?;
            shared(&kept)
        }
    };
    let is_right =
        |balancer: &&LoadBalancer| kept.iter().all(|vip| balancer.virtual_ips.contains(vip));
    let (mut steps, mut changes, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
    for new in &wanted.balancers {
        match own
            .iter()
            .filter(is_right)
            .find(|balancer| serves(balancer, new))
        {
            None => steps.push(Step::Create(Box::new(new.clone()))),
            Some(balancer) => {
                used.insert(balancer.id);
                changes.extend(change(balancer, new, wanted.most_nodes));
            }
        }
    }
    steps.extend(changes);
    let old: Vec<u64> = own
        .iter()
        .map(|balancer| balancer.id)
        .filter(|id| !used.contains(id))
        .collect();
    steps.extend(old.chunks(BATCH).map(|ids| Step::Delete(ids.to_vec())));
    Ok(Plan { addresses, steps })
}

/// The addresses of a Service: those that people know, else those of the oldest load balancer. In
/// order of its families.
pub(super) fn addresses(own: &[LoadBalancer], request: &Request) -> Vec<VirtualIp> {
    let is_published = |address: IpAddr| {
        request
            .ingress
            .iter()
            .any(|Ingress { host, .. }| *host == Host::Ip(address))
    };
    let known = |balancer: &&LoadBalancer| {
        balancer
            .virtual_ips
            .iter()
            .any(|vip| is_published(vip.address))
    };
    let chosen = own
        .iter()
        .find(known)
        .or_else(|| own.iter().min_by_key(|balancer| balancer.id));
    chosen
        .map(|balancer| in_families(&balancer.virtual_ips, request))
        .unwrap_or_default()
}

fn in_families(vips: &[VirtualIp], request: &Request) -> Vec<VirtualIp> {
    let of = |family: &Family| {
        vips.iter()
            .find(|vip| Family::of(vip.address) == *family)
            .cloned()
    };
    request.families.iter().filter_map(of).collect()
}

fn shared(vips: &[VirtualIp]) -> Vec<NewVirtualIp> {
    vips.iter()
        .map(|vip| NewVirtualIp::Shared { id: vip.id })
        .collect()
}

/// An address that is asked for has to be in the account, since the cloud chooses new ones itself.
fn new_addresses(
    wanted: &Wanted,
    all: &[LoadBalancer],
    request: &Request,
) -> Result<Vec<NewVirtualIp>, ProviderError> {
    let Some(address) = requested_ip(request)? else {
        return Ok(wanted.new_addresses(request));
    };
    let has = |balancer: &&LoadBalancer| {
        !balancer.is_leaving()
            && balancer
                .virtual_ips
                .iter()
                .any(|vip| vip.address == address && vip.kind == wanted.kind)
    };
    match all.iter().find(has) {
        Some(balancer) => Ok(shared(&in_families(&balancer.virtual_ips, request))),
        None => {
            let message = format!(
                "loadBalancerIP {address} is no {} address of a load balancer in the account, and \
                 the cloud chooses new ones itself: clear it",
                wanted.kind
            );
            Err(refused("AddressNotFound", message))
        }
    }
}

fn check_unchangeable(
    wanted: &Wanted,
    vips: &[VirtualIp],
    request: &Request,
) -> Result<(), ProviderError> {
    let has = |family: &Family| vips.iter().any(|vip| Family::of(vip.address) == *family);
    let needed = request
        .families
        .iter()
        .take(if request.require_all_families { 2 } else { 1 });
    let problem = if let Some(other) =
        requested_ip(request)?.filter(|ip| vips.iter().all(|vip| vip.address != *ip))
    {
        format!("has not the address {other}")
    } else if vips.iter().any(|vip| vip.kind != wanted.kind) {
        format!("has no {} address", wanted.kind)
    } else if let Some(missing) = needed.into_iter().find(|family| !has(family)) {
        format!("has no {missing:?} address")
    } else {
        return Ok(());
    };
    Err(refused(
        "AddressCannotChange",
        format!("the load balancer {problem}: delete and create the Service to change it"),
    ))
}

fn serves(balancer: &LoadBalancer, new: &NewLoadBalancer) -> bool {
    (balancer.protocol.as_str(), balancer.port) == (new.protocol, new.port)
}

fn change(balancer: &LoadBalancer, new: &NewLoadBalancer, most_nodes: usize) -> Vec<Step> {
    let (id, mut steps) = (balancer.id, Vec::new());
    if (balancer.algorithm.as_str(), balancer.timeout)
        != (new.settings.algorithm.as_str(), new.settings.timeout)
    {
        steps.push(Step::Update(id, new.settings.clone()));
    }
    // UDP has none, and cannot be given one.
    if let Some(monitor) = new
        .health_monitor
        .as_ref()
        .filter(|new| balancer.health_monitor.as_ref() != Some(new))
    {
        steps.push(Step::SetMonitor(id, monitor.clone()));
    }
    if balancer.session_persistence != new.session_persistence {
        steps.push(Step::SetPersistence(id, new.session_persistence.clone()));
    }
    steps.extend(change_items(balancer, new));
    steps.extend(change_nodes(balancer, new, most_nodes));
    steps
}

fn change_items(balancer: &LoadBalancer, new: &NewLoadBalancer) -> Vec<Step> {
    if new.access_list.is_empty() {
        let any = !balancer.access_list.is_empty();
        return any
            .then(|| Step::RemoveItems(balancer.id, Vec::new()))
            .into_iter()
            .collect();
    }
    let there: Vec<_> = balancer
        .access_list
        .iter()
        .map(|item| (item.id, wanted::item(&item.address, &item.kind)))
        .collect();
    let steps = exchange(&there, &new.access_list, MOST_ITEMS)
        .into_iter()
        .map(|part| match part {
            Exchange::Add(items) => Step::AddItems(balancer.id, items),
            Exchange::Remove(ids) => Step::RemoveItems(balancer.id, ids),
        });
    steps.collect()
}

/// Conditions and weights are people's.
fn change_nodes(balancer: &LoadBalancer, new: &NewLoadBalancer, most: usize) -> Vec<Step> {
    let there: Vec<_> = balancer
        .nodes
        .iter()
        .map(|node| (node.id, wanted::node(&node.address, node.port)))
        .collect();
    let steps = exchange(&there, &new.nodes, most)
        .into_iter()
        .map(|part| match part {
            Exchange::Add(nodes) => Step::AddNodes(balancer.id, nodes),
            Exchange::Remove(ids) => Step::RemoveNodes(balancer.id, ids),
        });
    steps.collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Exchange<K> {
    Add(Vec<K>),
    Remove(Vec<u64>),
}

/// What is new comes before what is old goes, as far as there is room for both.
fn exchange<K: Ord + Clone>(there: &[(u64, K)], wanted: &[K], most: usize) -> Vec<Exchange<K>> {
    let mut missing: BTreeSet<&K> = wanted.iter().collect();
    let mut old: Vec<u64> = there
        .iter()
        .filter(|(_, it)| !missing.remove(it))
        .map(|(id, _)| *id)
        .collect();
    let mut new: Vec<K> = missing.into_iter().cloned().collect();
    let (mut count, mut parts) = (there.len(), Vec::new());
    loop {
        let room = most.saturating_sub(count).min(new.len());
        if room > 0 {
            count += room;
            parts.push(Exchange::Add(new.drain(..room).collect()));
        } else if !old.is_empty() {
            let batch: Vec<u64> = old.drain(..old.len().min(BATCH)).collect();
            count -= batch.len();
            parts.push(Exchange::Remove(batch));
        } else {
            return parts;
        }
    }
}

#[cfg(test)]
mod tests;
