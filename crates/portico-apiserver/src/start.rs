//! From a configuration to a running server, and to its end.

use crate::app::App;
use crate::auth::bootstrap::CONTROLLERS;
use crate::auth::service_account::Tokens;
use crate::auth::token_file::TokenFile;
use crate::auth::{Authenticator, Rbac, User, audit::AuditLog};
use crate::config::{Config, Storage};
use crate::discovery::Discovery;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::processor::Processor;
use crate::registry::Registry;
use crate::reviews::StoredAccounts;
use crate::system::{self, Advertised};
use crate::{server, tls};
use jiff::Timestamp;
use portico_api::kinds::{self, Kind};
use portico_api::service;
use portico_client::connections::Connections;
use portico_store::{EmbeddedOptions, EtcdOptions, EtcdTls, OpenError, Store};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// The user of the controllers in this process.
const OWN_USER: &str = "portico:controllers-in-process";
/// The file in the directory of certificates that says where the embedded store is.
const STORE_NOTE: &str = "store";
/// How often certificates are looked at for renewal.
const RENEWAL: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what its variant means")]
pub enum StartError {
    #[error("cannot listen on {address}: choose another --bind-address or --secure-port")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot open the store")]
    Store(#[source] OpenError),
    #[error("cannot prepare the certificates")]
    Tls(#[from] tls::Error),
    #[error("cannot use {what}: {why}")]
    File { what: String, why: String },
    #[error("cannot write what every cluster begins with: {0}")]
    Bootstrap(String),
}

/// A server that runs until `stop` is called.
pub struct Running {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The kubeconfig of the administrator, if the server wrote one.
    pub kubeconfig: Option<PathBuf>,
    /// How the controllers in this process reach the server.
    pub own_client: OwnClient,
    app: Arc<App>,
    advertised: Advertised,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    chores: JoinSet<()>,
}

/// How controllers in this process reach the server: as ordinary clients, with a token that no
/// other process knows.
pub struct OwnClient {
    /// The address of the server.
    pub url: String,
    /// The CA of the server's certificate; `None` where the certificate is not of this server's
    /// making.
    pub authority: Option<PathBuf>,
    /// The token of these clients, which is valid for this process.
    pub token: String,
}

/// Start a server. When this returns it is ready.
pub async fn start(config: Config) -> Result<Running, StartError> {
    let listener = listen(SocketAddr::new(config.bind, config.port)).await?;
    let address = listener.local_addr().map_err(|source| StartError::Listen {
        address: SocketAddr::new(config.bind, config.port),
        source,
    })?;
    let advertised = advertise(&config, address);
    let certificates = certificate_options(&config, &advertised);
    let pki = tls::Pki::prepare(&certificates, Timestamp::now())?;
    let tls = tls::Server::new(&pki)?;
    let own_token = format!("{}{}", crate::random::uuid(), crate::random::uuid());
    let store = open(&config).await?;
    let app = Arc::new(build(&config, store, &pki, &advertised, &own_token)?);
    system::feed_access_rules(&app.registry, &app.rbac);
    system::bootstrap(&app.registry)
        .await
        .map_err(|error| StartError::Bootstrap(error.to_string()))?;
    // First of all, so that no other program takes its address.
    let kubernetes =
        system::keep_kubernetes_service(Arc::clone(&app.registry), advertised.clone()).await;
    let service_cidr =
        system::keep_default_service_cidr(Arc::clone(&app.registry), config.ranges.cluster_texts())
            .await;
    let (stop, stopped) = watch::channel(false);
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.config));
    let serving = tokio::spawn(server::serve(Arc::clone(&app), listener, acceptor, stopped));
    let mut chores = JoinSet::new();
    chores.spawn(kubernetes);
    chores.spawn(service_cidr);
    chores.spawn(system::finish_namespaces(Arc::clone(&app.registry)));
    chores.spawn(system::finish_deletions(Arc::clone(&app.registry)));
    chores.spawn(system::expire_events(
        Arc::clone(&app.registry),
        config.event_ttl,
    ));
    chores.spawn(renew(certificates, tls));
    app.ready.store(true, Ordering::Release);
    let own_client = OwnClient {
        url: format!("https://{}", reachable(address)),
        authority: (config.tls_cert_file.is_none()).then(|| config.cert_dir.join("ca.crt")),
        token: own_token,
    };
    Ok(Running {
        address,
        kubeconfig: pki.kubeconfig,
        own_client,
        app,
        advertised,
        stop,
        serving,
        chores,
    })
}

impl Running {
    /// Wait until the server can never go on, and say why: the process has to end, and what comes up
    /// after it has every acknowledged write.
    pub async fn lost(&self) -> String {
        self.app.registry.store.lost().await.to_string()
    }

    /// Stop in order: no longer ready, out of the endpoints, open requests ended, store closed.
    pub async fn stop(mut self) {
        self.app.ready.store(false, Ordering::Release);
        self.chores.shutdown().await;
        system::leave(&self.app.registry, &self.advertised).await;
        self.stop.send_replace(true);
        let _ = self.serving.await;
        if let Some(audit) = &self.app.audit {
            audit.flush().await;
        }
        self.app.registry.store.close().await;
    }
}

/// An address on which this machine reaches what it listens on.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

