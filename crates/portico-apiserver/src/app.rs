//! Everything a request may need, shared by all connections.

use crate::auth::audit::AuditLog;
use crate::auth::{Authenticator, Rbac};
use crate::discovery::Discovery;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::registry::Registry;
use portico_api::openapi::Documents;
use portico_client::connections::Connections;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;
use tokio::sync::Semaphore;

pub(crate) struct App {
    pub registry: Arc<Registry>,
    pub authenticator: Authenticator,
    pub rbac: Arc<RwLock<Rbac>>,
    pub discovery: Discovery,
    /// Made when first asked for: most servers never are.
    pub openapi: OnceLock<Documents>,
    pub limits: Arc<Limits>,
    pub connections: Arc<Connections>,
    pub metrics: Arc<Metrics>,
    pub audit: Option<AuditLog>,
    /// `host:port`, as clients should reach this server.
    pub address: String,
    /// Bootstrapped, and not shutting down.
    pub ready: AtomicBool,
    pub min_watch_timeout: Duration,
    /// One backup at a time.
    pub backups: Arc<Semaphore>,
}
