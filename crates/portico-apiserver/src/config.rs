//! What the server is told at start, after the flags have been read and checked.

use crate::limits::Sizes;
use portico_api::gates::Gates;
use portico_api::service::Ranges;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Config {
    pub bind: IpAddr,
    pub port: u16,
    /// How others reach this server; found out when not given.
    pub advertise: Option<IpAddr>,
    pub storage: Storage,
    /// Begin with an empty store where there was one that is gone.
    pub new_store: bool,
    pub cert_dir: PathBuf,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    /// Further names and addresses in the own certificate.
    pub tls_san: Vec<String>,
    pub client_ca_file: Option<PathBuf>,
    pub token_auth_file: Option<PathBuf>,
    pub service_account_issuer: String,
    pub anonymous: bool,
    pub ranges: Ranges,
    pub gates: Gates,
    pub limits: Sizes,
    pub min_watch_timeout: Duration,
    pub event_ttl: Duration,
    pub audit_log: Option<PathBuf>,
}

/// Where objects are kept.
#[derive(Clone, Debug)]
pub enum Storage {
    Embedded(PathBuf),
    Etcd {
        servers: Vec<String>,
        prefix: String,
        ca: Option<PathBuf>,
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
    },
}
