//! Everything that is known, in one place: pools, blocks with their claims, Services with what
//! their status says; and what follows from it. Nothing here touches the API: changes to blocks are
//! kept with what was before, until they are written or undone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::net::IpAddr;

use ipnet::IpNet;
use portico_model::pools::{ClaimService, block_of};

use super::blocks::{Block, Claim};
use super::pools::{PoolObject, Pools};
use crate::ServiceRef;

pub(super) type Labels = BTreeMap<String, String>;

/// What the API says of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub service: ServiceRef,
    /// Whether its type is LoadBalancer, or was and it is not cleaned up yet.
    pub balanced: bool,
    /// The addresses in its status.
    pub addresses: BTreeSet<IpAddr>,
}

#[derive(Debug, Default)]
pub(super) struct Allocations {
    objects: BTreeMap<String, PoolObject>,
    pub(super) pools: Pools,
    pub(super) namespaces: BTreeMap<String, Labels>,
    blocks: BTreeMap<IpNet, Block>,
    /// Blocks that were changed and not written yet, as they were.
    undo: BTreeMap<IpNet, Block>,
    /// Those of them that are written even if nothing changed, to make sure that what is known of
    /// them still holds.
    unsure: BTreeSet<IpNet>,
    /// The claims of each uid, and of each sharing key.
    held: HashMap<String, BTreeSet<IpAddr>>,
    shared: BTreeMap<String, BTreeSet<IpAddr>>,
    known: HashMap<String, Known>,
    /// Addresses in statuses, and the uids of the Services that have them there: no other gets
    /// them.
    statuses: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Claims that end as soon as the status does not have the address any more.
    leaving: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Uids with claims whose Service may be gone.
    suspects: BTreeMap<String, ServiceRef>,
    /// Services that have fewer families than they would like.
    pub(super) partial: BTreeSet<String>,
    freed: bool,
    changed: bool,
}

impl Allocations {
    pub(super) fn apply_pool(&mut self, pool: PoolObject) {
        let old = self.objects.insert(pool.name.clone(), pool.clone());
        if old.as_ref() != Some(&pool) {
            self.pools_changed();
        }
    }

    pub(super) fn remove_pool(&mut self, name: &str) {
        if self.objects.remove(name).is_some() {
            self.pools_changed();
        }
    }

