//! The load-balancer controller: a Service of type LoadBalancer gets a load balancer from a
//! provider, and tells how far it is.
//!
//! ```text
//! watches ─▶ State ─▶ Queue ─▶ next step (pure) ─▶ provider | API server
//!              ▲                                      │
//!              └────────────── how it ended ──────────┘
//! ```
//!
//! `state` with `service`, `nodes`, `node_pass`, `slices`, `reports`, `judge`, `conditions` and
//! `patch` decide and touch nothing; `driver` and `events` do the input and output.

mod conditions;
mod driver;
mod events;
mod judge;
mod memory;
mod metrics;
mod node_pass;
mod nodes;
mod patch;
mod reports;
mod service;
mod slices;
mod state;

pub use driver::{Options, run};
pub use metrics::Metrics;
pub use service::{FINALIZER, balancer_name};
