//! Where a new load balancer gets its own addresses from.

use std::net::IpAddr;

use super::neutron::{Neutron, Subnet};
use super::octavia::Vip;
use super::options::{Options, refused};
use crate::cloud::CallError;
use crate::{Family, ProviderError, Request};

/// What `vip_*` of a new load balancer say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub network: Option<String>,
    pub subnet: Option<String>,
    pub port: Option<String>,
    pub more: Vec<Vip>,
}

/// Chooses the network. Only what is needed is read: for one IPv4 address the configuration is
/// enough.
pub(super) async fn choose(
    neutron: Option<&Neutron>,
    request: &Request,
    options: &Options,
) -> Result<Place, ProviderError> {
    if options.vip_port.is_some() {
        return Ok(Place {
            port: options.vip_port.clone(),
            ..Place::default()
        });
    }
    let networks = &options.networks;
    let mut place = Place {
        network: networks.network.clone(),
        subnet: networks.subnet.clone(),
        ..Place::default()
    };
    let neutron = match neutron {
        Some(neutron) => neutron,
        None if place.network.is_some() || place.subnet.is_some() => return Ok(place),
        None => return Err(nowhere()),
    };
    if place.network.is_none() && place.subnet.is_none() {
        place.subnet = Some(of_nodes(neutron, request).await?.ok_or_else(nowhere)?);
    }
    if request.families == [Family::V4] {
        return Ok(place);
    }
    let subnets = subnets(neutron, &place).await?;
    by_family(&subnets, request)
}

/// The network of the first node whose providerID belongs to this cloud.
async fn of_nodes(neutron: &Neutron, request: &Request) -> Result<Option<String>, CallError> {
    let machine = |id: &str| {
        id.strip_prefix("openstack://")
            .and_then(|rest| rest.rsplit('/').next())
            .map(str::to_owned)
    };
    let nodes = request
        .nodes
        .iter()
        .filter_map(|node| Some((machine(&node.provider_id)?, &node.addresses)));
    let Some((machine, addresses)) = nodes.into_iter().next() else {
        return Ok(None);
    };
    let family = request.families.first().copied().unwrap_or(Family::V4);
    let addresses: Vec<IpAddr> = addresses
        .iter()
        .copied()
        .filter(|address| Family::of(*address) == family)
        .collect();
    neutron.subnet_of_machine(&machine, &addresses).await
}

/// The subnets of the network, the chosen one first.
async fn subnets(neutron: &Neutron, place: &Place) -> Result<Vec<Subnet>, CallError> {
    let network = match (&place.network, &place.subnet) {
        (Some(network), _) => Some(network.clone()),
        (None, Some(subnet)) => neutron
            .subnets("id", subnet)
            .await?
            .into_iter()
            .next()
            .map(|subnet| subnet.network_id),
        (None, None) => None,
    };
    let Some(network) = network else {
        return Ok(Vec::new());
    };
    let mut subnets = neutron.subnets("network_id", &network).await?;
    subnets.sort_by_key(|subnet| (Some(&subnet.id) != place.subnet.as_ref(), subnet.id.clone()));
    Ok(subnets)
}

/// The first family is the load balancer's own, the other one is beside it.
fn by_family(subnets: &[Subnet], request: &Request) -> Result<Place, ProviderError> {
    let of = |family: Family| subnets.iter().find(|subnet| subnet.family() == family);
    let mut place = Place::default();
    for (at, family) in request.families.iter().enumerate() {
        match of(*family) {
            Some(subnet) if at == 0 => {
                (place.network, place.subnet) =
                    (Some(subnet.network_id.clone()), Some(subnet.id.clone()));
            }
            Some(subnet) => place.more.push(Vip {
                subnet_id: Some(subnet.id.clone()),
                ip_address: None,
            }),
            None if at == 0 || request.require_all_families => {
                let message = format!(
                    "the network of load balancers has no {family:?} subnet: add one, or set \
                     network-id"
                );
                return Err(refused("NoSubnet", message));
            }
            None => {}
        }
    }
    Ok(place)
}

fn nowhere() -> ProviderError {
    let message = "no subnet is known for the load balancer: set subnet-id or network-id in \
             [LoadBalancer], or annotate the Service with loadbalancer.openstack.org/subnet-id";
    refused("NoSubnet", message.to_owned())
}
