//! What every daemon needs beside its own work: how it reads the cluster and how it tells how it is.
//!
//! - [`metrics`]: what a daemon counts, in the text format of Prometheus.
//! - [`tls`]: to servers that are known by something other than a CA.

pub mod metrics;
pub mod tls;
