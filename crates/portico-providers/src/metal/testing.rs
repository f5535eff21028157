//! For tests: pools, desires, and an API server that conflicts and fails when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use portico_model::pools::{AddressPoolSpec, LabelSelector};

use super::allocations::Known;
use super::blocks::Block;
use super::desired::Desired;
use super::pools::PoolObject;
use super::store::{Store, StoreError};
use crate::{Family, ServiceRef};

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn pool(
    name: &str,
    addresses: &[&str],
    change: impl FnOnce(&mut AddressPoolSpec),
) -> PoolObject {
    let addresses = addresses.iter().map(|text| (*text).to_owned()).collect();
    let mut spec = AddressPoolSpec {
        addresses,
        ..AddressPoolSpec::default()
    };
    change(&mut spec);
    PoolObject {
        name: name.into(),
        generation: 1,
        created: 0,
        spec,
    }
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

pub(super) fn selector(pairs: &[(&str, &str)]) -> LabelSelector {
    LabelSelector {
        match_labels: labels(pairs),
        ..LabelSelector::default()
    }
}

pub(super) fn service(name: &str) -> ServiceRef {
    ServiceRef {
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
    }
}

/// A Service with port TCP/80 that asks for nothing.
pub(super) fn desired(name: &str) -> Desired {
    Desired {
        service: service(name),
        labels: BTreeMap::new(),
        families: vec![Family::V4],
        require_all: false,
        explicit: Ok(Vec::new()),
        pool: None,
        key: String::new(),
        ports: vec!["TCP/80".into()],
        endpoints: String::new(),
        current: BTreeSet::new(),
    }
}

/// What is stored: blocks with versions, and Services.
#[derive(Debug, Default)]
pub(super) struct World {
    pub blocks: BTreeMap<IpNet, Block>,
    pub services: BTreeMap<(String, String), Known>,
    version: u64,
    pub writes: usize,
    /// What becomes of the next writes; without an entry they succeed.
    pub faults: Vec<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Another writer changes the block first.
    Conflict,
    /// Fails before it is done.
    Before,
    /// Is done, but the answer is lost.
    After,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FakeStore(pub Arc<Mutex<World>>);

impl World {
    pub(super) fn set_service(&mut self, known: &Known) {
        let key = (known.service.namespace.clone(), known.service.name.clone());
        self.services.insert(key, known.clone());
    }

    fn bump(&mut self) -> Option<String> {
        self.version += 1;
        Some(self.version.to_string())
    }

    fn write(&mut self, network: IpNet, block: &Block) -> Result<Option<String>, StoreError> {
        let stored = self
            .blocks
            .get(&network)
            .and_then(|stored| stored.version.clone());
        if stored != block.version {
            return Err(StoreError::Conflict);
        }
        for (address, claim) in &block.claims {
            assert!(network.contains(address), "{address} is not of {network}");
            assert!(!claim.services.is_empty(), "{address} is nobody's");
            assert!(
                claim.services.len() == 1 || !claim.key.is_empty(),
                "{address} is shared without a key"
            );
        }
        self.writes += 1;
        if block.claims.is_empty() {
            self.blocks.remove(&network);
            return Ok(None);
        }
        let version = self.bump();
        self.blocks.insert(
            network,
            Block {
                version: version.clone(),
                claims: block.claims.clone(),
            },
        );
        Ok(version)
    }
}

impl Store for FakeStore {
    async fn read(&self, network: IpNet) -> Result<Option<Block>, StoreError> {
        Ok(self.0.lock().unwrap().blocks.get(&network).cloned())
    }

    async fn write(&self, network: IpNet, block: &Block) -> Result<Option<String>, StoreError> {
        let mut world = self.0.lock().unwrap();
        match world.faults.pop().unwrap_or(Fault::None) {
            Fault::None => world.write(network, block),
            Fault::Conflict => {
                let version = world.bump();
                if let Some(block) = world.blocks.get_mut(&network) {
                    block.version = version;
                }
                Err(StoreError::Conflict)
            }
            Fault::Before => Err(StoreError::Failed("no way there".into())),
            Fault::After => {
                world.write(network, block)?;
                Err(StoreError::Failed("no way back".into()))
            }
        }
    }

    async fn service(&self, service: &ServiceRef) -> Result<Option<Known>, StoreError> {
        let key = (service.namespace.clone(), service.name.clone());
        Ok(self.0.lock().unwrap().services.get(&key).cloned())
    }
}
