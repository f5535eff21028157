//! Which addresses a Service gets. The order: those it asks for; those it has, while they are
//! legal; the pool it asks for; pools that are kept for it; the others.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portico_model::pools::ClaimService;

use super::allocations::Allocations;
use super::desired::{Desired, name};
use super::pools::Pool;
use crate::{Family, ProviderError};

/// What became of a request for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// One of each family, in the order of the families; and addresses that it had and has to give
    /// up.
    Given {
        addresses: Vec<IpAddr>,
        given_up: Vec<(IpAddr, String)>,
    },
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: &'static str,
    pub message: String,
}

impl From<Refusal> for ProviderError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused {
            reason: refusal.reason,
            message: refusal.message,
        }
    }
}

fn refuse<T>(reason: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        reason,
        message: message.into(),
    })
}

impl Allocations {
    /// Choose, and claim what was chosen. What the Service has besides ends: now, or when its
    /// status does not show it any more. A Service that is refused keeps what its status shows.
    pub(super) fn ensure(&mut self, desired: &Desired) -> Outcome {
        let uid = &desired.service.uid;
        let chosen = self.choose(desired);
        let keep: BTreeSet<IpAddr> = match &chosen {
            Ok(addresses) => addresses.iter().copied().collect(),
            Err(_) => desired.current.clone(),
        };
        let mut given_up = Vec::new();
        for address in self.held(uid).difference(&keep) {
            match desired.current.contains(address) {
                true => {
                    given_up.push((
                        *address,
                        self.fault(*address, desired).err().unwrap_or_default(),
                    ));
                    self.leaves(uid, *address);
                }
                false => self.release(uid, *address),
            }
        }
        match chosen {
            Ok(addresses) => {
                addresses
                    .iter()
                    .for_each(|address| self.take(*address, desired));
                self.note_partial(desired, addresses.len());
                Outcome::Given {
                    addresses,
                    given_up,
                }
            }
            Err(refusal) => Outcome::Refused(refusal),
        }
    }

    /// The Service is not to have an address any more.
    pub(super) fn delete(&mut self, uid: &str, current: &BTreeSet<IpAddr>) {
        self.partial.remove(uid);
        for address in self.held(uid) {
            match current.contains(&address) || self.shown_by(address).any(|shown| shown == uid) {
                true => self.leaves(uid, address),
                false => self.release(uid, address),
            }
        }
    }

    fn note_partial(&mut self, desired: &Desired, given: usize) {
        match given < desired.families.len() {
            true => self.partial.insert(desired.service.uid.clone()),
            false => self.partial.remove(&desired.service.uid),
        };
    }

    fn take(&mut self, address: IpAddr, desired: &Desired) {
        let shares = !desired.key.is_empty();
        let service = ClaimService {
            namespace: desired.service.namespace.clone(),
            name: desired.service.name.clone(),
            uid: desired.service.uid.clone(),
            ports: if shares {
                desired.ports.clone()
            } else {
                Vec::new()
            },
            endpoints: if shares {
                desired.endpoints.clone()
            } else {
                String::new()
            },
        };
        self.stays(&desired.service.uid, address);
        if !desired.current.contains(&address) {
            self.make_sure(address);
        }
        self.edit(address, |claim| {
            claim.key.clone_from(&desired.key);
            claim.services.insert(service.uid.clone(), service);
        });
    }

    fn choose(&self, desired: &Desired) -> Result<Vec<IpAddr>, Refusal> {
        if let Err(message) = &desired.explicit {
            return refuse("InvalidAddressRequest", message.clone());
        }
        let mut found: Vec<(Family, IpAddr)> = Vec::new();
        let mut missing = Vec::new();
        for family in desired.families.iter().copied() {
            match desired.explicit_of(family) {
                Some(address) => found.push((family, self.explicit(address, desired)?)),
                None => match self.kept(family, desired) {
                    Some(address) => found.push((family, address)),
                    None => missing.push(family),
                },
            }
        }
        let refusals = self.fresh(&missing, &mut found, desired);
        match refusals.into_iter().next() {
            Some(refusal) if desired.require_all || found.is_empty() => Err(refusal),
            _ => {
                let of = |family: &Family| {
                    found
                        .iter()
                        .find(|(found, _)| found == family)
                        .map(|(_, address)| *address)
                };
                Ok(desired.families.iter().filter_map(of).collect())
            }
        }
    }

