//! `portico apiserver`: its flags, and a run from start to signal.

use crate::controller;
use crate::signals::Signals;
use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use kube::Client;
use portico_api::gates::Gates;
use portico_api::service::Ranges;
use portico_apiserver::{Config, OwnClient, Sizes, Storage, start};
use portico_controller::cluster::Cluster;
use portico_model::checks::Range;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Flags that kube-apiserver has keep its names.
#[derive(Args)]
#[command(rename_all = "kebab-case")]
pub(crate) struct Arguments {
    /// Keep objects in this directory (the embedded store).
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "etcd_servers",
        required_unless_present = "etcd_servers"
    )]
    data_dir: Option<PathBuf>,
    /// Begin with an empty store where there was one that is gone. Once: refused where there is one.
    #[arg(long, conflicts_with = "etcd_servers")]
    new_store: bool,
    /// Keep objects in etcd: http://HOST:PORT,...
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// Where in etcd.
    #[arg(long, value_name = "PATH", default_value = "/portico")]
    etcd_prefix: String,
    /// The CA of etcd's certificates.
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Listen on this port; 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    secure_port: u16,
    /// Listen on this address.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// The address that others reach this server at; found out when not given.
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// Certificates are kept, and made on the first start, in this directory [default:
    /// DATA-DIR/pki].
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// A server certificate of your own.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Further names and addresses that the server's own certificate is good for, such as a virtual
    /// address.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    tls_san: Vec<String>,
    /// The CA of client certificates of your own.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Bearer tokens: lines of TOKEN,USER,UID,"GROUP,GROUP".
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// The issuer of service-account tokens.
    #[arg(
        long,
        value_name = "URL",
        default_value = "https://kubernetes.default.svc.cluster.local"
    )]
    service_account_issuer: String,
    /// Let requests without credentials in, to see health and version.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    anonymous_auth: bool,
    /// The addresses of Services: one range, or two of different families.
    #[arg(long, value_name = "CIDR[,CIDR]", default_value = "10.96.0.0/16")]
    service_cluster_ip_range: String,
    /// The node ports of Services, inclusive: 30000-32767, 10000-20000,30000-32767, or 0-0 for
    /// none.
    #[arg(
        long,
        visible_alias = "public_service_ports",
        value_name = "RANGE,...",
        default_value = "30000-32767"
    )]
    service_node_port_range: String,
    /// Name=true|false,...
    #[arg(long, value_name = "NAME=BOOL,...", default_value = "")]
    feature_gates: String,
    /// Reads under way at most.
    #[arg(long, value_name = "N", default_value_t = Sizes::default().reads)]
    max_requests_inflight: usize,
    /// Writes under way at most.
    #[arg(long, value_name = "N", default_value_t = Sizes::default().writes)]
    max_mutating_requests_inflight: usize,
    /// Open watches at most.
    #[arg(long, value_name = "N", default_value_t = Sizes::default().watches)]
    max_watches: usize,
    /// MiB of request bodies and of answers that are not sent yet, at most.
    #[arg(long, value_name = "MIB", default_value_t = Sizes::default().mebibytes)]
    max_mebibytes_inflight: usize,
    /// Connections at most; a quarter of them may be of clients that have not said who they are.
    #[arg(long, value_name = "N", default_value_t = Sizes::default().connections)]
    max_connections: usize,
    /// The shortest time after which the server ends a watch; it picks one up to twice as long.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    min_request_timeout: u64,
    /// How many seconds events are kept.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    event_ttl: u64,
    /// Write a line of JSON about every request to this file.
    #[arg(long, visible_alias = "audit-log-path", value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Make EndpointSlices and Endpoints for Services with a selector.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    endpoint_slice_controller: bool,
    /// Check the endpoints of Services that `portico expose` made.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    expose_health_checks: bool,
    /// Which addresses those checks may ask: networks, and `cluster` for the nodes' addresses and
    /// their networks of pods. Loopback, link-local and metadata addresses are only asked where a
    /// range of their own is listed.
    #[arg(
        long,
        value_name = "RANGES",
        default_value = "cluster",
        value_delimiter = ','
    )]
    health_check_ranges: Vec<Range>,
}

