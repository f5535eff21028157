//! What is remembered of a Service between two calls. Pools of all Services have the same instances
//! most of the time, and those are kept once.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use super::config::Place;
use super::plan::Observed;
use super::wanted::InstanceRef;

type Instances = Arc<BTreeSet<InstanceRef>>;

/// What a call left.
#[derive(Clone, Debug)]
pub(super) struct Last {
    /// Its pool without instances.
    observed: Observed,
    instances: Instances,
}

/// The instances of the pool that was kept last.
#[derive(Default)]
pub(super) struct Latest(Mutex<Instances>);

impl Latest {
    pub(super) fn keep(&self, mut observed: Observed) -> Last {
        let links = observed
            .pool
            .as_mut()
            .map(|pool| mem::take(&mut pool.instances))
            .unwrap_or_default();
        let found: BTreeSet<InstanceRef> = links
            .iter()
            .filter_map(|link| InstanceRef::parse(link))
            .collect();
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if **latest != found {
            *latest = Arc::new(found);
        }
        Last {
            observed,
            instances: Arc::clone(&latest),
        }
    }
}

impl Last {
    pub(super) fn recall(mut self, place: &Place) -> Observed {
        if let Some(pool) = &mut self.observed.pool {
            pool.instances = self
                .instances
                .iter()
                .map(|instance| instance.link(place))
                .collect();
        }
        self.observed
    }
}
