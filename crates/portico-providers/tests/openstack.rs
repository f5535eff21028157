//! Provider `openstack` against the real Keystone, Neutron and Octavia, and, where every call goes
//! wrong in every way, against one in memory that behaves as they were seen to.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "openstack/cloud.rs"]
mod cloud;
#[path = "openstack/double.rs"]
mod double;
#[path = "openstack/memory.rs"]
mod memory;
#[path = "openstack/raw.rs"]
mod raw;
#[path = "openstack/real.rs"]
mod real;
#[path = "openstack/sample.rs"]
mod sample;
