//! The commands of an operator, on a server and with programs that run.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "operate/bench.rs"]
mod bench;
#[path = "operate/cleanup.rs"]
mod cleanup;
mod common;
#[path = "operate/doctor.rs"]
mod doctor;
#[path = "operate/expose.rs"]
mod expose;
#[path = "operate/get.rs"]
mod get;
#[path = "operate/migrate.rs"]
mod migrate;
#[path = "operate/plan.rs"]
mod plan;
#[path = "operate/rig.rs"]
mod rig;
#[path = "operate/top.rs"]
mod top;
#[path = "operate/version.rs"]
mod version;
