//! Attacks on a real server: what is hostile to it, and what must hold nevertheless. Each is bounded
//! in time and prints its figure.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;
#[path = "hostile/storage.rs"]
mod storage;
