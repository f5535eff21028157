//! The node answers for its health: `/healthz`, `/livez` and `/readyz` for the whole node, and one port for
//! each Service whose load balancers want to know whether it has endpoints here.
//!
//! [`state`] decides (pure), [`node`] and [`service`] are the two servers, [`listen`] is what they
//! share.

pub mod listen;
pub(crate) mod node;
pub(crate) mod service;
pub(crate) mod state;
#[cfg(test)]
mod testing;

use jiff::Timestamp;
use portico_model::table::Family;
use state::{Health, Moment, Verdict};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The node's health with the real clock, shared by the tasks that report and those that answer
/// probes.
#[derive(Clone, Debug)]
pub struct Monitor(Arc<Mutex<Health>>);

impl Monitor {
    /// Unhealthy when changes wait for `limit` (kube-proxy: twice the sync period); only for the
    /// families `served`.
    pub fn new(limit: Duration, served: &[Family]) -> Self {
        Self(Arc::new(Mutex::new(Health::new(limit, served, now()))))
    }

    /// A change came in that is not in the kernel yet.
    pub fn queued(&self, family: Family, now: Instant) {
        self.lock().queued(family, now);
    }

    /// Notes that everything that came in is in the kernel.
    pub fn updated(&self, families: &[Family], now: Instant) {
        let (mut health, now) = (
            self.lock(),
            Moment {
                steady: now,
                wall: Timestamp::now(),
            },
        );
        families
            .iter()
            .for_each(|family| health.updated(*family, now));
    }

    /// Says whether load balancers may use this node.
    pub fn set_eligible(&self, eligible: bool) {
        self.lock().set_eligible(eligible);
    }

    /// Whether the node's healthz answers 200 now.
    pub fn healthy(&self) -> bool {
        self.lock().healthy(now())
    }

    fn healthz(&self) -> Verdict {
        self.lock().healthz(now())
    }

    fn livez(&self) -> Verdict {
        self.lock().livez(now())
    }

    fn readyz(&self) -> Verdict {
        self.lock().readyz(now())
    }

    fn lock(&self) -> MutexGuard<'_, Health> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Moment {
    Moment {
        steady: Instant::now(),
        wall: Timestamp::now(),
    }
}
