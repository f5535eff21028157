//! Providers by the name that `--cloud-provider` has for them. Nothing else names one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Provider;
use super::aws::{self, Aws};
use super::cloud::CallMetrics;
use super::description::Description;
use super::digitalocean::{self, DigitalOcean};
use super::gce::{self, Gce};
use super::haproxy::{self, Haproxy};
use super::metal::{self, Metal};
use super::openstack::{self, OpenStack};
use super::plugin::{self, Patience, Plugin};
use super::rackspace::{self, Rackspace};
use portico_controller::Shutdown;
use portico_controller::cluster::Cluster;

/// All of them, in words.
pub const DESCRIPTIONS: &[&Description] = &[
    &metal::DESCRIPTION,
    &gce::DESCRIPTION,
    &openstack::DESCRIPTION,
    &haproxy::DESCRIPTION,
    &aws::DESCRIPTION,
    &digitalocean::DESCRIPTION,
    &rackspace::DESCRIPTION,
    &plugin::DESCRIPTION,
];

/// What a provider starts with.
pub struct Start {
    /// The cluster whose Services get load balancers.
    pub cluster: Cluster,
    /// `--cloud-config`
    pub config: Option<PathBuf>,
    /// `--cluster-name`
    pub cluster_name: String,
    /// Where calls of a cloud are counted.
    pub metrics: CallMetrics,
    /// What a provider does on its own ends then.
    pub shutdown: Shutdown,
}

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum StartError {
    #[error(
        "--cloud-provider={0} is not known: use metal, aws, digitalocean, gce, openstack, \
         rackspace, haproxy, plugin:SOCKET or none"
    )]
    Unknown(String),
    #[error("provider {provider}: {message}")]
    Failed { provider: String, message: String },
}

/// Start a provider: it is ready for calls when this returns.
pub async fn start(name: &str, start: Start) -> Result<Arc<dyn Provider>, StartError> {
    let failed = |message: String| StartError::Failed {
        provider: name.to_owned(),
        message,
    };
    if let Some(socket) = name.strip_prefix("plugin:") {
        let plugin = Plugin::start(Path::new(socket), Patience::default(), start.shutdown).await;
        return plugin
            .map(|plugin| Arc::new(plugin) as Arc<dyn Provider>)
            .map_err(failed);
    }
    match name {
        "metal" => Ok(Arc::new(Metal::start(start.cluster, start.shutdown))),
        "gce" => Ok(Arc::new(Gce::start(&start).await.map_err(failed)?)),
        "openstack" => Ok(Arc::new(OpenStack::start(&start).map_err(failed)?)),
        "rackspace" => Ok(Arc::new(Rackspace::start(&start).map_err(failed)?)),
        "haproxy" => {
            let config = start.config.ok_or_else(|| {
                failed("give it its configuration with --cloud-config".to_owned())
            })?;
            Ok(Arc::new(
                Haproxy::start(&config, start.shutdown)
                    .await
                    .map_err(failed)?,
            ))
        }
        "digitalocean" => Ok(Arc::new(DigitalOcean::start(&start).await.map_err(failed)?)),
        "aws" => Ok(Arc::new(Aws::start(start).await.map_err(failed)?)),
        _ => Err(StartError::Unknown(name.to_owned())),
    }
}
