//! Attracts the traffic of load-balancer addresses to this node.

pub mod bgp;
