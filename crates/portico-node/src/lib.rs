//! The node daemon: watches the API, keeps the dataplane equal to the table, answers for its
//! health.

mod addresses;
mod aligned_timer;
pub mod announce;
mod blocking;
mod client;
pub mod config;
mod dataplanes;
mod disturbances;
mod events;
mod first_services;
mod flows;
pub mod health;
pub mod inspect;
mod journal;
mod memory;
mod metrics;
mod objects;
mod report;
mod run;
mod static_services;
mod sync;
pub mod sysctl;
#[cfg(test)]
mod testing;
mod watch;

pub use dataplanes::remove_all;
pub use run::{RunError, initialise, run};
