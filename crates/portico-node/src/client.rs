//! The way to the API server: its address, credentials that are renewed, and requests with bounds.

mod renewed;

use crate::config::ApiAccess;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::Kubeconfig;
use kube::{Client, Config};
use portico_client::access;
use renewed::{Credentials, Renewed};
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// For the head of an answer, and for a whole answer that is not a stream.
const ANSWER: Duration = Duration::from_secs(30);
/// Of one answer. A page of a list has some megabytes.
const MOST_BYTES: usize = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Access(#[from] access::AccessError),
    #[error("--master={url} is not a URL")]
    Url { url: String },
    #[error("cannot make a client of the API server")]
    Broken(#[source] tokio::task::JoinError),
}

/// Checks what is known of the API server, and warns of what has no effect. Nothing is sent.
pub(crate) async fn check(access: &ApiAccess) -> Result<(), AccessError> {
    access::warn_of_proxy(&config(access).await?);
    Ok(())
}

/// A client with connections of its own, which belong to the runtime that this is called in.
pub(crate) fn client(access: &ApiAccess) -> Client {
    let credentials = Credentials::new(access.clone());
    Client::new(Renewed(credentials), "default")
}

async fn config(access: &ApiAccess) -> Result<Config, AccessError> {
    let server = match &access.server {
        None => None,
        Some(url) => Some(
            url.parse::<http::Uri>()
                .map_err(|_| AccessError::Url { url: url.clone() })?,
        ),
    };
    let mut config = match (&access.kubeconfig, &server) {
        (Some(path), _) => access::from_file(path).await?,
        (None, Some(server)) => Config::new(server.clone()),
        (None, None) => access::in_cluster()?,
    };
    if let Some(server) = server {
        config.cluster_url = server;
    }
    Ok(config)
}

/// What the access is read from, but for tokens, which are read again anyway.
fn client_files(access: &ApiAccess) -> Vec<PathBuf> {
    let Some(path) = &access.kubeconfig else {
        return Vec::new();
    };
    let read = Kubeconfig::read_from(path).unwrap_or_default();
    let trusted = read
        .clusters
        .into_iter()
        .filter_map(|cluster| cluster.cluster?.certificate_authority);
    let users = read
        .auth_infos
        .into_iter()
        .filter_map(|user| user.auth_info);
    let shown = users
        .flat_map(|user| [user.client_certificate, user.client_key])
        .flatten();
    trusted
        .chain(shown)
        .map(PathBuf::from)
        .chain([path.clone()])
        .collect()
}

/// Why a request brought nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("the API server did not answer in time")]
    Timeout,
    #[error("the API server cannot be reached")]
    Send(#[source] kube::Error),
    #[error("the API server refused it ({code}): {message}")]
    Status { code: u16, message: String },
    #[error("the answer broke off")]
    Read(#[source] io::Error),
    #[error("the answer makes no sense")]
    Decode(#[source] serde_json::Error),
}

impl RequestError {
    /// What was asked for is too old to be continued.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Status { code: 410, .. })
    }

    /// Whether the same request may do later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(code, 401 | 408 | 429 | 500..),
            Self::Timeout | Self::Send(_) | Self::Read(_) => true,
            Self::Decode(_) => false,
        }
    }

    /// The server does not have this, or does not let us have it.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::Status {
                code: 403 | 404,
                ..
            }
        )
    }

    /// The server has it, and does not let us have it.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Status { code: 403, .. })
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
}

impl Default for Refusal {
    fn default() -> Self {
        Self {
            message: "without a reason".to_owned(),
        }
    }
}

/// Ask, and return the body of a good answer as it comes in.
pub(crate) async fn open_stream(
    client: &Client,
    request: Request<Body>,
) -> Result<Body, RequestError> {
    Ok(open(client, request).await?.into_body())
}

/// Ask. Only a good answer is one.
async fn open(client: &Client, request: Request<Body>) -> Result<Response<Body>, RequestError> {
    let answer = tokio::time::timeout(ANSWER, client.send(request))
        .await
        .map_err(|_| RequestError::Timeout)?;
    let answer = answer.map_err(RequestError::Send)?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let code = answer.status().as_u16();
    let body = whole(answer.into_body()).await.unwrap_or_default();
    let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
    Err(RequestError::Status {
        code,
        message: refusal.message,
    })
}

/// Ask, and return the whole body of a good answer.
pub(crate) async fn ask(
    client: &Client,
    request: Request<Body>,
) -> Result<bytes::Bytes, RequestError> {
    whole(open(client, request).await?.into_body()).await
}

pub(crate) async fn get(client: &Client, path: &str) -> Result<bytes::Bytes, RequestError> {
    ask(client, get_request(path)?).await
}

pub(crate) fn get_request(path: &str) -> Result<Request<Body>, RequestError> {
    let request = Request::get(path)
        .header(http::header::ACCEPT, "application/json")
        .body(Body::empty());
    request.map_err(|error| RequestError::Send(kube::Error::HttpError(error)))
}

async fn whole(body: Body) -> Result<bytes::Bytes, RequestError> {
    let collected = tokio::time::timeout(ANSWER, Limited::new(body, MOST_BYTES).collect()).await;
    let collected = collected.map_err(|_| RequestError::Timeout)?;
    Ok(collected
        .map_err(|error| RequestError::Read(io::Error::other(error)))?
        .to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use portico_client::error::chain;

    async fn refused(access: ApiAccess) -> String {
        match check(&access).await {
            Ok(()) => panic!("{access:?} should not do"),
            Err(error) => chain(&error),
        }
    }

    #[tokio::test]
    async fn what_is_wrong_with_the_access_is_said() {
        let missing = refused(ApiAccess {
            kubeconfig: Some("/nowhere/config".into()),
            server: None,
        })
        .await;
        assert!(missing.contains("/nowhere/config"), "{missing}");
        let url = refused(ApiAccess {
            kubeconfig: None,
            server: Some("http://a b".to_owned()),
        })
        .await;
        assert!(url.contains("--master=http://a b"), "{url}");
        let nothing = refused(ApiAccess::default()).await;
        assert!(nothing.contains("--kubeconfig"), "{nothing}");
    }

    #[tokio::test]
    async fn the_last_reason_is_told() {
        let access = ApiAccess {
            kubeconfig: None,
            server: Some("http://127.0.0.1:1".to_owned()),
        };
        let error = chain(&get(&client(&access), "/version").await.unwrap_err());
        assert!(error.contains("Connection refused"), "{error}");
    }
}
