//! The rules of forwarding, one by one, on objects as the API has them.

mod addresses;
mod announce;
mod conflicts;
mod endpoints;
mod harness;
mod incremental;
mod node;
mod policy;
mod services;
mod visibility;
