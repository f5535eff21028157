//! The services that are asked, and the floating IP of a load balancer: `floating` decides, this
//! does it.

use std::net::IpAddr;

use tracing::info;

use super::floating::{self, Desired, Found, Step};
use super::neutron::{FloatingIp, Neutron, NewFloatingIp};
use super::octavia::{LoadBalancer, Octavia};
use super::options::{self, Options, refused};
use super::status::{floats, published, requested_ip};
use super::work::refusal;
use crate::cloud::CallError;
use crate::{ProviderError, Request};

/// What is known of the floating IPs of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Floating {
    /// It was made just now, and nothing of the Service was there before.
    New,
    Attached(Vec<FloatingIp>),
    Unknown,
}

pub(super) struct Apis {
    pub octavia: Octavia,
    pub neutron: Option<Neutron>,
}

impl Apis {
    /// The floating IP of a load balancer that should have one.
    pub(super) async fn attached(
        &self,
        balancer: &LoadBalancer,
        options: &Options,
    ) -> Result<Option<IpAddr>, CallError> {
        match (&self.neutron, &balancer.vip_port_id) {
            (Some(neutron), Some(port)) if floats(balancer, options) => Ok(neutron
                .floating_ips("port_id", port)
                .await?
                .first()
                .map(|ip| ip.floating_ip_address)),
            _ => Ok(None),
        }
    }

    /// Give it the floating IP that it should have, or none. What is attached to it afterwards.
    pub(super) async fn float(
        &self,
        balancer: &LoadBalancer,
        known: Floating,
        request: &Request,
        options: &Options,
    ) -> Result<Vec<FloatingIp>, ProviderError> {
        let wants = floats(balancer, options);
        let (Some(neutron), Some(port)) = (&self.neutron, &balancer.vip_port_id) else {
            return if wants {
                Err(no_floating_network())
            } else {
                Ok(Vec::new())
            };
        };
        let desired = Desired {
            marker: floating::marker(request),
            port: port.clone(),
            requested: requested_ip(request)?,
        };
        let is_new = known == Floating::New;
        let attached = match known {
            Floating::New => Vec::new(),
            Floating::Attached(attached) => attached,
            Floating::Unknown => neutron.floating_ips("port_id", port).await?,
        };
        let steps = match wants {
            false => floating::plan_none(&desired.marker, &attached, &published(request)),
            true if floating::is_right(&desired, &attached) => Vec::new(),
            true => {
                let requested = desired.requested.map(|address| address.to_string());
                let requested = match &requested {
                    Some(address) => neutron
                        .floating_ips("floating_ip_address", address)
                        .await?
                        .into_iter()
                        .next(),
                    None => None,
                };
                let marked = match is_new {
                    true => Vec::new(),
                    false => neutron.floating_ips("description", &desired.marker).await?,
                };
                floating::plan(
                    &desired,
                    &Found {
                        attached: attached.clone(),
                        marked,
                        requested,
                    },
                )?
            }
        };
        let created = run(neutron, &steps, &desired, Some(options)).await?;
        match (steps.as_slice(), created) {
            ([], _) => Ok(attached),
            ([Step::Create(_)], Some(created)) => Ok(vec![created]),
            _ => Ok(neutron.floating_ips("port_id", port).await?),
        }
    }

    /// Take away floating IPs of what is deleted. What an earlier load balancer left is looked for
    /// in any case: no later call will.
    pub(super) async fn sink(
        &self,
        balancers: &[LoadBalancer],
        known: Floating,
        request: &Request,
    ) -> Result<(), ProviderError> {
        let Some(neutron) = &self.neutron else {
            return Ok(());
        };
        let marker = floating::marker(request);
        let mut found = Found {
            marked: neutron.floating_ips("description", &marker).await?,
            ..Found::default()
        };
        match known {
            Floating::Attached(attached) => found.attached = attached,
            Floating::New | Floating::Unknown => {
                for port in balancers
                    .iter()
                    .filter_map(|balancer| balancer.vip_port_id.as_ref())
                {
                    found
                        .attached
                        .extend(neutron.floating_ips("port_id", port).await?);
                }
            }
        }
        let keep = options::keeps_floating_ip(request);
        let desired = Desired {
            marker,
            port: String::new(),
            requested: None,
        };
        run(
            neutron,
            &floating::plan_end(&desired.marker, keep, &found),
            &desired,
            None,
        )
        .await
        .map(drop)
    }
}

/// The last one that was created, if any.
async fn run(
    neutron: &Neutron,
    steps: &[Step],
    desired: &Desired,
    options: Option<&Options>,
) -> Result<Option<FloatingIp>, ProviderError> {
    let mut created = None;
    for step in steps {
        info!(?step, whose = desired.marker, "changing a floating IP");
        match step {
            Step::Attach(id) => neutron.attach_floating_ip(id, Some(&desired.port)).await?,
            Step::Detach(id) => neutron.attach_floating_ip(id, None).await?,
            Step::Delete(id) => neutron.delete_floating_ip(id).await?,
            Step::Create(address) => {
                let networks = options.map(|options| &options.networks);
                let network = match networks.and_then(|networks| networks.floating_network.clone())
                {
                    Some(network) => network,
                    None => only_external(neutron).await?,
                };
                let new = NewFloatingIp {
                    floating_network_id: network,
                    subnet_id: networks.and_then(|networks| networks.floating_subnet.clone()),
                    floating_ip_address: *address,
                    port_id: desired.port.clone(),
                    description: desired.marker.clone(),
                };
                created = Some(neutron.create_floating_ip(&new).await.map_err(refusal)?);
            }
        }
    }
    Ok(created)
}

/// Where nothing says which, there can be only one.
async fn only_external(neutron: &Neutron) -> Result<String, ProviderError> {
    let mut networks = neutron.external_networks().await?;
    match (networks.pop(), networks.is_empty()) {
        (Some(network), true) => Ok(network),
        _ => Err(no_floating_network()),
    }
}

fn no_floating_network() -> ProviderError {
    let message = format!(
        "no floating network is known: set floating-network-id in [LoadBalancer], or annotate the \
         Service with {}=true",
        options::INTERNAL
    );
    refused("NoFloatingNetwork", message)
}
