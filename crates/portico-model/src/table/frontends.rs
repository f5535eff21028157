//! The service port that answers on an address and port. Several service ports may claim one;
//! exactly one owns it.

use crate::hash::Map;
use crate::key::ObjectKey;
use crate::table::{Family, Frontend, FrontendKind, PortKey, Protocol};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Where packets go that belong to one frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrontendKey {
    /// The family of the frontend.
    pub family: Family,
    /// `None` for a node port.
    pub address: Option<IpAddr>,
    /// The port that clients connect to.
    pub port: u16,
    /// The protocol of the port.
    pub protocol: Protocol,
}

impl FrontendKey {
    /// The key of a frontend of this service port.
    pub fn of(frontend: &Frontend, key: &PortKey) -> Self {
        Self {
            family: key.family,
            address: frontend.address,
            port: frontend.port,
            protocol: key.protocol,
        }
    }
}

impl fmt::Display for FrontendKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port)?,
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port)?,
            None => write!(f, "node port {}", self.port)?,
        }
        write!(f, "/{}", self.protocol.lower())
    }
}

/// A service port that says a frontend is its own. The least claim is the owner: a cluster IP,
/// which only the API server gives out, before an address that a client can write into an object;
/// then the older Service; then the lesser key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Whether the address can be written into the object, as opposed to a cluster IP.
    pub external: bool,
    /// Orders like the time of creation.
    pub created: u64,
    /// The service port that claims.
    pub key: PortKey,
}

/// One frontend that more than one service port claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The frontend that is claimed.
    pub frontend: FrontendKey,
    /// The service port that has it.
    pub owner: PortKey,
    /// The service port that claims it in vain.
    pub loser: PortKey,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} belongs to {}, so {} is not served there",
            self.frontend, self.owner, self.loser
        )
    }
}

/// Which service port has each frontend, and which others claim it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontendIndex {
    owners: Map<FrontendKey, Claim>,
    /// Claims of frontends that another service port owns: few, if any.
    others: BTreeSet<(FrontendKey, Claim)>,
    /// Addresses of load balancers that make connections of their own (`ipMode: Proxy`): not ours,
    /// kept to say so.
    proxied: BTreeSet<(FrontendKey, Claim)>,
    /// Addresses that no Service may have, kept to say so: none, unless objects are wrong or
    /// hostile.
    refused: BTreeSet<(FrontendKey, Claim)>,
}

/// A frontend that no Service is served on, though one asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The frontend that is asked for.
    pub frontend: FrontendKey,
    /// The service port that asks for it.
    pub key: PortKey,
    /// What the address is; for a node port, why there is none.
    pub reason: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            frontend,
            key,
            reason,
        } = self;
        if frontend.address.is_none() {
            return write!(f, "{frontend} is not served for {key}: {reason}");
        }
        write!(
            f,
            "{frontend} is not served for {key}: it is {reason}, which no Service may have; give \
             the Service another address"
        )
    }
}

/// What an address is that no Service may have: forwarding it would take the node's own traffic, or
/// could not work. kube-apiserver refuses such cluster IPs and external IPs; a load balancer's
/// address and another API server's objects are not checked elsewhere.
pub fn unservable(address: IpAddr) -> Option<&'static str> {
    if address.is_loopback() {
        Some("a loopback address")
    } else if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_multicast() {
        Some("a multicast address")
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("the broadcast address")
    } else {
        None
    }
}

const NO_PARTITION: &str = "there is no PortPartition of the name in its annotation \
                            portico.dev/port-partition, or this node may not read them; create it, \
                            name another, or let the node list and watch portpartitions";

impl FrontendIndex {
    /// The service port that has this frontend.
    pub fn owner(&self, frontend: &FrontendKey) -> Option<&PortKey> {
        self.owners.get(frontend).map(|claim| &claim.key)
    }

    /// The service port whose load balancer has this address for itself.
    pub fn proxied(&self, frontend: &FrontendKey) -> Option<&PortKey> {
        of_frontend(&self.proxied, frontend)
            .next()
            .map(|claim| &claim.key)
    }

    /// The address is some Service's cluster IP; which Service's, by any of its ports. Looks at all
    /// that there are.
    #[expect(clippy::disallowed_methods, reason = "the least of them is taken")]
    pub fn cluster_ip(&self, address: IpAddr) -> Option<&PortKey> {
        let of_address = self
            .owners
            .iter()
            .filter(|(key, claim)| key.address == Some(address) && !claim.external);
        of_address
            .min_by_key(|(key, _)| **key)
            .map(|(_, claim)| &claim.key)
    }

    /// The refusal of this frontend, if a Service asks for it.
    pub fn refusal(&self, frontend: &FrontendKey) -> Option<Refusal> {
        let claim = of_frontend(&self.refused, frontend).next()?;
        Some(refusal(frontend, claim))
    }