impl Arguments {
    fn config(&self) -> anyhow::Result<Config> {
        let storage = match &self.data_dir {
            Some(dir) => Storage::Embedded(dir.join(crate::backup::STORE)),
            None => Storage::Etcd {
                servers: self.etcd_servers.clone(),
                prefix: self.etcd_prefix.clone(),
                ca: self.etcd_cafile.clone(),
                certificate: self.etcd_certfile.clone(),
                key: self.etcd_keyfile.clone(),
            },
        };
        let Some(cert_dir) = self
            .cert_dir
            .clone()
            .or_else(|| self.data_dir.as_ref().map(|dir| dir.join("pki")))
        else {
            bail!(
                "--etcd-servers needs --cert-dir: a directory of this server's own for its \
                 certificates"
            );
        };
        let ranges = Ranges::parse(
            &self.service_cluster_ip_range,
            &self.service_node_port_range,
        )
        .map_err(anyhow::Error::msg)?;
        Ok(Config {
            bind: self.bind_address,
            port: self.secure_port,
            advertise: self.advertise_address,
            storage,
            new_store: self.new_store,
            cert_dir,
            tls_cert_file: self.tls_cert_file.clone(),
            tls_private_key_file: self.tls_private_key_file.clone(),
            tls_san: self.tls_san.clone(),
            client_ca_file: self.client_ca_file.clone(),
            token_auth_file: self.token_auth_file.clone(),
            service_account_issuer: self.service_account_issuer.clone(),
            anonymous: self.anonymous_auth,
            ranges,
            gates: Gates::parse(&self.feature_gates)
                .map_err(anyhow::Error::msg)
                .context("--feature-gates")?,
            limits: Sizes {
                reads: self.max_requests_inflight,
                writes: self.max_mutating_requests_inflight,
                watches: self.max_watches,
                mebibytes: self.max_mebibytes_inflight,
                connections: self.max_connections,
            },
            min_watch_timeout: Duration::from_secs(self.min_request_timeout.max(1)),
            event_ttl: Duration::from_secs(self.event_ttl),
            audit_log: self.audit_log.clone(),
        })
    }
}

/// Serve until SIGINT or SIGTERM.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let config = arguments.config()?;
    crate::runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        let shared = matches!(config.storage, Storage::Etcd { .. });
        let server = start(config).await?;
        let ranges = arguments.health_check_ranges;
        tracing::info!(address = %server.address, "serving the API");
        if let Some(path) = &server.kubeconfig {
            tracing::info!(
                "try: kubectl --kubeconfig {} get services -A",
                path.display()
            );
        }
        let (stop, stopped) = watch::channel(false);
        let mut controllers = JoinSet::new();
        let cluster = Cluster::new(own_client(&server.own_client)?);
        if arguments.endpoint_slice_controller {
            controllers.spawn(controller::run_endpoints(
                cluster.clone(),
                shared,
                true,
                stopped.clone(),
            ));
        }
        if arguments.expose_health_checks {
            controllers.spawn(controller::run_health(
                cluster,
                shared,
                ranges.into(),
                stopped,
            ));
        }
        tokio::select! {
            () = signals.wait() => {}
            // Nothing is left to be stopped in order: what is acknowledged is durable.
            why = server.lost() => bail!(why),
        }
        tracing::info!("stopping");
        stop.send_replace(true);
        while controllers.join_next().await.is_some() {}
        server.stop().await;
        Ok(())
    })
}

/// A client of the server in this very process.
fn own_client(own: &OwnClient) -> anyhow::Result<Client> {
    let mut config = kube::Config::new(own.url.parse()?);
    match &own.authority {
        Some(path) => {
            let pem =
                std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            config.root_cert = Some(certificates?.iter().map(|der| der.to_vec()).collect());
        }
        // A certificate of the user's own may not name this address; the connection never leaves
        // the machine.
        None => config.accept_invalid_certs = true,
    }
    config.auth_info.token = Some(own.token.clone().into());
    Ok(Client::try_from(config)?)
}
