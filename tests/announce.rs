//! Addresses of load balancers from `kubectl apply` to the traffic of a client outside: an API
//! server, the controller with the provider `metal` and three nodes, in network namespaces.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "announce/bgp.rs"]
mod bgp;
#[path = "announce/edge.rs"]
mod edge;
#[path = "announce/layer2.rs"]
mod layer2;
#[path = "announce/rig.rs"]
mod rig;
