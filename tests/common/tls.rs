//! Client side TLS: with a server's CA, or trusting anyone for a server that is not ours.

use std::path::Path;
use std::sync::Arc;

use portico_client::tls::any_certificate;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Trusts the certificates in `ca`, or any certificate when there is no CA to trust.
pub(crate) fn config(ca: Option<&Path>, protocol: &str) -> Arc<ClientConfig> {
    let mut config = match ca {
        Some(path) => ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(path))
            .with_no_client_auth(),
        None => any_certificate().unwrap(),
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}

fn roots(path: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    roots
}
