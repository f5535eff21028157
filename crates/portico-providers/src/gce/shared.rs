//! What Services share: the health check of all with policy `Cluster`, with its firewall. Made with
//! the first that uses it, gone with the last.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{
    Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use super::resources::{Firewall, HttpHealthCheck};

/// As it is in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    pub check: Option<HttpHealthCheck>,
    pub firewall: Option<Firewall>,
}

#[derive(Default)]
pub(super) struct Shared {
    /// Held for reading by a call that is about to use the check, and for writing by one that gives
    /// it back.
    lock: RwLock<()>,
    /// Held by the call that reads it from the cloud.
    looking: AsyncMutex<()>,
    known: Mutex<Known>,
}

/// Could all be read again.
#[derive(Default)]
struct Known {
    pair: Option<Pair>,
    /// Names of balancers whose pools have it. There may be others.
    users: BTreeSet<String>,
}

impl Shared {
    /// Keeps other calls from giving it back.
    pub(super) async fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read().await
    }

    /// Keeps other calls from beginning to use it.
    pub(super) async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write().await
    }

    /// Keeps other calls from reading it from the cloud.
    pub(super) async fn looking(&self) -> AsyncMutexGuard<'_, ()> {
        self.looking.lock().await
    }

    /// The check and its firewall as they were seen or made last.
    pub(super) fn pair(&self) -> Option<Pair> {
        self.known().pair.clone()
    }

    pub(super) fn saw(&self, pair: Pair) {
        self.known().pair = Some(pair);
    }

    pub(super) fn changed(&self, change: impl FnOnce(&mut Pair)) {
        if let Some(pair) = &mut self.known().pair {
            change(pair);
        }
    }

    /// It is looked at before it is used again.
    pub(super) fn forget(&self) {
        self.known().pair = None;
    }

    /// A pool has it.
    pub(super) fn join(&self, balancer: &str) {
        self.known().users.insert(balancer.to_owned());
    }

    /// A pool does not have it any more. Returns whether no pool is known to have it: then the
    /// cloud has to be asked.
    pub(super) fn leave(&self, balancer: &str) -> bool {
        let mut known = self.known();
        known.users.remove(balancer);
        known.users.is_empty()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
