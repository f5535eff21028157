//! Carries out what the allocations decide: claims are written before they appear anywhere, all
//! that wait together. After a conflict the block is read again and everything is decided again,
//! which gives the same where nothing changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures_util::{StreamExt, stream};
use ipnet::IpNet;
use portico_model::pools::block_of;
use tracing::{debug, warn};

use super::allocations::Allocations;
use super::blocks::Block;
use super::choose::Outcome;
use super::desired::Desired;
use super::store::{Store, StoreError};
use crate::{Family, ProviderError, ServiceRef};

/// How often a batch is decided again after a conflict.
const ROUNDS: usize = 16;
/// Requests under way at a time.
const AT_ONCE: usize = 16;

/// What the provider is asked.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Ensure(Box<Desired>),
    Delete {
        uid: String,
        current: BTreeSet<IpAddr>,
    },
    Describe {
        uid: String,
        families: Vec<Family>,
    },
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub addresses: Vec<IpAddr>,
    /// What the Service had and has to give up, and why.
    pub given_up: Vec<(IpAddr, String)>,
}

#[derive(Debug)]
pub(super) struct Allocator<S> {
    pub allocations: Allocations,
    pub(super) store: S,
    /// Blocks of which it is not known what the API has.
    unknown: BTreeSet<IpNet>,
}

impl<S: Store> Allocator<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            allocations: Allocations::default(),
            store,
            unknown: BTreeSet::new(),
        }
    }

    /// Answers each of the calls; without calls, does what is due otherwise. Everything is written
    /// when this returns, except what failed.
    pub(super) async fn work(&mut self, asks: &[Ask]) -> Vec<Result<Addresses, ProviderError>> {
        let mut trouble = String::new();
        let mut outcomes = Vec::new();
        for _ in 0..ROUNDS {
            if let Err(error) = self.read_unknown().await {
                trouble = error;
                break;
            }
            self.settle_suspects().await;
            outcomes = asks.iter().map(|ask| self.decide(ask)).collect();
            match self.write().await {
                Ok(true) => {
                    trouble.clear();
                    break;
                }
                Ok(false) => "other controllers change the same addresses all the time"
                    .clone_into(&mut trouble),
                Err(error) => {
                    trouble = error;
                    break;
                }
            }
        }
        if !trouble.is_empty() {
            warn!(%trouble, "claims could not be written");
        }
        let failed = || ProviderError::Failed(format!("cannot write AddressBlocks: {trouble}"));
        outcomes.resize(asks.len(), None);
        let answer = |(ask, outcome): (&Ask, Option<Outcome>)| match outcome {
            Some(Outcome::Given {
                addresses,
                given_up,
            }) if trouble.is_empty() || self.is_done(ask, &addresses) => Ok(Addresses {
                addresses,
                given_up,
            }),
            Some(Outcome::Refused(refusal)) if trouble.is_empty() => Err(refusal.into()),
            _ => Err(failed()),
        };
        asks.iter().zip(outcomes).map(answer).collect()
    }

    fn decide(&mut self, ask: &Ask) -> Option<Outcome> {
        let given = |addresses| {
            Some(Outcome::Given {
                addresses,
                given_up: Vec::new(),
            })
        };
        match ask {
            Ask::Ensure(desired) => Some(self.allocations.ensure(desired)),
            Ask::Delete { uid, current } => {
                self.allocations.delete(uid, current);
                given(Vec::new())
            }
            Ask::Describe { uid, families } => {
                let mut addresses: Vec<IpAddr> =
                    self.allocations.staying(uid).into_iter().collect();
                addresses.sort_by_key(|address| {
                    families
                        .iter()
                        .position(|family| *family == Family::of(*address))
                });
                given(addresses)
            }
        }
    }

    /// Is what was decided also written, although something else was not?
    fn is_done(&self, ask: &Ask, addresses: &[IpAddr]) -> bool {
        match ask {
            Ask::Ensure(desired) => {
                let held = self.allocations.held(&desired.service.uid);
                addresses.iter().all(|address| {
                    held.contains(address) && !self.unknown.contains(&block_of(*address))
                })
            }
            Ask::Delete { .. } => false,
            Ask::Describe { .. } => true,
        }
    }

    /// Whether no work is left beside the calls.
    pub(super) fn is_idle(&mut self) -> bool {
        let suspects = self.allocations.take_suspects();
        let idle = suspects.is_empty() && self.unknown.is_empty() && !self.allocations.is_dirty();
        self.allocations.still_suspect(suspects);
        idle
    }

    async fn read_unknown(&mut self) -> Result<(), String> {
        for network in self.unknown.clone() {
            let block = self
                .store
                .read(network)
                .await
                .map_err(|error| error.to_string())?;
            self.unknown.remove(&network);
            self.take_in(network, block);
        }
        Ok(())
    }

    /// What the API has of a block that was to be written. One that is gone was deleted by another
    /// program, with or without the claims that are known here: they are written again, since no
    /// other Service can have claimed the addresses meanwhile.
    fn take_in(&mut self, network: IpNet, block: Option<Block>) {
        match block {
            Some(block) => self.allocations.replace_block(network, block),
            None => self.allocations.lose_block(network),
        }
    }

    async fn settle_suspects(&mut self) {
        let suspects = self.allocations.take_suspects();
        let store = &self.store;
        let truths = stream::iter(suspects)
            .map(|service| async move {
                let truth = store.service(&service).await;
                (service, truth)
            })
            .buffer_unordered(AT_ONCE);
        let truths: Vec<(ServiceRef, _)> = truths.collect().await;
        for (service, truth) in truths {
            match truth {
                Ok(truth) => self.allocations.settle(&service.uid, truth),
                Err(StoreError::Conflict) => self.allocations.settle(&service.uid, None),
                Err(StoreError::Failed(error)) => {
                    debug!(%service, error, "cannot ask for a Service that has an address");
                    self.allocations.still_suspect([service]);
                }
            }
        }
    }

    /// Whether everything is written; `false` means that it has to be decided again.
    async fn write(&mut self) -> Result<bool, String> {
        let dirty = self.allocations.take_dirty();
        let written: Vec<(IpNet, Result<Option<String>, StoreError>)> = {
            let (store, allocations) = (&self.store, &self.allocations);
            let nothing = Block::default();
            let writes = dirty.keys().map(|network| {
                let block = allocations.block(*network).unwrap_or(&nothing);
                async move { (*network, store.write(*network, block).await) }
            });
            stream::iter(writes.collect::<Vec<_>>())
                .buffer_unordered(AT_ONCE)
                .collect()
                .await
        };
        let mut failed: BTreeMap<IpNet, Option<String>> = BTreeMap::new();
        for (network, result) in written {
            match result {
                Ok(version) => self.allocations.written(network, version),
                Err(StoreError::Conflict) => drop(failed.insert(network, None)),
                Err(StoreError::Failed(error)) => drop(failed.insert(network, Some(error))),
            }
        }
        for network in failed.keys() {
            // As it was, until it is read again.
            self.allocations
                .replace_block(*network, dirty.get(network).cloned().unwrap_or_default());
            self.unknown.insert(*network);
        }
        match failed.into_values().flatten().next() {
            Some(error) => Err(error),
            None => Ok(self.unknown.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests;
