//! What HAProxy is to do: every Service with its addresses, ports and servers. No Service gets an
//! address and port that another has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use portico_model::hash;
use serde::{Deserialize, Serialize};

use super::desired::{Desired, Options, Ports, refused};
use super::settings::{Address, Settings};
use crate::{Balancer, Family, Ingress, IpMode, ProviderError};

/// A Service in HAProxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Site {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Where it listens.
    pub addresses: Vec<IpAddr>,
    pub options: Options,
    pub ports: Ports,
}

impl Site {
    /// The name of the section of a port. Names of Kubernetes have no underscore.
    pub(super) fn section(&self, port: u16) -> String {
        format!(
            "{SECTION}{}_{}_{port}_{:08x}",
            self.namespace,
            self.name,
            hash::stable(self.uid.as_bytes()) as u32
        )
    }

    /// Whether only servers are different, if anything, so that no reload is needed.
    pub(super) fn has_structure_of(&self, other: &Self) -> bool {
        self.addresses == other.addresses
            && self.options == other.options
            && self.ports.keys().eq(other.ports.keys())
    }

    pub(super) fn binds(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.ports.keys().flat_map(|port| {
            self.addresses
                .iter()
                .map(|address| SocketAddr::new(*address, *port))
        })
    }

    /// What clients are told. A header in front of what they say makes a short cut past HAProxy
    /// impossible.
    pub(super) fn balancer(&self, settings: &Settings) -> Balancer {
        let mode = if self.options.proxy.is_some() {
            IpMode::Proxy
        } else {
            settings.ip_mode
        };
        let published = |bind: &IpAddr| {
            settings
                .addresses
                .iter()
                .find(|address| address.bind == *bind)
        };
        let ingress = |address: &Address| Ingress {
            host: address.publish.clone(),
            mode,
        };
        Balancer {
            ingress: self
                .addresses
                .iter()
                .filter_map(published)
                .map(ingress)
                .collect(),
            pending: None,
        }
    }
}

/// All sections of Portico begin with it.
pub(super) const SECTION: &str = "portico_";

/// Services by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Table {
    pub sites: BTreeMap<String, Site>,
}

impl Table {
    /// The Service is there as it desires to be.
    pub(super) fn ensure(
        &mut self,
        desired: Desired,
        settings: &Settings,
    ) -> Result<(), ProviderError> {
        let addresses = self.choose(&desired, settings)?;
        let Desired {
            namespace,
            name,
            uid,
            options,
            ports,
            ..
        } = desired;
        self.sites.insert(
            uid.clone(),
            Site {
                namespace,
                name,
                uid,
                addresses,
                options,
                ports,
            },
        );
        Ok(())
    }

    pub(super) fn binds(&self) -> BTreeSet<SocketAddr> {
        self.sites.values().flat_map(|site| site.binds()).collect()
    }

    fn choose(&self, desired: &Desired, settings: &Settings) -> Result<Vec<IpAddr>, ProviderError> {
        let mut chosen = Vec::new();
        for address in &desired.explicit {
            if !settings.addresses.iter().any(|ours| ours.is(*address)) {
                return Err(refused(
                    "AddressUnknown",
                    format!("{address} is not among the addresses of HAProxy"),
                ));
            }
        }
        for family in &desired.families {
            let ours: Vec<&Address> = settings
                .addresses
                .iter()
                .filter(|ours| ours.family() == *family)
                .collect();
            let asked = |ours: &&&Address| desired.explicit.iter().any(|address| ours.is(*address));
            let explicit: Vec<&Address> = ours.iter().filter(asked).copied().collect();
            match (ours.is_empty(), explicit.is_empty()) {
                // Where addresses are asked for, another family is not wanted unless both are
                // needed.
                (false, true) if !desired.explicit.is_empty() && !desired.require_all => {}
                (false, true) => chosen.push(self.choose_one(desired, ours)?),
                (false, false) => chosen.push(self.choose_one(desired, explicit)?),
                (true, _) if desired.require_all => return Err(no_address(*family)),
                (true, _) => {}
            }
        }
        desired
            .families
            .first()
            .filter(|_| chosen.is_empty())
            .map_or(Ok(chosen), |family| Err(no_address(*family)))
    }

    /// The first on which all ports are free; rather one that it has already.
    fn choose_one(
        &self,
        desired: &Desired,
        mut candidates: Vec<&Address>,
    ) -> Result<IpAddr, ProviderError> {
        let has = self
            .sites
            .get(&desired.uid)
            .map(|site| site.addresses.as_slice())
            .unwrap_or_default();
        let told = |address: &Address| desired.current.iter().any(|current| address.is(*current));
        candidates.sort_by_key(|address| (!has.contains(&address.bind), !told(address)));
        let mut taken = Vec::new();
        for candidate in candidates {
            match self.taken(desired, candidate.bind) {
                Some(by) => taken.push(by),
                None => return Ok(candidate.bind),
            }
        }
        Err(refused("PortTaken", taken.join("; ")))
    }

    fn taken(&self, desired: &Desired, address: IpAddr) -> Option<String> {
        let others = self
            .sites
            .values()
            .filter(|site| site.uid != desired.uid && site.addresses.contains(&address));
        let mut both = others.filter_map(|site| {
            Some((
                site,
                desired
                    .ports
                    .keys()
                    .find(|port| site.ports.contains_key(port))?,
            ))
        });
        both.next().map(|(site, port)| {
            format!(
                "port {port} of {address} is that of {}/{}",
                site.namespace, site.name
            )
        })
    }
}

fn no_address(family: Family) -> ProviderError {
    let family = if family == Family::V4 { "IPv4" } else { "IPv6" };
    refused(
        "NoAddress",
        format!("HAProxy has no {family} address: add one to addresses in the cloud configuration"),
    )
}

#[cfg(test)]
mod tests;
