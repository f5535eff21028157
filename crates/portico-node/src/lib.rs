//! The node daemon: watches the API, keeps the dataplane equal to the table, answers for its health.

pub mod addresses;
mod backoff;
mod client;
pub mod config;
pub mod health;
mod journal;
mod metrics;
mod objects;
pub mod sysctl;
#[cfg(test)]
mod testing;
mod watch;
