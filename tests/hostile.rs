//! Attacks on a real server: what a hostile client, a crowd of them or a failing disk does must cost
//! nobody else more than a little.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;
#[path = "hostile/overload.rs"]
mod overload;
