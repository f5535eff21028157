//! What a load balancer is to the world, and what it cannot become. Pure.

use std::net::IpAddr;

use super::octavia::LoadBalancer;
use super::options::{Options, refused};
pub(super) use crate::cloud::requested_ip;
use crate::{Balancer, Family, Host, Ingress, IpMode, ProviderError, Request};

/// Whether it gets a floating IP: only IPv4 is translated.
pub(super) fn floats(balancer: &LoadBalancer, options: &Options) -> bool {
    !options.internal && balancer.vip_address.is_ipv4()
}

/// What it was created with, and cannot change.
pub(super) fn check_unchangeable(
    balancer: &LoadBalancer,
    request: &Request,
    options: &Options,
) -> Result<(), ProviderError> {
    let again = "delete and create the Service to change it";
    if let Some(address) = requested_ip(request)?
        && !floats(balancer, options)
        && address != balancer.vip_address
    {
        let message = format!(
            "{balancer} has the address {}, not {address}: {again}",
            balancer.vip_address
        );
        return Err(refused("AddressCannotChange", message));
    }
    let addresses = balancer.addresses();
    let has = |family: &Family| {
        addresses
            .iter()
            .any(|address| Family::of(*address) == *family)
    };
    let missing = request
        .families
        .iter()
        .enumerate()
        .find(|(at, family)| (*at == 0 || request.require_all_families) && !has(family));
    match missing {
        Some((_, family)) => Err(refused(
            "AddressCannotChange",
            format!("{balancer} has no {family:?} address: {again}"),
        )),
        None => Ok(()),
    }
}

pub(super) fn published(request: &Request) -> Vec<IpAddr> {
    let address = |ingress: &Ingress| match ingress.host {
        Host::Ip(address) => Some(address),
        Host::Name(_) => None,
    };
    request.ingress.iter().filter_map(address).collect()
}

/// The load balancer as the Service's status shows it, with the floating IP in place of the address
/// behind it.
pub(super) fn described(
    balancer: &LoadBalancer,
    floating: Option<IpAddr>,
    request: &Request,
    options: &Options,
) -> Balancer {
    let mode = if options.alters_traffic() {
        IpMode::Proxy
    } else {
        IpMode::Vip
    };
    let own = if floats(balancer, options) {
        floating
    } else {
        Some(balancer.vip_address)
    };
    let others = balancer
        .additional_vips
        .iter()
        .filter_map(|vip| vip.ip_address);
    let others = others.filter(|address| request.families.contains(&Family::of(*address)));
    let ingress = match &options.hostname {
        Some(name) => vec![Ingress {
            host: Host::Name(name.clone()),
            mode: IpMode::Vip,
        }],
        None => own
            .into_iter()
            .chain(others)
            .map(|address| Ingress {
                host: Host::Ip(address),
                mode,
            })
            .collect(),
    };
    let pending = match (balancer.provisioning_status.as_str(), own) {
        ("ACTIVE", Some(_)) => None,
        ("ACTIVE", None) => Some(format!("{balancer} has no floating IP yet")),
        _ => Some(balancer.state()),
    };
    Balancer { ingress, pending }
}

#[cfg(test)]
mod tests;
