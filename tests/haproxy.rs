//! Provider `haproxy` with the HAProxy of Debian: a load by `wrk` while endpoints and Services come
//! and go, what endpoints see of clients, health, and what happens when the controller is killed or
//! is told nonsense.
//!
//! Every test has addresses of its own out of 127.0.0.0/8, so that they all can use the same ports.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "haproxy/changes.rs"]
mod changes;
mod common;
#[path = "haproxy/conformance.rs"]
mod conformance;
#[path = "haproxy/controller.rs"]
mod controller;
#[path = "haproxy/endpoint.rs"]
mod endpoint;
#[path = "haproxy/faults.rs"]
mod faults;
#[path = "haproxy/load.rs"]
mod load;
#[path = "haproxy/options.rs"]
mod options;
#[path = "haproxy/rig.rs"]
mod rig;
