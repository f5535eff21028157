//! Real packets through every way of forwarding, in network namespaces. Needs root.

#![expect(clippy::unwrap_used, reason = "tests")]

mod beside_ipvs;
mod beside_kube_proxy;
mod by_node;
mod direct;
mod haproxy;
mod lab;
