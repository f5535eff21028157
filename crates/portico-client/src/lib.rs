//! What every daemon needs beside its own work: how it reads the cluster and how it tells how it is.
//!
//! - [`metrics`]: what a daemon counts, in the text format of Prometheus.
//! - [`connections`]: bounds on the connections of a server, and which of them is closed first.
//! - [`pages`]: a small server of pages (health, metrics, the dashboard) that has these bounds.
//! - [`tls`]: to servers that are known by something other than a CA.

pub mod connections;
pub mod metrics;
pub mod pages;
pub mod tls;
