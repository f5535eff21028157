//! Which API server is asked, and with what credentials.

use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{
    InClusterError, InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError,
};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpStream;
use tower::timeout::Timeout;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt};

const CONNECT: Duration = Duration::from_secs(5);
/// For all of it: a name server that is down takes seconds before the next one is asked, and the
/// kernel of a frozen process accepts connections that never get further.
const CONNECT_WITH_TLS: Duration = Duration::from_secs(10);
/// For the other host to acknowledge what was sent.
const ACKNOWLEDGE: Duration = Duration::from_secs(30);
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

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file cannot be read, or makes no sense.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// There is neither a file nor a service account.
    #[error("no API server is known, give --kubeconfig (there is no service account either)")]
    InCluster(#[source] InClusterError),
    /// There is nothing that Kubernetes programs would find.
    #[error("no API server is known, give --kubeconfig")]
    Unknown(#[source] InferConfigError),
    /// The name in the server's certificate is not one.
    #[error("tls-server-name {name:?} is neither a host name nor an address")]
    ServerName {
        /// The name.
        name: String,
    },
    /// Credentials that cannot be used.
    #[error("cannot make a client of the API server")]
    Client(#[from] kube::Error),
}

/// What this file says.
pub async fn from_file(path: &Path) -> Result<Config, AccessError> {
    let bad = |source| AccessError::Kubeconfig {
        path: path.to_owned(),
        source,
    };
    let read = Kubeconfig::read_from(path).map_err(bad)?;
    Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .map_err(bad)
}

/// What this file says, or what Kubernetes programs find: $KUBECONFIG, ~/.kube/config, or the
/// service account of the pod.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, AccessError> {
    match kubeconfig {
        Some(path) => from_file(path).await,
        None => Config::infer().await.map_err(AccessError::Unknown),
    }
}

/// The service account of the pod, for what runs on every node: files of a person do not count.
pub fn in_cluster() -> Result<Config, AccessError> {
    Config::incluster().map_err(AccessError::InCluster)
}

/// A client that has what [`config`] finds.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, AccessError> {
    let config = config(kubeconfig).await?;
    warn_of_proxy(&config);
    client_of(&config)
}

/// Says what of a configuration has no effect.
pub fn warn_of_proxy(config: &Config) {
    if let Some(proxy) = &config.proxy_url {
        let host = proxy.host().unwrap_or_default();
        tracing::warn!(
            host,
            "the API server is asked directly: proxy-url and HTTPS_PROXY have no effect here"
        );
    }
}

/// A client whose requests get what the configuration says: where to, who asks, and as whom. Its
/// connections belong to the runtime that this is called in, and notice when the other side is gone.
pub fn client_of(config: &Config) -> Result<Client, AccessError> {
    let service: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_ANSWER)
        .build(connector(config)?);
    let builder = ClientBuilder::new(service.map_err(BoxError::from), &config.default_namespace)
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
    tcp.set_tcp_user_timeout(Some(ACKNOWLEDGE));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::chain;

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named_once_with_the_cause() {
        let error = from_file(Path::new("/nowhere/config")).await.unwrap_err();
        let told = chain(&error);
        assert!(told.starts_with("cannot use the kubeconfig /nowhere/config: "));
        assert_eq!(told.matches("No such file").count(), 1, "{told}");
    }
}
