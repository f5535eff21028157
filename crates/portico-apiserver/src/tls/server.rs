//! The TLS configuration of the server: its certificate can be replaced while it runs.

use super::Pki;
use super::error::{Error, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

/// A TLS configuration that presents the latest certificate.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub config: Arc<ServerConfig>,
    current: Arc<Current>,
}

/// The certificate presented now.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            self.0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }
}

impl Server {
    /// TLS 1.2 and 1.3; a client certificate is asked for, checked when sent, and not required.
    pub(crate) fn new(pki: &Pki) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = Arc::new(Current(RwLock::new(pki.certified_key()?)));
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(pki.client_roots()?),
            provider.clone(),
        )
        .allow_unauthenticated()
        .build()
        .map_err(|error| {
            Error::content(
                &pki.client_ca_file,
                error,
                "give a PEM file with CA certificates",
            )
        })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            config: Arc::new(config),
            current,
        })
    }

    /// Present the server certificate of `pki` from now on; connections that are open stay as they
    /// are.
    pub(crate) fn replace(&self, pki: &Pki) -> Result<()> {
        *self
            .current
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner) = pki.certified_key()?;
        Ok(())
    }
}

impl Pki {
    fn certified_key(&self) -> Result<Arc<CertifiedKey>> {
        let (cert_file, key_file) = &self.server_files;
        let mut chain = certificates(&self.server_certificates, cert_file)?;
        if let Some(authority) = &self.server_authority {
            chain.extend(certificates(authority, cert_file)?);
        }
        let wrong_key = "give the PEM private key (PKCS#8, PKCS#1 or SEC1) of the certificate";
        let key = PrivateKeyDer::from_pem_slice(self.server_key.as_bytes())
            .map_err(|error| Error::content(key_file, error, wrong_key))?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
            Error::content(
                key_file,
                format!("{error} (certificate {})", cert_file.display()),
                wrong_key,
            )
        })?;
        Ok(Arc::new(certified))
    }

    fn client_roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.client_authorities, &self.client_ca_file)? {
            roots.add(certificate).map_err(|error| {
                Error::content(
                    &self.client_ca_file,
                    error,
                    "give a PEM file with CA certificates",
                )
            })?;
        }
        Ok(roots)
    }
}

fn certificates(pem: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let remedy = "give a file with at least one PEM certificate";
    let found: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Error::content(path, "it holds no certificate", remedy)),
        Err(error) => Err(Error::content(path, error, remedy)),
    }
}