/// Open the store. That there is one is noted beside the certificates, which outlive a disk that
/// was not mounted or a folder that was removed.
async fn open(config: &Config) -> Result<Store, StartError> {
    let note = config.cert_dir.join(STORE_NOTE);
    let store = match &config.storage {
        Storage::Embedded(dir) => {
            let options = EmbeddedOptions {
                anew: config.new_store,
                expected: note.exists(),
                ..EmbeddedOptions::default()
            };
            let store = Store::embedded(dir, options).await;
            let store = store.map_err(StartError::Store)?;
            let text = format!("{}\n", dir.display());
            std::fs::write(&note, text).map_err(|error| StartError::File {
                what: note.display().to_string(),
                why: error.to_string(),
            })?;
            store
        }
        Storage::Etcd {
            servers,
            prefix,
            ca,
            certificate,
            key,
        } => {
            let identity = certificate.clone().zip(key.clone());
            let tls = ca.clone().map(|ca| EtcdTls {
                ca,
                identity,
                server_name: None,
            });
            let prefix = format!("{}/", prefix.trim_end_matches('/'));
            let options = EtcdOptions {
                endpoints: servers.clone(),
                prefix,
                tls,
                ..EtcdOptions::default()
            };
            Store::etcd(options).await.map_err(StartError::Store)?
        }
    };
    Ok(store)
}

fn build(
    config: &Config,
    store: Store,
    pki: &tls::Pki,
    advertised: &Advertised,
    own_token: &str,
) -> Result<App, StartError> {
    let kinds = served_kinds(config);
    let metrics = Arc::new(Metrics::new(&config.gates));
    let processor = Processor::new(Arc::clone(&metrics));
    let registry = Arc::new(Registry::new(store, config.gates, kinds, processor));
    let token_file = match &config.token_auth_file {
        None => None,
        Some(path) => Some(TokenFile::read(path).map_err(|error| StartError::File {
            what: path.display().to_string(),
            why: error.to_string(),
        })?),
    };
    let tokens =
        Tokens::new(pki.token_key(), &config.service_account_issuer, &[]).map_err(|error| {
            StartError::File {
                what: "the service-account key".into(),
                why: error.to_string(),
            }
        })?;
    let audit = match &config.audit_log {
        None => None,
        Some(path) => Some(AuditLog::open(path).map_err(|error| StartError::File {
            what: path.display().to_string(),
            why: error.to_string(),
        })?),
    };
    let ended = Arc::clone(&metrics);
    let connections = Connections::new(config.limits.connection_limits(), move |reason| {
        ended.connection_ended(reason);
    });
    Ok(App {
        authenticator: Authenticator {
            token_file,
            tokens: Some(tokens),
            audiences: vec![config.service_account_issuer.clone()],
            objects: Arc::new(StoredAccounts(Arc::clone(&registry))),
            own: Some((own_token.to_owned(), User::new(OWN_USER, &[CONTROLLERS]))),
            anonymous: config.anonymous,
        },
        rbac: Arc::new(RwLock::new(Rbac::default())),
        discovery: Discovery::new(registry.kinds()),
        openapi: OnceLock::new(),
        limits: Limits::new(config.limits, Arc::clone(&metrics)),
        connections,
        metrics,
        audit,
        address: advertised.address.to_string(),
        ready: AtomicBool::new(false),
        min_watch_timeout: config.min_watch_timeout,
        backups: Arc::new(Semaphore::new(1)),
        registry,
    })
}

fn served_kinds(config: &Config) -> Vec<Arc<dyn Kind>> {
    let mut all: Vec<Arc<dyn Kind>> = kinds::all().into_iter().map(Arc::from).collect();
    let services = service::ServiceKind::new(config.ranges.clone(), config.gates);
    all.push(Arc::new(service::PorticoServiceKind::new(services.clone())));
    all.push(Arc::new(services));
    all
}

fn advertise(config: &Config, bound: SocketAddr) -> Advertised {
    let given = config
        .advertise
        .or_else(|| Some(config.bind).filter(|ip| !ip.is_unspecified() && !ip.is_loopback()));
    let ip = given
        .or_else(outward_address)
        .unwrap_or_else(|| match config.bind {
            ip if ip.is_loopback() => ip,
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        });
    Advertised {
        address: SocketAddr::new(ip, bound.port()),
        service_ips: config.ranges.first_addresses(),
        shared_store: matches!(config.storage, Storage::Etcd { .. }),
    }
}

/// The address this machine would use towards others. Connecting a datagram socket sends nothing.
fn outward_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket
        .local_addr()
        .ok()
        .map(|address| address.ip())
        .filter(|ip| !ip.is_unspecified())
}

fn certificate_options(config: &Config, advertised: &Advertised) -> tls::Options {
    let mut addresses = vec![advertised.address.ip()];
    addresses.extend(Some(config.bind).filter(|ip| !ip.is_unspecified()));
    addresses.extend(&advertised.service_ips);
    tls::Options {
        dir: config.cert_dir.clone(),
        local: reachable(SocketAddr::new(config.bind, advertised.address.port())),
        addresses,
        names: config.tls_san.clone(),
        cert_file: config.tls_cert_file.clone(),
        key_file: config.tls_private_key_file.clone(),
        client_ca_file: config.client_ca_file.clone(),
    }
}

/// Look after the certificates while the server runs.
async fn renew(options: tls::Options, server: tls::Server) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        let renewed =
            tls::Pki::prepare(&options, Timestamp::now()).and_then(|pki| server.replace(&pki));
        if let Err(error) = renewed {
            tracing::error!(%error, "cannot renew the certificates");
        }
    }
}
