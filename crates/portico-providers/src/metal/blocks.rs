//! One block of addresses and its claims: what the API has, and what is decided on. An address
//! belongs to the Service that claims it in a stored block; everything else (a status, an
//! announcement) follows from that.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use portico_model::pools::{AddressBlockSpec, AddressClaim, ClaimService};

/// Claims of a block, as of a version of it; without a version there is no such object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub version: Option<String>,
    pub claims: BTreeMap<IpAddr, Claim>,
}

/// The Service that has an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    pub key: String,
    /// By uid.
    pub services: BTreeMap<String, ClaimService>,
}

impl Block {
    /// Invalid claims (no address of the block, no uid) are left out, and gone with the next write.
    pub(super) fn new(network: IpNet, version: Option<String>, spec: &AddressBlockSpec) -> Self {
        let claims = spec.claims.iter().filter_map(|claim| {
            let address: IpAddr = claim
                .address
                .parse()
                .ok()
                .filter(|address| network.contains(address))?;
            let services = claim
                .services
                .iter()
                .map(|service| (service.uid.clone(), service.clone()));
            Some((
                address,
                Claim {
                    key: claim.sharing_key.clone(),
                    services: services.collect(),
                },
            ))
        });
        Self {
            version,
            claims: claims
                .filter(|(_, claim)| !claim.services.is_empty())
                .collect(),
        }
    }

    pub(super) fn spec(&self, network: IpNet) -> AddressBlockSpec {
        let claims = self.claims.iter().map(|(address, claim)| AddressClaim {
            address: address.to_string(),
            sharing_key: claim.key.clone(),
            services: claim.services.values().cloned().collect(),
        });
        AddressBlockSpec {
            cidr: network.to_string(),
            claims: claims.collect(),
        }
    }

    /// Whether `version` is a later version of the object. Versions are numbers that grow.
    pub(super) fn is_older_than(&self, version: &str) -> bool {
        match (&self.version, version.parse::<u64>()) {
            (Some(own), Ok(version)) => own.parse::<u64>().is_ok_and(|own| own < version),
            (own, _) => own.as_deref() != Some(version),
        }
    }
}

impl Claim {
    /// The other Services that have the address.
    pub(super) fn others<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a ClaimService> {
        self.services
            .values()
            .filter(move |service| service.uid != uid)
    }
}
