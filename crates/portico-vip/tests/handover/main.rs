//! The address moves while many use it, in network namespaces: what is in flight goes on.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod load;
mod masters;
mod moves;
mod silence;
