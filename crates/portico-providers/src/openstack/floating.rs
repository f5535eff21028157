//! Which floating IP a load balancer gets. Pure.
//!
//! Those that Portico makes say in their description whose they are, and only those are ever
//! deleted: addresses that people reserved are attached and set free.

use std::net::IpAddr;

use super::neutron::FloatingIp;
use super::options::refused;
use crate::{ProviderError, Request};

/// The description of one that was made for a Service. The uid is in it.
pub(super) fn marker(request: &Request) -> String {
    format!(
        "Floating IP of Kubernetes service {} in cluster {} ({})",
        request.service, request.cluster, request.balancer_name
    )
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    pub marker: String,
    /// The port of the load balancer's own address.
    pub port: String,
    /// `spec.loadBalancerIP`
    pub requested: Option<IpAddr>,
}

/// What there is to choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// At the load balancer.
    pub attached: Vec<FloatingIp>,
    /// With the Service's description, wherever they are.
    pub marked: Vec<FloatingIp>,
    /// The one that is requested.
    pub requested: Option<FloatingIp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Attach(String),
    Detach(String),
    Delete(String),
    Create(Option<IpAddr>),
}

/// Whether the one that is attached is the right one, so that nothing else has to be known.
pub(super) fn is_right(desired: &Desired, attached: &[FloatingIp]) -> bool {
    match desired.requested {
        Some(requested) => attached
            .iter()
            .any(|ip| ip.floating_ip_address == requested),
        None => !attached.is_empty(),
    }
}

/// The one that it should have.
pub(super) fn plan(desired: &Desired, found: &Found) -> Result<Vec<Step>, ProviderError> {
    if is_right(desired, &found.attached) {
        return Ok(Vec::new());
    }
    let chosen = match (desired.requested, &found.requested) {
        (Some(address), Some(ip)) => Some(free(address, ip, &desired.port)?),
        (Some(_), None) => None,
        // One that was left by a load balancer before this one, rather one that is free.
        (None, _) => found
            .marked
            .iter()
            .min_by_key(|ip| (ip.port_id.is_some(), &ip.id)),
    };
    // A load balancer has one at a time.
    let mut steps: Vec<Step> = found
        .attached
        .iter()
        .map(|ip| release(ip, &desired.marker))
        .collect();
    steps.push(match chosen {
        Some(ip) => Step::Attach(ip.id.clone()),
        None => Step::Create(desired.requested),
    });
    Ok(steps)
}

/// The floating IP with this address, if no other port has it.
fn free<'a>(
    address: IpAddr,
    ip: &'a FloatingIp,
    port: &str,
) -> Result<&'a FloatingIp, ProviderError> {
    match &ip.port_id {
        Some(other) if other != port => {
            let message = format!(
                "the floating IP {address} is attached to port {other}: detach it there, or \
                 request another"
            );
            Err(refused("AddressInUse", message))
        }
        _ => Ok(ip),
    }
}

/// The load balancer is to have none: those that were made for it go, and so do those that the
/// status shows (`published`), which only Portico attached. Others were attached by an operator.
pub(super) fn plan_none(marker: &str, attached: &[FloatingIp], published: &[IpAddr]) -> Vec<Step> {
    let is_ours =
        |ip: &&FloatingIp| ip.description == marker || published.contains(&ip.floating_ip_address);
    attached
        .iter()
        .filter(is_ours)
        .map(|ip| release(ip, marker))
        .collect()
}

/// The load balancer goes.
pub(super) fn plan_end(marker: &str, keep: bool, found: &Found) -> Vec<Step> {
    let mut steps = Vec::new();
    for ip in &found.attached {
        steps.push(if keep {
            Step::Detach(ip.id.clone())
        } else {
            release(ip, marker)
        });
    }
    let loose = found
        .marked
        .iter()
        .filter(|ip| !found.attached.iter().any(|attached| attached.id == ip.id));
    if !keep {
        steps.extend(loose.map(|ip| Step::Delete(ip.id.clone())));
    }
    steps
}

fn release(ip: &FloatingIp, marker: &str) -> Step {
    if ip.description == marker {
        Step::Delete(ip.id.clone())
    } else {
        Step::Detach(ip.id.clone())
    }
}

#[cfg(test)]
mod tests;
