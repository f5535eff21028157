//! A client of the API server that a kubeconfig tells of.

use anyhow::Context;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use kube::Client;
use kube::client::Body;
use kube::config::AuthInfo;
use portico_client::access;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limits for a command whose user waits at a terminal.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);

/// Which API server a command asks, for `#[command(flatten)]`.
#[derive(Args, Clone, Debug)]
#[command(rename_all = "kebab-case")]
#[group(id = "access")]
pub(crate) struct Access {
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config or the pod's own].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

impl Access {
    /// The certificates by which the API server is known, DER.
    pub(crate) async fn authority(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        Ok(access::config(self.kubeconfig.as_deref())
            .await?
            .root_cert
            .unwrap_or_default())
    }

    pub(crate) async fn reader(&self) -> anyhow::Result<Reader> {
        let mut config = access::config(self.kubeconfig.as_deref()).await?;
        (config.connect_timeout, config.read_timeout) = (Some(CONNECT), Some(ANSWER));
        Ok(Reader {
            client: Client::try_from(config)?,
            authorization: None,
        })
    }
}

/// The same server, without anybody's credentials.
pub(crate) async fn anonymous(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = access::config(kubeconfig).await?;
    config.auth_info = AuthInfo::default();
    Ok(Client::try_from(config)?)
}

/// Reads as the client, or as somebody whose credentials came along.
pub(crate) struct Reader {
    pub client: Client,
    pub authorization: Option<HeaderValue>,
}

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

impl Reader {
    /// Whatever the answer is.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<http::Response<Body>> {
        Ok(self
            .client
            .send(self.request("GET", path, Body::empty())?)
            .await?)
    }

    pub(crate) async fn list<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        let list: kube::Result<List<T>> = self
            .client
            .request(self.request("GET", path, Vec::new())?)
            .await;
        Ok(list
            .map_err(plain)
            .with_context(|| format!("cannot list {path}"))?
            .items)
    }

    /// Nothing where the API server does not have the kind.
    pub(crate) async fn list_if_known<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> anyhow::Result<Vec<T>> {
        let list: Option<List<T>> = self.find(path).await?;
        Ok(list.map(|list| list.items).unwrap_or_default())
    }

    /// `None` where it is not there.
    pub(crate) async fn find<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        match self
            .client
            .request(self.request("GET", path, Vec::new())?)
            .await
        {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(plain(error)).with_context(|| format!("cannot read {path}")),
        }
    }

    /// Makes an object what it should be, by server-side apply; the object as it is then. `more`
    /// are further parameters: `dryRun=All`.
    pub(crate) async fn apply(
        &self,
        path: &str,
        manager: &str,
        more: &str,
        object: &Value,
    ) -> anyhow::Result<Value> {
        let target = format!(
            "{path}?fieldManager={manager}&force=true{}{more}",
            if more.is_empty() { "" } else { "&" }
        );
        let mut request = self.request("PATCH", &target, serde_json::to_vec(object)?)?;
        request.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/apply-patch+yaml"),
        );
        self.client
            .request(request)
            .await
            .map_err(plain)
            .with_context(|| format!("cannot apply {path}"))
    }

    /// Creates an object, or asks something that is answered by one. Says what the API server says,
    /// with its code.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value, kube::Error> {
        let mut request = self
            .request(
                "POST",
                path,
                serde_json::to_vec(object).map_err(kube::Error::SerdeError)?,
            )
            .map_err(|error| kube::Error::Service(error.into()))?;
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.client.request(request).await
    }

    /// Whether it was there.
    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<bool> {
        match self
            .client
            .request::<Value>(self.request("DELETE", path, Vec::new())?)
            .await
        {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(plain(error)).with_context(|| format!("cannot delete {path}")),
        }
    }

    fn request<B>(&self, method: &str, path: &str, body: B) -> anyhow::Result<http::Request<B>> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .body(body)?;
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        Ok(request)
    }
}

/// What the API server said, without the object that it said it in.
pub(crate) fn plain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            anyhow::Error::msg(status.message)
        }
        kube::Error::Service(cause) => {
            anyhow::Error::from_boxed(cause).context("the API server does not answer")
        }
        error => error.into(),
    }
}
