//! The rules of forwarding, one by one, on objects as the API has them.

mod addresses;
mod announce;
mod conflicts;
mod edge;
mod endpoints;
mod harness;
mod incremental;
mod node;
mod partitions;
mod policy;
mod services;
mod visibility;
