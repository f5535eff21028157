//! Controllers: ordinary Kubernetes clients that keep objects true to each other.
//!
//! Owns the endpoint-slice controller (`endpoints`), the load-balancer controller (`balancers`)
//! with the contract of what makes the load balancers (`provider`), the health of endpoints that
//! are no Pods (`health`). What several of them follow is watched once for all (`cluster`). Nothing
//! here relies on an endpoint that only Portico's API server has, and nothing here knows a provider
//! by its name.

pub mod balancers;
pub mod cluster;
pub mod endpoints;
pub mod health;
pub mod light;
pub mod provider;
mod queue;
pub mod task;

pub use portico_client::Shutdown;