    pub(super) fn pool_names(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    fn pools_changed(&mut self) {
        let claimed = self.blocks.values().flat_map(|block| block.claims.keys());
        let taken: BTreeSet<IpAddr> = claimed.chain(self.statuses.keys()).copied().collect();
        self.pools = Pools::new(&self.objects, taken.into_iter());
        self.changed = true;
    }

    pub(super) fn apply_namespace(&mut self, name: &str, labels: Labels) {
        if self
            .namespaces
            .insert(name.to_owned(), labels.clone())
            .is_none_or(|old| old != labels)
        {
            self.changed |= self
                .pools
                .iter()
                .any(|pool| pool.spec.namespace_selector.is_some());
        }
    }

    pub(super) fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    pub(super) fn namespace_names(&self) -> Vec<String> {
        self.namespaces.keys().cloned().collect()
    }

    pub(super) fn service_seen(&mut self, known: Known) {
        let uid = known.service.uid.clone();
        if !known.balanced && !self.held.contains_key(&uid) {
            self.set_status(&uid, BTreeSet::new());
            self.known.remove(&uid);
            return;
        }
        self.set_status(&uid, known.addresses.clone());
        let service = known.service.clone();
        self.known.insert(uid.clone(), known);
        if self.is_suspect(&uid) {
            self.suspects.insert(uid, service);
        }
    }

    pub(super) fn service_gone(&mut self, uid: &str) {
        self.set_status(uid, BTreeSet::new());
        self.known.remove(uid);
        self.partial.remove(uid);
        self.release_all(uid);
    }

    pub(super) fn known_services(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }

    fn set_status(&mut self, uid: &str, addresses: BTreeSet<IpAddr>) {
        let old = self
            .known
            .get(uid)
            .map(|known| known.addresses.clone())
            .unwrap_or_default();
        for address in old.difference(&addresses) {
            self.mark(*address, |allocations| {
                if let Some(uids) = allocations.statuses.get_mut(address) {
                    uids.remove(uid);
                    if uids.is_empty() {
                        allocations.statuses.remove(address);
                    }
                }
            });
        }
        for address in addresses.difference(&old) {
            self.mark(*address, |allocations| {
                allocations
                    .statuses
                    .entry(*address)
                    .or_default()
                    .insert(uid.to_owned());
            });
        }
    }

    /// Services with claims that may be gone: to be looked up in the API, whose answer goes to
    /// [`Allocations::settle`].
    pub(super) fn take_suspects(&mut self) -> Vec<ServiceRef> {
        let suspects = mem::take(&mut self.suspects);
        suspects
            .into_iter()
            .filter(|(uid, _)| self.is_suspect(uid))
            .map(|(_, service)| service)
            .collect()
    }

    fn is_suspect(&self, uid: &str) -> bool {
        let leaves = |known: &Known| {
            self.leaving.get(uid).is_some_and(|leaving| {
                leaving
                    .iter()
                    .any(|address| !known.addresses.contains(address))
            })
        };
        self.held.contains_key(uid)
            && self
                .known
                .get(uid)
                .is_none_or(|known| !known.balanced || leaves(known))
    }

    /// The API could not be asked about them.
    pub(super) fn still_suspect(&mut self, services: impl IntoIterator<Item = ServiceRef>) {
        self.suspects.extend(
            services
                .into_iter()
                .map(|service| (service.uid.clone(), service)),
        );
    }

    /// What the API says at this moment of a Service that was suspected; another uid is another
    /// Service.
    pub(super) fn settle(&mut self, uid: &str, truth: Option<Known>) {
        let Some(truth) = truth.filter(|truth| truth.service.uid == uid) else {
            return self.service_gone(uid);
        };
        let leaving = self.leaving.get(uid).cloned().unwrap_or_default();
        for address in self.held(uid) {
            let over = leaving.contains(&address) || !truth.balanced;
            if over && !truth.addresses.contains(&address) {
                self.release(uid, address);
            }
        }
        self.service_seen(truth);
        self.suspects.remove(uid);
    }

    /// A block as the API has it.
    pub(super) fn replace_block(&mut self, network: IpNet, block: Block) {
        self.undo.remove(&network);
        let before = self
            .blocks
            .insert(network, block.clone())
            .unwrap_or_default();
        let addresses: BTreeSet<IpAddr> = before
            .claims
            .keys()
            .chain(block.claims.keys())
            .copied()
            .collect();
        for address in addresses {
            self.reindex(
                address,
                before.claims.get(&address),
                block.claims.get(&address),
            );
        }
        for service in block
            .claims
            .values()
            .flat_map(|claim| claim.services.values())
        {
            self.suspects.insert(service.uid.clone(), named(service));
        }
        if block == Block::default() {
            self.blocks.remove(&network);
        } else if block.claims.is_empty() {
            // A process emptied it and ended before it deleted it.
            self.undo.insert(network, block);
            self.unsure.insert(network);
        }
    }

    /// A block is not there any more. What was claimed stays so, and is written again.
    pub(super) fn lose_block(&mut self, network: IpNet) {
        let Some(block) = self.blocks.get_mut(&network) else {
            return;
        };
        block.version = None;
        for service in block
            .claims
            .values()
            .flat_map(|claim| claim.services.values())
        {
            self.suspects.insert(service.uid.clone(), named(service));
        }
        if block.claims.is_empty() {
            self.blocks.remove(&network);
            self.undo.remove(&network);
        } else {
            self.undo.insert(network, Block::default());
        }
    }

    pub(super) fn block(&self, network: IpNet) -> Option<&Block> {
        self.blocks.get(&network)
    }

    pub(super) fn networks(&self) -> Vec<IpNet> {
        self.blocks.keys().copied().collect()
    }

    /// Whether an address waits for its last status to stop showing it.
    pub(super) fn some_leave(&self) -> bool {
        !self.leaving.is_empty()
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.undo.is_empty()
    }

    /// Blocks that have to be written, each with what it was.
    pub(super) fn take_dirty(&mut self) -> BTreeMap<IpNet, Block> {
        let mut dirty = mem::take(&mut self.undo);
        let unsure = mem::take(&mut self.unsure);
        dirty.retain(|network, before| {
            let claims = self.blocks.get(network).map(|block| &block.claims);
            claims != Some(&before.claims) || unsure.contains(network)
        });
        self.blocks
            .retain(|network, block| *block != Block::default() || dirty.contains_key(network));
        dirty
    }

    pub(super) fn written(&mut self, network: IpNet, version: Option<String>) {
        match (version, self.blocks.get_mut(&network)) {
            (Some(version), Some(block)) => block.version = Some(version),
            (None, _) => drop(self.blocks.remove(&network)),
            (_, None) => {}
        }
    }

    /// Whether something became free, and whether there is something else to give, since the last
    /// call.
    pub(super) fn take_news(&mut self) -> (bool, bool) {
        let freed = mem::take(&mut self.freed);
        // A Service that would like one more family is not known as refused.
        let changed = mem::take(&mut self.changed) || (freed && !self.partial.is_empty());
        (freed, changed)
    }

    pub(super) fn claim(&self, address: IpAddr) -> Option<&Claim> {
        self.blocks.get(&block_of(address))?.claims.get(&address)
    }

    pub(super) fn held(&self, uid: &str) -> BTreeSet<IpAddr> {
        self.held.get(uid).cloned().unwrap_or_default()
    }

    /// Claims that are not about to end.
    pub(super) fn staying(&self, uid: &str) -> BTreeSet<IpAddr> {
        let leaving = self.leaving.get(uid).cloned().unwrap_or_default();
        self.held(uid).difference(&leaving).copied().collect()
    }

    pub(super) fn sharing(&self, key: &str) -> impl Iterator<Item = IpAddr> {
        self.shared.get(key).into_iter().flatten().copied()
    }

    /// Uids that have an address in their status.
    pub(super) fn shown_by(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        self.statuses
            .get(&address)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    pub(super) fn service_of(&self, uid: &str) -> Option<&ServiceRef> {
        self.known.get(uid).map(|known| &known.service)
    }

    pub(super) fn release_all(&mut self, uid: &str) {
        for address in self.held(uid) {
            self.release(uid, address);
        }
    }

    pub(super) fn release(&mut self, uid: &str, address: IpAddr) {
        self.edit(address, |claim| drop(claim.services.remove(uid)));
        self.stays(uid, address);
    }

    pub(super) fn leaves(&mut self, uid: &str, address: IpAddr) {
        self.leaving
            .entry(uid.to_owned())
            .or_default()
            .insert(address);
        if let Some(service) = self
            .claim(address)
            .and_then(|claim| claim.services.get(uid))
            .map(named)
        {
            self.suspects.insert(uid.to_owned(), service);
        }
    }

    pub(super) fn stays(&mut self, uid: &str, address: IpAddr) {
        if let Some(leaving) = self.leaving.get_mut(uid) {
            leaving.remove(&address);
            if leaving.is_empty() {
                self.leaving.remove(uid);
            }
        }
    }

    /// The way to change a claim: what it was is kept, and the indexes follow.
    pub(super) fn edit(&mut self, address: IpAddr, change: impl FnOnce(&mut Claim)) {
        let network = block_of(address);
        let block = self.blocks.entry(network).or_default();
        let before = block.claims.get(&address).cloned();
        let mut after = before.clone().unwrap_or_default();
        change(&mut after);
        let after = Some(after).filter(|claim| !claim.services.is_empty());
        if before != after {
            self.undo.entry(network).or_insert_with(|| block.clone());
            match after.clone() {
                Some(claim) => drop(block.claims.insert(address, claim)),
                None => drop(block.claims.remove(&address)),
            }
            self.reindex(address, before.as_ref(), after.as_ref());
        }
        if self.blocks.get(&network) == Some(&Block::default()) && !self.undo.contains_key(&network)
        {
            self.blocks.remove(&network);
        }
    }

    /// Marks the block of an address as unsure: nothing may be concluded from its claims before it
    /// was written once more, since another controller may have ended them.
    pub(super) fn make_sure(&mut self, address: IpAddr) {
        let network = block_of(address);
        if let Some(block) = self.blocks.get(&network) {
            self.undo.entry(network).or_insert_with(|| block.clone());
            self.unsure.insert(network);
        }
    }

    fn reindex(&mut self, address: IpAddr, before: Option<&Claim>, after: Option<&Claim>) {
        for uid in before.into_iter().flat_map(|claim| claim.services.keys()) {
            remove(&mut self.held, uid, address);
        }
        for uid in after.into_iter().flat_map(|claim| claim.services.keys()) {
            self.held.entry(uid.clone()).or_default().insert(address);
        }
        if let Some(addresses) = before.and_then(|claim| self.shared.get_mut(&claim.key)) {
            addresses.remove(&address);
        }
        if let Some(claim) = after.filter(|claim| !claim.key.is_empty()) {
            self.shared
                .entry(claim.key.clone())
                .or_default()
                .insert(address);
        }
        if let Some(claim) =
            before.filter(|claim| self.shared.get(&claim.key).is_some_and(BTreeSet::is_empty))
        {
            self.shared.remove(&claim.key);
        }
        let shown = self.statuses.contains_key(&address);
        self.taken_changed(address, before.is_some() || shown, after.is_some() || shown);
    }

    /// Change something that decides whether an address is free.
    fn mark(&mut self, address: IpAddr, change: impl FnOnce(&mut Self)) {
        let is_taken = |allocations: &Self| {
            allocations.claim(address).is_some() || allocations.statuses.contains_key(&address)
        };
        let before = is_taken(self);
        change(self);
        self.taken_changed(address, before, is_taken(self));
    }

    fn taken_changed(&mut self, address: IpAddr, before: bool, after: bool) {
        match (before, after) {
            (false, true) => self.pools.take(address),
            (true, false) => {
                self.pools.give_back(address);
                self.freed = true;
            }
            _ => {}
        }
    }
}

fn named(service: &ClaimService) -> ServiceRef {
    let ClaimService {
        namespace,
        name,
        uid,
        ..
    } = service.clone();
    ServiceRef {
        namespace,
        name,
        uid,
    }
}

fn remove(index: &mut HashMap<String, BTreeSet<IpAddr>>, uid: &str, address: IpAddr) {
    if let Some(addresses) = index.get_mut(uid) {
        addresses.remove(&address);
        if addresses.is_empty() {
            index.remove(uid);
        }
    }
}
