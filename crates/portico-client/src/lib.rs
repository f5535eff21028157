//! What every daemon needs beside its own work: how it reads the cluster and how it tells how it is.
//!
//! - [`access`]: which API server is asked, and with what credentials.
//! - [`reflector`]: one watch of a kind for all parts of a process.
//! - [`wait`]: how long to wait before something is tried again.
//! - [`lease`]: which of several replicas works.
//! - [`error`]: how errors are told, each cause once.
//! - [`metrics`]: what a daemon counts, in the text format of Prometheus.
//! - [`connections`]: bounds on the connections of a server, and which of them is closed first.
//! - [`pages`]: a small server of pages (health, metrics, the dashboard) that has these bounds.
//! - [`tls`]: to servers that are known by something other than a CA.

pub mod access;
pub mod connections;
pub mod error;
pub mod lease;
pub mod metrics;
pub mod pages;
pub mod reflector;
pub mod tls;
pub mod wait;

/// Turns true when the daemon should stop; a dropped sender means the same.
pub type Shutdown = tokio::sync::watch::Receiver<bool>;
