//! The way to the API server: its address, the credentials, and connections that notice when the
//! other side is gone.

mod renewed;

use crate::config::ApiAccess;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use renewed::{Credentials, Renewed};
use rustls::pki_types::ServerName;
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpStream;
use tower::timeout::Timeout;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

const CONNECT: Duration = Duration::from_secs(5);
/// The time limit for all of it: a name server that is down takes seconds before the next one is
/// asked, and the kernel of a frozen process accepts connections that never get further.
const CONNECT_WITH_TLS: Duration = Duration::from_secs(10);
/// The time limit for the head of an answer, and for a whole answer that is not a stream.
const ANSWER: Duration = Duration::from_secs(30);
/// A server that has been silent for so long while it owes an answer, a watch included, is pinged
/// over HTTP/2. Where it does not answer that either, its process is frozen or a balancer has lost
/// the connection, and everything that waits for it fails. A quiet server answers.
const PING_AFTER: Duration = Duration::from_secs(4);
const PING_ANSWER: Duration = Duration::from_secs(8);
/// The kernel asks the other host after this time of silence, and again in smaller steps, before it
/// gives the connection up.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_STEP: Duration = Duration::from_secs(5);
const KEEPALIVE_STEPS: u32 = 3;
/// The most bytes of one answer. A page of a list has some megabytes.
const MOST_BYTES: usize = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("cannot use the kubeconfig {path}: {source}", path = .path.display())]
    Kubeconfig {
        path: PathBuf,
        source: kube::config::KubeconfigError,
    },
    #[error("no API server is known, give --kubeconfig (there is no service account either: {0})")]
    InCluster(#[source] kube::config::InClusterError),
    #[error("--master={url} is not a URL")]
    Url { url: String },
    #[error("tls-server-name {name:?} is neither a host name nor an address")]
    ServerName { name: String },
    #[error("cannot make a client of the API server: {0}")]
    Client(#[from] kube::Error),
    #[error("cannot make a client of the API server: {0}")]
    Broken(#[source] tokio::task::JoinError),
}

/// Checks what is known of the API server, and warns of what has no effect. Nothing is sent.
pub(crate) async fn check(access: &ApiAccess) -> Result<(), AccessError> {
    if let Some(proxy) = config(access).await?.proxy_url {
        let host = proxy.host().unwrap_or_default();
        tracing::warn!(
            host,
            "the API server is asked directly: proxy-url and HTTPS_PROXY have no effect here"
        );
    }
    Ok(())
}

/// A client with connections of its own, which belong to the runtime that this is called in.
pub(crate) fn client(access: &ApiAccess) -> Client {
    let credentials = Credentials::new(access.clone());
    Client::new(Renewed(credentials), "default")
}

/// A client with the credentials that are there now. Requests get what the configuration says: the
/// server, the credentials, and the user to impersonate.
fn with_credentials_of(config: &Config) -> Result<Client, AccessError> {
    let service: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(1)
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_ANSWER)
        .build(connector(config)?);
    let builder = ClientBuilder::new(service.map_err(BoxError::from), "default")
        .with_layer(&config.base_uri_layer())
        .with_layer(&config.extra_headers_layer()?);
    Ok(match config.auth_layer()? {
        Some(auth) => builder.with_layer(&auth).build(),
        None => builder.build(),
    })
}

type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, BoxError>;

/// As kube makes it, but for HTTP/2, which kube does not offer to the server.
fn connector(config: &Config) -> Result<Connector, AccessError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_STEP));
    tcp.set_keepalive_retries(Some(KEEPALIVE_STEPS));
    tcp.set_tcp_user_timeout(Some(ANSWER));
    let mut tls = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone())
            .map_err(|_| AccessError::ServerName { name: name.clone() })?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let connector = tls.enable_http1().enable_http2().wrap_connector(tcp);
    Ok(BoxCloneSyncService::new(Timeout::new(
        connector,
        CONNECT_WITH_TLS,
    )))
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
        (Some(path), _) => {
            let bad = |source| AccessError::Kubeconfig {
                path: path.clone(),
                source,
            };
            let read = Kubeconfig::read_from(path).map_err(bad)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
                .await
                .map_err(bad)?
        }
        (None, Some(server)) => Config::new(server.clone()),
        (None, None) => Config::incluster().map_err(AccessError::InCluster)?,
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
    #[error("{}", chain(.0))]
    Send(#[source] kube::Error),
    #[error("the API server refused it ({code}): {message}")]
    Status { code: u16, message: String },
    #[error("the answer broke off: {}", chain(.0))]
    Read(#[source] io::Error),
    #[error("the answer makes no sense: {0}")]
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
}

/// The reasons below a reason: "connection refused" is the last of three.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let next = inner.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = inner.source();
    }
    text
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

    async fn refused(access: ApiAccess) -> String {
        match check(&access).await {
            Ok(()) => panic!("{access:?} should not do"),
            Err(error) => error.to_string(),
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
        let error = get(&client(&access), "/version")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("Connection refused"), "{error}");
    }
}
