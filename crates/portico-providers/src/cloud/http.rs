//! Requests over TCP and TLS: HTTP/1.1 on connections that are kept, the system's roots or a
//! file's, and a bound on answers.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, USER_AGENT};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::transport::{Sent, Transport, TransportError};

/// Longer answers are no answers of a cloud.
const MOST_BYTES: usize = 32 << 20;
const CONNECT: Duration = Duration::from_secs(10);
/// Clouds close connections that idle for a minute or longer.
const IDLE: Duration = Duration::from_secs(50);
const AGENT: &str = concat!("portico/", env!("CARGO_PKG_VERSION"));

/// How connections are made.
#[derive(Clone, Debug, Default)]
pub struct HttpOptions {
    /// Certificates (PEM) to trust in place of the system's.
    pub ca_file: Option<PathBuf>,
    /// A connection for each request, for servers that break kept ones.
    pub close: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot read certificates from {path}: {message}")]
    Roots { path: PathBuf, message: String },
    #[error("the system has no certificates to trust (package ca-certificates)")]
    NoRoots,
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// The real transport.
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    close: bool,
    most_bytes: usize,
}

impl Http {
    /// A transport that has no connection yet.
    pub fn new(options: &HttpOptions) -> Result<Self, HttpError> {
        let roots = match &options.ca_file {
            Some(path) => roots_of(path)?,
            None => system_roots()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(if options.close { 0 } else { usize::MAX })
            .build(connector);
        Ok(Self {
            client,
            close: options.close,
            most_bytes: MOST_BYTES,
        })
    }
}

impl Transport for Http {
    fn send(&self, mut request: Request<Bytes>) -> Sent<'_> {
        let headers = request.headers_mut();
        headers
            .entry(USER_AGENT)
            .or_insert(HeaderValue::from_static(AGENT));
        if self.close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Box::pin(async move {
            let answer = self
                .client
                .request(request.map(Full::new))
                .await
                .map_err(|error| match error.is_connect() {
                    true => TransportError::Connect(chain(&error)),
                    false => TransportError::Lost(chain(&error)),
                })?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, self.most_bytes)
                .collect()
                .await
                .map_err(|error| match error.is::<LengthLimitError>() {
                    true => TransportError::TooLong(self.most_bytes),
                    false => TransportError::Lost(chain(&*error)),
                })?;
            Ok(Response::from_parts(head, body.to_bytes()))
        })
    }
}

fn roots_of(path: &Path) -> Result<RootCertStore, HttpError> {
    let failed = |message: String| HttpError::Roots {
        path: path.to_owned(),
        message,
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        Err(failed("there are none".to_owned()))
    } else {
        Ok(roots)
    }
}

fn system_roots() -> Result<RootCertStore, HttpError> {
    let mut roots = RootCertStore::empty();
    // One that cannot be read or parsed is not trusted, and the others still are.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        Err(HttpError::NoRoots)
    } else {
        Ok(roots)
    }
}

/// An error with its causes: hyper's own text says only what it was doing.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
