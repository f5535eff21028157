//! Clients that mean harm, against a real server: nobody brings it down, and nobody gets more than
//! the roles give. Each test fails on a server without the defence that it names.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

mod common;
#[path = "hostile/overload.rs"]
mod overload;
#[path = "hostile/requests.rs"]
mod requests;
#[path = "hostile/rights.rs"]
mod rights;
#[path = "hostile/storage.rs"]
mod storage;

/// Where Services of the namespace `default` are.
const SERVICES: &str = "/api/v1/namespaces/default/services";
