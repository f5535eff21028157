//! One block of addresses and its claims: what the API has, and what is decided on. What is claimed
//! in a stored block is somebody's; everything else (a status, an announcement) follows from it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use portico_model::pools::{AddressBlockSpec, AddressClaim, ClaimService};

/// Claims of a block, as of a version of it; without a version there is no such object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub version: Option<String>,
    pub claims: BTreeMap<IpAddr, Claim>,
}

/// Who has an address. Nobody has one that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub key: String,
    /// By uid.
    pub services: BTreeMap<String, ClaimService>,
}

impl Block {
    /// Claims that are none (no address of the block, nobody's) are left out, and gone with the
    /// next write.
    pub fn new(network: IpNet, version: Option<String>, spec: &AddressBlockSpec) -> Self {
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

    pub fn spec(&self, network: IpNet) -> AddressBlockSpec {
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

    /// Of two versions of one object, is `version` the later one? Versions are numbers that grow.
    pub fn is_older_than(&self, version: &str) -> bool {
        match (&self.version, version.parse::<u64>()) {
            (Some(own), Ok(version)) => own.parse::<u64>().is_ok_and(|own| own < version),
            (own, _) => own.as_deref() != Some(version),
        }
    }
}

impl Claim {
    /// Those that have the address besides a Service.
    pub fn others<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a ClaimService> {
        self.services
            .values()
            .filter(move |service| service.uid != uid)
    }
}