    /// In the order of the frontends.
    pub fn refusals(&self) -> impl Iterator<Item = Refusal> + '_ {
        self.refused
            .iter()
            .map(|(frontend, claim)| refusal(frontend, claim))
    }

    /// In the order of the frontends.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let conflict = |(frontend, claim): &(FrontendKey, Claim)| {
            let owner = self.owner(frontend)?.clone();
            Some(Conflict {
                frontend: *frontend,
                owner,
                loser: claim.key.clone(),
            })
        };
        self.others.iter().filter_map(conflict).collect()
    }

    /// Releases and claims at once, so that the next owner of a frontend does not depend on their
    /// order.
    pub(crate) fn exchange(&mut self, released: Claims, claimed: Claims) -> Moved {
        let mut touched: Vec<FrontendKey> = released
            .ours
            .iter()
            .chain(&claimed.ours)
            .map(|(frontend, _)| *frontend)
            .collect();
        touched.sort_unstable();
        touched.dedup();
        let before: Vec<_> = touched
            .into_iter()
            .map(|frontend| (frontend, self.owner(&frontend).cloned()))
            .collect();
        released
            .ours
            .into_iter()
            .for_each(|claim| self.release(claim));
        for claim in &released.proxied {
            self.proxied.remove(claim);
        }
        for claim in &released.refused {
            self.refused.remove(claim);
        }
        claimed
            .ours
            .into_iter()
            .for_each(|(frontend, claim)| self.claim(frontend, claim));
        self.proxied.extend(claimed.proxied);
        let mut moved = Moved::default();
        for (frontend, claim) in claimed.refused {
            moved.services.push(claim.key.service.clone());
            moved.refusals.push(refusal(&frontend, &claim));
            self.refused.insert((frontend, claim));
        }
        for (frontend, before) in before {
            self.compare(frontend, before.as_ref(), &mut moved);
        }
        moved
    }

    fn claim(&mut self, frontend: FrontendKey, claim: Claim) {
        match self.owners.entry(frontend) {
            Entry::Vacant(free) => _ = free.insert(claim),
            Entry::Occupied(mut owner) => {
                let other = if claim < *owner.get() {
                    owner.insert(claim)
                } else {
                    claim
                };
                if other != *owner.get() {
                    self.others.insert((frontend, other));
                }
            }
        }
    }

    fn release(&mut self, claim: (FrontendKey, Claim)) {
        let Entry::Occupied(mut owner) = self.owners.entry(claim.0) else {
            return;
        };
        if *owner.get() != claim.1 {
            self.others.remove(&claim);
            return;
        }
        let next = of_frontend(&self.others, &claim.0).next().cloned();
        match next {
            Some(next) => {
                self.others.remove(&(claim.0, next.clone()));
                owner.insert(next);
            }
            None => _ = owner.remove(),
        }
    }

    fn compare(&self, frontend: FrontendKey, before: Option<&PortKey>, moved: &mut Moved) {
        let owner = self.owner(&frontend);
        if owner != before {
            moved.services.extend(
                before
                    .into_iter()
                    .chain(owner)
                    .map(|key| key.service.clone()),
            );
        }
        if let Some(owner) = owner {
            let losers = of_frontend(&self.others, &frontend).map(|claim| &claim.key);
            let conflict = |loser: &PortKey| Conflict {
                frontend,
                owner: owner.clone(),
                loser: loser.clone(),
            };
            moved.conflicts.extend(losers.map(conflict));
        }
    }
}

/// What service ports want for themselves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub ours: Vec<(FrontendKey, Claim)>,
    /// What their load balancers have.
    pub proxied: Vec<(FrontendKey, Claim)>,
    /// Addresses that they may not have.
    pub refused: Vec<(FrontendKey, Claim)>,
}

impl Claims {
    pub(crate) fn extend(&mut self, more: Self) {
        self.ours.extend(more.ours);
        self.proxied.extend(more.proxied);
        self.refused.extend(more.refused);
    }
}

/// What came of an exchange.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Services that won or lost a frontend, as often as they did.
    pub services: Vec<ObjectKey>,
    /// On the frontends that were touched.
    pub conflicts: Vec<Conflict>,
    /// Frontends that were newly asked for in vain.
    pub refusals: Vec<Refusal>,
}

impl Claim {
    /// A claim of a frontend of this kind, by a Service that was created then.
    pub fn new(kind: FrontendKind, created: u64, key: PortKey) -> Self {
        Self {
            external: kind != FrontendKind::ClusterIp,
            created,
            key,
        }
    }

    /// A claim that is less than every other.
    fn least() -> Self {
        Self {
            external: false,
            created: 0,
            key: PortKey::least(),
        }
    }
}

fn refusal(frontend: &FrontendKey, claim: &Claim) -> Refusal {
    let reason = match frontend.address {
        Some(address) => unservable(address).unwrap_or("an address of this node itself"),
        None => NO_PARTITION,
    };
    Refusal {
        frontend: *frontend,
        key: claim.key.clone(),
        reason,
    }
}

fn of_frontend<'a>(
    claims: &'a BTreeSet<(FrontendKey, Claim)>,
    frontend: &FrontendKey,
) -> impl Iterator<Item = &'a Claim> {
    let wanted = *frontend;
    claims
        .range((wanted, Claim::least())..)
        .take_while(move |(key, _)| *key == wanted)
        .map(|(_, claim)| claim)
}
