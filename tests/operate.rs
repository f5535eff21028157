//! The commands of an operator, on a server and with programs that run.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic and print")]

mod common;
#[path = "operate/rig.rs"]
mod rig;
#[path = "operate/version.rs"]
mod version;
