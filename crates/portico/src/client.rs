//! A client of the API server that a kubeconfig tells of.

use anyhow::Context;
use http::header::{AUTHORIZATION, HeaderValue};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// From this file, or from wherever Kubernetes programs find it.
pub async fn from_kubeconfig(kubeconfig: Option<PathBuf>) -> anyhow::Result<Client> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

/// The same server, without anybody's credentials.
pub async fn anonymous(kubeconfig: Option<PathBuf>) -> anyhow::Result<Client> {
    let mut config = config(kubeconfig).await?;
    config.auth_info = AuthInfo::default();
    Ok(Client::try_from(config)?)
}

async fn config(kubeconfig: Option<PathBuf>) -> anyhow::Result<Config> {
    match kubeconfig {
        None => Config::infer().await.context("no API server is known: give --kubeconfig"),
        Some(path) => {
            let read = Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok(Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?)
        }
    }
}

/// Reads as the client, or as somebody whose credentials came along.
pub struct Reader {
    pub client: Client,
    pub authorization: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

impl Reader {
    /// Whatever the answer is.
    pub async fn get(&self, path: &str) -> anyhow::Result<http::Response<Body>> {
        let mut request = http::Request::get(path).body(Body::empty())?;
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        Ok(self.client.send(request).await?)
    }

    pub async fn object<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let mut request = http::Request::get(path).body(Vec::new())?;
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        self.client.request(request).await.with_context(|| format!("cannot read {path}"))
    }

    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        Ok(self.object::<List<T>>(path).await?.items)
    }
}
