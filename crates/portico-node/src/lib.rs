//! The node daemon: watches the API, keeps the dataplane equal to the table, answers for its
//! health.

pub mod addresses;
pub mod announce;
mod aside;
mod backoff;
mod client;
pub mod config;
mod dataplanes;
mod disturbances;
mod events;
mod first;
mod flows;
pub mod health;
mod journal;
pub mod look;
mod memory;
mod metrics;
mod objects;
mod report;
mod rounds;
mod run;
mod statics;
mod sync;
pub mod sysctl;
#[cfg(test)]
mod testing;
mod watch;

pub use dataplanes::remove_all;
pub use run::{RunError, initialise, run};
