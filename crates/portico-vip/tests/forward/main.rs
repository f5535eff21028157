//! Real packets through every way of forwarding, in network namespaces. Needs root.

#![expect(clippy::unwrap_used, reason = "tests")]

mod direct;
mod lab;