    fn explicit(&self, address: IpAddr, desired: &Desired) -> Result<IpAddr, Refusal> {
        let Some(pool) = self.pools.of(address) else {
            let pools = self.names(|_| true);
            let message = format!(
                "{address} is asked for, which is in no AddressPool ({pools}): add it to one, or \
                 ask for another"
            );
            return refuse("AddressNotInPool", message);
        };
        if let Some(wanted) = desired.pool.as_ref().filter(|wanted| **wanted != pool.name) {
            let message = format!(
                "{address} is asked for, which is in pool {}, and also pool {wanted}: ask for one \
                 of them",
                pool.name
            );
            return refuse("InvalidAddressRequest", message);
        }
        if let Err(why) = self.is_permitted(pool, address, desired) {
            return refuse(
                "AddressNotPermitted",
                format!("{address} is asked for, but {why}"),
            );
        }
        match self.joinable(address, desired) {
            Ok(()) => Ok(address),
            Err(why) => refuse("AddressInUse", format!("{address} is asked for, but {why}")),
        }
    }

    /// An address that the Service has already, and may keep.
    fn kept(&self, family: Family, desired: &Desired) -> Option<IpAddr> {
        let held = self.held(&desired.service.uid);
        let shown = held
            .intersection(&desired.current)
            .chain(desired.current.difference(&held));
        let candidates = shown.chain(held.difference(&desired.current));
        candidates
            .copied()
            .filter(|address| Family::of(*address) == family)
            .find(|address| self.fault(*address, desired).is_ok())
    }

    /// Why a Service may not have an address that it has.
    fn fault(&self, address: IpAddr, desired: &Desired) -> Result<(), String> {
        if !desired.families.contains(&Family::of(address)) {
            return Err(format!(
                "the Service is not {} any more",
                name(Family::of(address))
            ));
        }
        if let Some(other) = desired
            .explicit_of(Family::of(address))
            .filter(|other| *other != address)
        {
            return Err(format!("{other} is asked for"));
        }
        let pool = self
            .pools
            .of(address)
            .ok_or("it is in no AddressPool any more")?;
        if let Some(wanted) = desired.pool.as_ref().filter(|wanted| **wanted != pool.name) {
            return Err(format!("pool {wanted} is asked for"));
        }
        self.is_permitted(pool, address, desired)?;
        self.joinable(address, desired)
    }

    fn is_permitted(&self, pool: &Pool, address: IpAddr, desired: &Desired) -> Result<(), String> {
        if !self.permits(pool, desired) {
            return Err(format!(
                "pool {} is not for Services of this namespace, or with these labels",
                pool.name
            ));
        }
        match pool.avoids(address) {
            true => Err(format!(
                "pool {} leaves out addresses that end in .0 and .255 (avoidBuggyIPs)",
                pool.name
            )),
            false => Ok(()),
        }
    }

    fn permits(&self, pool: &Pool, desired: &Desired) -> bool {
        let namespace = &desired.service.namespace;
        pool.permits(namespace, self.namespaces.get(namespace), &desired.labels)
    }

    /// Whether the Service may have an address, by the other Services that have it.
    fn joinable(&self, address: IpAddr, desired: &Desired) -> Result<(), String> {
        let uid = &desired.service.uid;
        let Some(claim) = self.claim(address) else {
            let mut shown = self.shown_by(address).peekable();
            let others =
                shown.peek().is_some() && !self.shown_by(address).any(|shown| shown == uid);
            let other = shown
                .next()
                .filter(|_| others)
                .map(|uid| self.service_of(uid).map(ToString::to_string));
            return match other {
                None => Ok(()),
                Some(other) => Err(format!(
                    "Service {} has it in its status",
                    other.unwrap_or_default()
                )),
            };
        };
        for other in claim.others(uid) {
            let who = format!("{}/{}", other.namespace, other.name);
            if desired.key.is_empty() || claim.key != desired.key {
                return Err(format!(
                    "Service {who} has it: to share it, give both the same annotation \
                     portico.dev/allow-shared-ip"
                ));
            }
            if other.endpoints != desired.endpoints {
                return Err(format!(
                    "Service {who} shares it: under externalTrafficPolicy Local, only Services \
                     with the same policy and selector can"
                ));
            }
            if let Some(port) = desired.ports.iter().find(|port| other.ports.contains(port)) {
                return Err(format!("Service {who} shares it and has {port} already"));
            }
        }
        Ok(())
    }

