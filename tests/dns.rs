//! `portico dns` as its users see it: `dig`, transfers, a real secondary, nodes that are fit or
//! not, an API server that goes away, and whatever strangers send. The cluster is Portico's own API
//! server; nodes are loopback addresses with a healthz each.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "dns/changes.rs"]
mod changes;
mod common;
#[path = "dns/dig.rs"]
mod dig;
#[path = "dns/questions.rs"]
mod questions;
#[path = "dns/rig.rs"]
mod rig;
#[path = "dns/secondary.rs"]
mod secondary;
#[path = "dns/strangers.rs"]
mod strangers;
