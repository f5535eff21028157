//! What the server is told at start, after the flags have been read and checked.

use crate::limits::Sizes;
use portico_api::gates::Gates;
use portico_api::service::Ranges;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How the server is run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on.
    pub bind: IpAddr,
    /// The port to listen on; 0 for any that is free.
    pub port: u16,
    /// How others reach this server; found out when not given.
    pub advertise: Option<IpAddr>,
    /// Where objects are stored.
    pub storage: Storage,
    /// Begin with an empty store where there was one that is gone.
    pub new_store: bool,
    /// The directory of the server's own certificates and keys.
    pub cert_dir: PathBuf,
    /// The server's certificate, in place of its own one.
    pub tls_cert_file: Option<PathBuf>,
    /// The key of that certificate.
    pub tls_private_key_file: Option<PathBuf>,
    /// Further names and addresses in the own certificate.
    pub tls_san: Vec<String>,
    /// The CA of client certificates, in place of its own one.
    pub client_ca_file: Option<PathBuf>,
    /// The file with static tokens.
    pub token_auth_file: Option<PathBuf>,
    /// The issuer of service-account tokens.
    pub service_account_issuer: String,
    /// Whether requests without credentials are let in, as `system:anonymous`.
    pub anonymous: bool,
    /// The ranges of cluster IPs and node ports.
    pub ranges: Ranges,
    /// The feature gates.
    pub gates: Gates,
    /// How much the server takes on at once.
    pub limits: Sizes,
    /// How long a watch lasts at least, if the client does not say.
    pub min_watch_timeout: Duration,
    /// How long Events are kept.
    pub event_ttl: Duration,
    /// The file that requests are written to; `None` for none.
    pub audit_log: Option<PathBuf>,
}

/// Where objects are kept.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In a file in this directory.
    Embedded(PathBuf),
    /// In a cluster of etcd.
    Etcd {
        /// The addresses of its members.
        servers: Vec<String>,
        /// The prefix of all keys.
        prefix: String,
        /// The CA of the members' certificates.
        ca: Option<PathBuf>,
        /// The certificate that this server shows.
        certificate: Option<PathBuf>,
        /// The key of that certificate.
        key: Option<PathBuf>,
    },
}
