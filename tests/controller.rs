//! The load-balancer controller: its lifecycle with a provider that fails on purpose, and with
//! metal from `kubectl apply` to conditions; killed at every step of its work.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic and print"
)]

#[path = "controller/cloud.rs"]
mod cloud;
mod common;
#[path = "controller/cutter.rs"]
mod cutter;
#[path = "controller/faults.rs"]
mod faults;
#[path = "controller/lifecycle.rs"]
mod lifecycle;
#[path = "controller/metal.rs"]
mod metal;
#[path = "controller/objects.rs"]
mod objects;
#[path = "controller/pools.rs"]
mod pools;
#[path = "controller/races.rs"]
mod races;
#[path = "controller/rig.rs"]
mod rig;
#[path = "controller/sidecar.rs"]
mod sidecar;
#[path = "controller/watches.rs"]
mod watches;

/// Where Services of the namespace `default` are.
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
