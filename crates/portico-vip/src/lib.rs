//! One address for the control plane: `portico vip` runs on each node that has an API server.
//!
//! [`election`] decides which node has the virtual address and holds it (VRRP, on a thread of its
//! own, without need of another part), [`servers`] knows which API servers there are and which of
//! them answer, [`forward`] sends what comes to the address to those that do. [`handover`] has
//! connections go on where they are when the address moves. [`run()`] brings them together as
//! [`config`] says; [`status`], [`page`] and `metrics` show how it goes; [`manifest`] has what a
//! node needs to start it.

mod access;
pub mod config;
pub mod election;
pub mod forward;
pub mod handover;
pub mod machine;
pub mod manifest;
mod metrics;
pub mod page;
pub mod run;
pub mod servers;
pub mod status;

pub use run::run;
