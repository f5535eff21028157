//! The node daemon: watches the API, keeps the dataplane equal to the table, answers for its health.

mod backoff;
mod client;
pub mod config;
mod journal;
mod objects;
mod watch;
