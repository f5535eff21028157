//! Controllers: ordinary Kubernetes clients that keep objects true to each other.
//!
//! Owns the endpoint-slice controller (`endpoints`), the load-balancer controller (`balancers`)
//! with the contract of what makes the load balancers (`provider`), the health of endpoints that
//! are no Pods (`health`), and the election of one active replica (`lease`). Nothing here relies on
//! an endpoint that only Portico's API server has, and nothing here knows a provider by its name.

pub mod backoff;
pub mod balancers;
pub mod endpoints;
pub mod health;
pub mod lease;
pub mod light;
pub mod provider;
mod queue;
pub mod task;

/// Turns true when the daemon should stop; a dropped sender means the same.
pub type Shutdown = tokio::sync::watch::Receiver<bool>;
