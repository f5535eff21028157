//! What a Service asks of the pools, in whichever words: Portico's own, or those of the programs
//! people come from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::{Family, Host, Request, ServiceRef};

const ADDRESSES: &[&str] = &[
    "portico.dev/addresses",
    "metallb.io/loadBalancerIPs",
    "metallb.universe.tf/loadBalancerIPs",
    "kube-vip.io/loadbalancerIPs",
];
const POOL: &[&str] = &[
    "portico.dev/address-pool",
    "metallb.io/address-pool",
    "metallb.universe.tf/address-pool",
];
const SHARING: &[&str] = &[
    "portico.dev/allow-shared-ip",
    "metallb.io/allow-shared-ip",
    "metallb.universe.tf/allow-shared-ip",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    pub service: ServiceRef,
    pub labels: BTreeMap<String, String>,
    /// In the order in which they stand in the status.
    pub families: Vec<Family>,
    pub require_all: bool,
    /// Addresses that were asked for, at most one of a family; or what is wrong with them.
    pub explicit: Result<Vec<IpAddr>, String>,
    pub pool: Option<String>,
    /// What it shares its address by; without a key it does not.
    pub key: String,
    /// `TCP/80`, sorted.
    pub ports: Vec<String>,
    /// Under `externalTrafficPolicy: Local`, the selector of the endpoints.
    pub endpoints: String,
    /// What the status says.
    pub current: BTreeSet<IpAddr>,
}

impl Desired {
    pub(super) fn new(request: &Request) -> Self {
        let annotation = |names: &[&str]| {
            let values = names
                .iter()
                .filter_map(|name| request.annotations.get(*name));
            values
                .map(|value| value.trim())
                .find(|value| !value.is_empty())
        };
        let families = if request.families.is_empty() {
            vec![Family::V4]
        } else {
            request.families.clone()
        };
        let ports: BTreeSet<String> = request
            .ports
            .iter()
            .map(|port| format!("{}/{}", port.protocol, port.port))
            .collect();
        let endpoints = match request.local {
            true => {
                let pairs: Vec<String> = request
                    .selector
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                format!("local:{}", pairs.join(","))
            }
            false => String::new(),
        };
        Self {
            service: request.service.clone(),
            labels: request.labels.clone(),
            explicit: explicit(
                annotation(ADDRESSES),
                request.requested_ip.as_deref(),
                &families,
            ),
            families,
            require_all: request.require_all_families,
            pool: annotation(POOL).map(str::to_owned),
            key: annotation(SHARING).unwrap_or_default().to_owned(),
            ports: ports.into_iter().collect(),
            endpoints,
            current: current(request),
        }
    }

    /// The address that was asked for in this family.
    pub(super) fn explicit_of(&self, family: Family) -> Option<IpAddr> {
        self.explicit
            .as_ref()
            .ok()?
            .iter()
            .copied()
            .find(|address| Family::of(*address) == family)
    }
}

pub(super) fn current(request: &Request) -> BTreeSet<IpAddr> {
    let ips = request
        .ingress
        .iter()
        .filter_map(|ingress| match ingress.host {
            Host::Ip(ip) => Some(ip),
            Host::Name(_) => None,
        });
    ips.collect()
}

fn explicit(
    annotation: Option<&str>,
    field: Option<&str>,
    families: &[Family],
) -> Result<Vec<IpAddr>, String> {
    let field = field.map(str::trim).filter(|field| !field.is_empty());
    let named = annotation.map(parse).transpose()?;
    let addresses = match (named, field.map(parse).transpose()?) {
        (Some(named), Some(field)) if !field.iter().all(|address| named.contains(address)) => {
            let message = "spec.loadBalancerIP and the annotation ask for different addresses: remove \
                           one of them";
            return Err(message.to_owned());
        }
        (Some(named), _) => named,
        (None, field) => field.unwrap_or_default(),
    };
    for (index, address) in addresses.iter().enumerate() {
        let family = Family::of(*address);
        if address.is_unspecified() {
            return Err(format!(
                "{address} is no address to ask for (DHCP is not offered): name one of a pool, or \
                 none"
            ));
        }
        if addresses
            .iter()
            .take(index)
            .any(|other| Family::of(*other) == family)
        {
            return Err(format!(
                "more than one {} address is asked for: name one of each family",
                name(family)
            ));
        }
        if !families.contains(&family) {
            let has: Vec<&str> = families.iter().map(|family| name(*family)).collect();
            let has = has.join(" and ");
            return Err(format!(
                "{address} is asked for, but the Service is {has} only: see spec.ipFamilies"
            ));
        }
    }
    Ok(addresses)
}

fn parse(text: &str) -> Result<Vec<IpAddr>, String> {
    let items = text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    items
        .map(|item| {
            item.parse()
                .map_err(|_| format!("{item:?} is asked for, which is no IP address"))
        })
        .collect()
}

pub(super) fn name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
