//! Controllers: ordinary Kubernetes clients that keep objects true to each other.
//!
//! Owns the endpoint-slice controller (`endpoints`), the load-balancer controller (`balancers`)
//! with what makes the load balancers (`providers`), the health of endpoints that are no Pods
//! (`health`), the test that every such thing passes (`conformance`), and the election of one
//! active replica (`lease`). Nothing here relies on an endpoint that only Portico's API server has.

mod backoff;
pub mod balancers;
pub mod conformance;
pub mod endpoints;
pub mod health;
pub mod key;
pub mod lease;
mod light;
pub mod providers;
mod queue;
mod task;

/// Turns true when the daemon should stop; a dropped sender means the same.
pub type Shutdown = tokio::sync::watch::Receiver<bool>;
