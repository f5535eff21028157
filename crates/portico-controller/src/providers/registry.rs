//! Providers by the name that `--cloud-provider` has for them. Nothing else names one.

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;

use super::Provider;
use crate::Shutdown;

/// What a provider starts with.
pub struct Start {
    pub client: Client,
    /// `--cloud-config`
    pub config: Option<PathBuf>,
    /// `--cluster-name`
    pub cluster: String,
    /// What a provider does on its own ends then.
    pub shutdown: Shutdown,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("--cloud-provider={0} is not known: use metal, haproxy, plugin:SOCKET or none")]
    Unknown(String),
    #[error("provider {provider}: {message}")]
    Failed { provider: String, message: String },
}

/// Start a provider: it is ready for calls when this returns.
pub async fn start(name: &str, start: Start) -> Result<Arc<dyn Provider>, StartError> {
    // Each provider has a branch here: `"metal" => metal::start(start).await`.
    let Start { client: _, config: _, cluster: _, shutdown: _ } = start;
    Err(StartError::Unknown(name.to_owned()))
}
