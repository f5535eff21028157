//! What load balancers cost in calls of a cloud's API: the real controller with the real providers,
//! on clouds in memory.
//!
//! `cloud` is one of them with its calls counted, `rig` an API server with a controller on it,
//! `story` what happens to Services and what each chapter of it costs, `table` prints that. The
//! test runs the story with three Services; the benchmark with 500 and 100 nodes too.
#![allow(
    dead_code,
    reason = "the benchmark and the test each use their own part of this module"
)]

mod aws;
pub(crate) mod cloud;
mod digitalocean;
mod gce;
pub(crate) mod openstack;
mod rackspace;
pub(crate) mod rig;
pub(crate) mod story;
pub(crate) mod table;

use cloud::Cloud;

/// All clouds that can be had in memory.
pub(crate) fn all() -> Vec<fn() -> Cloud> {
    vec![
        aws::network,
        aws::classic,
        openstack::octavia,
        gce::passthrough,
        digitalocean::regional,
        rackspace::proxy,
    ]
}
