//! One address for the control plane: `portico vip` runs on each node that has an API server.
//!
//! [`election`] decides who has the virtual address and holds it (VRRP, a thread of its own, needs nobody), [`servers`] knows
//! which API servers there are and which of them answer, [`forward`] sends what comes to the address to those that do.

pub mod access;
pub mod election;
pub mod error;
pub mod forward;
pub mod servers;
