//! `portico dns`: an authoritative zone made from Services, EndpointSlices and Nodes of any
//! Kubernetes API server.
//!
//! What decides is pure: `facts` reads objects, `index` makes changes of the `zone` from them
//! and from the health of nodes, `portico_model::checks` says what to probe when, [`answer`] and
//! `transfer` turn a question into an answer, `limit` and `tsig` say which clients get one.
//! What acts is thin: `watch`, `probe`, `presence`, `server`, `notify`, `page`, and [`run`], which
//! connects them.

pub mod answer;
pub mod config;
mod facts;
mod index;
mod limit;
mod metrics;
mod notify;
mod page;
mod presence;
mod probe;
mod run;
mod server;
#[cfg(test)]
mod testing;
mod transfer;
mod tsig;
mod watch;
mod zone;

pub use run::{RunError, run};
