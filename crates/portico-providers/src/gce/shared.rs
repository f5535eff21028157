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
pub struct Pair {
    pub check: Option<HttpHealthCheck>,
    pub firewall: Option<Firewall>,
}

#[derive(Default)]
pub struct Shared {
    /// Whoever is about to use it reads, whoever gives it back writes.
    lock: RwLock<()>,
    /// Whoever reads it from the cloud.
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
    /// Nobody gives it back meanwhile.
    pub async fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read().await
    }

    /// Nobody begins to use it meanwhile.
    pub async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write().await
    }

    /// Nobody else reads it from the cloud meanwhile.
    pub async fn looking(&self) -> AsyncMutexGuard<'_, ()> {
        self.looking.lock().await
    }

    /// As it was seen or made last, if it was.
    pub fn pair(&self) -> Option<Pair> {
        self.known().pair.clone()
    }

    pub fn saw(&self, pair: Pair) {
        self.known().pair = Some(pair);
    }

    pub fn changed(&self, change: impl FnOnce(&mut Pair)) {
        if let Some(pair) = &mut self.known().pair {
            change(pair);
        }
    }

    /// It is looked at before it is used again.
    pub fn forget(&self) {
        self.known().pair = None;
    }

    /// A pool has it.
    pub fn join(&self, balancer: &str) {
        self.known().users.insert(balancer.to_owned());
    }

    /// A pool does not have it any more. Says whether nobody is known who has: then the cloud
    /// knows.
    pub fn leave(&self, balancer: &str) -> bool {
        let mut known = self.known();
        known.users.remove(balancer);
        known.users.is_empty()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
