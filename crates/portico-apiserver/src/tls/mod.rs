//! The server's own certificates: made on first start, kept, renewed before they run out.
//!
//! Owns the files of the certificate directory and the TLS configuration built from them. The user
//! of a client certificate is decided in `auth`.
//!
//! ```text
//! ca.crt ca.key                 signs everything below; never replaced
//! apiserver.crt apiserver.key   the server
//! admin.crt admin.key           kubernetes-admin, group system:masters
//! admin.kubeconfig              the same, ready for kubectl
//! sa.key sa.pub                 sign and verify service-account tokens
//! ```

mod certificate;
mod error;
mod files;
pub(crate) mod kubeconfig;
mod server;
mod subject;
#[cfg(test)]
mod tests;

pub(crate) use error::{Error, Result};
pub(crate) use server::Server;

use certificate::Purpose;
use files::{Directory, Mode};
use jiff::Timestamp;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// Names every client may know the server by.
const SERVICE_NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// What the flags say about certificates.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// `--cert-dir`
    pub dir: PathBuf,
    /// Where this machine reaches the server.
    pub local: SocketAddr,
    /// Addresses the server listens on, is advertised on, and the first address of each service
    /// range.
    pub addresses: Vec<IpAddr>,
    /// Further DNS names and addresses.
    pub names: Vec<String>,
    /// `--tls-cert-file` and `--tls-private-key-file`, used instead of the own server certificate.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// `--client-ca-file`, used instead of the own CA to check client certificates.
    pub client_ca_file: Option<PathBuf>,
}

/// Everything the server needs to speak TLS and to sign tokens, as PEM text.
#[derive(Clone)]
pub(crate) struct Pki {
    pub server_certificates: String,
    server_key: String,
    /// The own CA, presented with the server's certificate, so that a client that knows only its
    /// hash can check it.
    server_authority: Option<String>,
    pub client_authorities: String,
    token_key: String,
    /// Where the server's files came from, for messages.
    server_files: (PathBuf, PathBuf),
    client_ca_file: PathBuf,
    /// Written unless `--client-ca-file` says that another CA issues client certificates.
    pub kubeconfig: Option<PathBuf>,
}

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki")
            .field("server_files", &self.server_files)
            .field("client_ca_file", &self.client_ca_file)
            .field("kubeconfig", &self.kubeconfig)
            .finish_non_exhaustive()
    }
}

impl Pki {
    /// Read the certificates, making and renewing what is missing. Calling it again later renews
    /// again.
    pub(crate) fn prepare(options: &Options, now: Timestamp) -> Result<Self> {
        let own_server = match (&options.cert_file, &options.key_file) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(Error::HalfAPair),
        };
        let dir = Directory::open(&options.dir)?;
        let token_key = dir.key("sa.key")?;
        dir.keep("sa.pub", &token_key.public_key_pem(), Mode::Public)?;
        let foreign_server = own_server.is_some();
        let foreign_clients = options.client_ca_file.is_some();
        if !(foreign_server && foreign_clients) {
            let authority = dir.authority(now)?;
            if !foreign_server {
                dir.certificate(
                    &authority,
                    "apiserver",
                    &Purpose::Server(server_names(options)),
                    now,
                )?;
            }
            if !foreign_clients {
                dir.certificate(&authority, "admin", &admin(), now)?;
            }
        }
        let server_files =
            own_server.unwrap_or_else(|| (dir.path("apiserver.crt"), dir.path("apiserver.key")));
        let client_ca_file = options
            .client_ca_file
            .clone()
            .unwrap_or_else(|| dir.path("ca.crt"));
        let mut pki = Self {
            server_certificates: files::read(&server_files.0)?,
            server_key: files::read(&server_files.1)?,
            server_authority: if foreign_server {
                None
            } else {
                Some(files::read(&dir.path("ca.crt"))?)
            },
            client_authorities: files::read(&client_ca_file)?,
            token_key: token_key.serialize_pem(),
            server_files,
            client_ca_file,
            kubeconfig: None,
        };
        if !foreign_clients {
            pki.kubeconfig = Some(dir.write_kubeconfig(
                options.local,
                &pki.server_certificates,
                foreign_server,
            )?);
        }
        Ok(pki)
    }

    /// The private key for service-account tokens, PKCS#8 PEM.
    pub(crate) fn token_key(&self) -> &str {
        &self.token_key
    }
}

/// Sign client certificates with the CA of a certificate directory, for nodes and people. Makes no
/// CA: a wrong path must not end in certificates that no server accepts.
#[cfg(test)]
pub(crate) fn issuer(dir: &std::path::Path, now: Timestamp) -> Result<certificate::Issuer> {
    files::read(&dir.join("ca.crt"))?;
    Directory::open(dir)?.authority(now)
}

fn admin() -> Purpose {
    Purpose::Client {
        name: "kubernetes-admin".to_owned(),
        groups: vec!["system:masters".to_owned()],
    }
}

fn server_names(options: &Options) -> Vec<String> {
    let addresses = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ]
    .into_iter()
    .chain(
        options
            .addresses
            .iter()
            .copied()
            .filter(|address| !address.is_unspecified()),
    )
    .map(|address| address.to_string());
    let names = SERVICE_NAMES
        .into_iter()
        .map(str::to_owned)
        .chain(host_name())
        .chain(options.names.iter().cloned());
    let mut all: Vec<String> = names.chain(addresses).collect();
    all.sort();
    all.dedup();
    all
}

/// The host's name where it can stand in a certificate.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()?
        .trim()
        .to_lowercase();
    portico_api::names::dns_subdomain(&name, false)
        .is_empty()
        .then_some(name)
}
