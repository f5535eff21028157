//! Load balancers of Google Compute Engine from `kubectl apply` to the traffic of a client: an API
//! server, the controller with the provider `gce` on a cloud in memory, three nodes, and a balancer
//! that obeys what the cloud has, in network namespaces.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "gce/balancer.rs"]
mod balancer;
#[path = "gce/checks.rs"]
mod checks;
#[path = "gce/cloud.rs"]
mod cloud;
#[path = "gce/firewall.rs"]
mod firewall;
#[path = "gce/health.rs"]
mod health;
#[path = "gce/resources.rs"]
mod resources;
#[path = "announce/rig.rs"]
mod rig;
#[path = "gce/skew.rs"]
mod skew;
#[path = "gce/world.rs"]
mod world;
