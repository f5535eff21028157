//! A client of the API server that a kubeconfig tells of.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;

/// From this file, or from wherever Kubernetes programs find it.
pub async fn from_kubeconfig(kubeconfig: Option<PathBuf>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        None => Config::infer().await.context("no API server is known: give --kubeconfig")?,
        Some(path) => {
            let read = Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
        }
    };
    Ok(Client::try_from(config)?)
}