    /// New addresses for the families that are missing: of one pool if one has all of them. What
    /// could not be found, and why.
    fn fresh(
        &self,
        missing: &[Family],
        found: &mut Vec<(Family, IpAddr)>,
        desired: &Desired,
    ) -> Vec<Refusal> {
        if missing.is_empty() {
            return Vec::new();
        }
        // The pool of an address that it has comes first, also one that gives addresses only on
        // request.
        let beside = found
            .first()
            .and_then(|(_, address)| self.pools.of(*address));
        let mut pools: Vec<&Pool> = beside.into_iter().collect();
        match self.offered(desired) {
            Ok(offered) => pools.extend(offered),
            Err(refusal) if pools.is_empty() => return vec![refusal],
            Err(_) => {}
        }
        let available = |pool: &Pool, family: &Family| self.available(pool, *family, desired);
        let all = pools.iter().find(|pool| {
            missing
                .iter()
                .all(|family| available(pool, family).is_some())
        });
        let mut refusals = Vec::new();
        for family in missing {
            let mut from = all.into_iter().chain(&pools);
            match from.find_map(|pool| available(pool, family)) {
                Some(address) => found.push((*family, address)),
                None => refusals.push(exhausted(&pools, *family)),
            }
        }
        refusals
    }

    /// The pools that may give the Service an address that it did not name.
    fn offered(&self, desired: &Desired) -> Result<Vec<&Pool>, Refusal> {
        if let Some(wanted) = &desired.pool {
            let Some(pool) = self.pools.get(wanted) else {
                let message = format!(
                    "pool {wanted} is asked for, which does not exist: there are {}",
                    self.names(|_| true)
                );
                return refuse("UnknownPool", message);
            };
            if !self.permits(pool, desired) {
                let message = format!(
                    "pool {wanted} is asked for, which is not for Services of this namespace, or \
                     with these labels"
                );
                return refuse("PoolNotPermitted", message);
            }
            return Ok(vec![pool]);
        }
        let pools: Vec<&Pool> = self
            .pools
            .iter()
            .filter(|pool| pool.spec.auto_assign && self.permits(pool, desired))
            .collect();
        if !pools.is_empty() {
            return Ok(pools);
        }
        if self.pools.iter().next().is_none() {
            return refuse(
                "NoAddressPool",
                "there is no AddressPool: create one with the addresses that Services may have",
            );
        }
        let by_name = self.names(|pool| !pool.spec.auto_assign && self.permits(pool, desired));
        let others = self.names(|pool| !self.permits(pool, desired));
        let message = format!(
            "no AddressPool gives addresses to this Service by itself: {by_name} only on request \
             (annotation portico.dev/address-pool), {others} only to other namespaces or labels"
        );
        refuse("NoPermittedPool", message)
    }

    fn available(&self, pool: &Pool, family: Family, desired: &Desired) -> Option<IpAddr> {
        let fits = |address: &IpAddr| {
            Family::of(*address) == family
                && self
                    .pools
                    .of(*address)
                    .is_some_and(|found| found.name == pool.name && !found.avoids(*address))
                && self.joinable(*address, desired).is_ok()
        };
        let shared = if desired.key.is_empty() {
            None
        } else {
            self.sharing(&desired.key).find(fits)
        };
        shared.or_else(|| pool.free(family))
    }

    /// `a, b and 3 more`, or `none`.
    fn names(&self, wanted: impl Fn(&Pool) -> bool) -> String {
        let names: Vec<&str> = self
            .pools
            .iter()
            .filter(|pool| wanted(pool))
            .map(|pool| pool.name.as_str())
            .collect();
        listed(&names)
    }
}

fn listed(names: &[&str]) -> String {
    const MOST: usize = 5;
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST => {
            format!(
                "{} and {} more",
                names.get(..MOST).unwrap_or_default().join(", "),
                count - MOST
            )
        }
        _ => names.join(", "),
    }
}

fn exhausted(pools: &[&Pool], family: Family) -> Refusal {
    let (having, lacking): (Vec<&Pool>, Vec<&Pool>) = pools
        .iter()
        .copied()
        .partition(|pool| pool.has_family(family));
    let names = |pools: &[&Pool]| {
        listed(
            &pools
                .iter()
                .map(|pool| pool.name.as_str())
                .collect::<Vec<_>>(),
        )
    };
    let family_name = name(family);
    if having.is_empty() {
        let message = format!(
            "no AddressPool that the Service may use has {family_name} addresses ({}): add a \
             range of them, or change spec.ipFamilies",
            names(&lacking)
        );
        return Refusal {
            reason: "FamilyMissing",
            message,
        };
    }
    let capacity = having
        .iter()
        .map(|pool| pool.count(family).capacity)
        .fold(0, u128::saturating_add);
    let message = format!(
        "all {capacity} {family_name} addresses that the Service may have are in use (pool {}): \
         add addresses, or delete a Service that has one",
        names(&having)
    );
    Refusal {
        reason: "PoolExhausted",
        message,
    }
}

#[cfg(test)]
mod tests;
