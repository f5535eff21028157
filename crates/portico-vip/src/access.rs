//! The credentials for API servers, and the CA that their certificates have to be signed by.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kube::client::ConfigExt;
use portico_client::access;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use secrecy::ExposeSecret;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where kubeadm puts the authority that signs the API servers' certificates.
pub(crate) const KUBEADM_CA: &str = "/etc/kubernetes/pki/ca.crt";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub kubeconfig: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    /// The name in the servers' certificates, where their addresses are not in there.
    pub server_name: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Kubeconfig(#[from] access::AccessError),
    #[error("cannot use the credentials of the kubeconfig")]
    Credentials(#[source] kube::Error),
    #[error("cannot read the certificates in {}: {problem}", path.display())]
    Ca { path: PathBuf, problem: String },
    #[error(
        "nothing says which certificates of API servers to believe: give --kubeconfig or \
         --ca-file ({KUBEADM_CA} is not there)"
    )]
    NoCa,
    #[error("--tls-server-name={name} is not a name")]
    Name {
        name: String,
        source: InvalidDnsNameError,
    },
    #[error("cannot set TLS up")]
    Tls(#[from] rustls::Error),
}

/// What probes need.
pub struct Credentials {
    pub tls: ClientConfig,
    pub name: Option<ServerName<'static>>,
    pub token: Option<HeaderValue>,
    /// To read objects with, where there is a kubeconfig.
    pub kube: Option<kube::Config>,
}

impl Credentials {
    /// The authorities of the kubeconfig as a file for other programs, where it has any.
    pub fn write_authorities(&self, path: &Path) -> io::Result<bool> {
        let authorities = self
            .kube
            .as_ref()
            .and_then(|kube| kube.root_cert.clone())
            .unwrap_or_default();
        if authorities.is_empty() {
            return Ok(false);
        }
        let pem = |der: &Vec<u8>| {
            let text = STANDARD.encode(der);
            let lines: Vec<&str> = (0..text.len())
                .step_by(64)
                .filter_map(|at| text.get(at..text.len().min(at + 64)))
                .collect();
            format!(
                "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
                lines.join("\n")
            )
        };
        let text: String = authorities.iter().map(pem).collect();
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text).map(|()| true)
    }
}

impl Access {
    pub async fn open(&self) -> Result<Credentials, AccessError> {
        let parse = |name: &String| {
            let bad = |source| AccessError::Name {
                name: name.clone(),
                source,
            };
            ServerName::try_from(name.clone()).map_err(bad)
        };
        let name = self.server_name.as_ref().map(parse).transpose()?;
        let kube = match &self.kubeconfig {
            Some(path) => Some(self.read_kubeconfig(path).await?),
            None => None,
        };
        let tls = match (&self.ca, &kube) {
            (None, Some(kube)) => kube
                .rustls_client_config()
                .map_err(AccessError::Credentials)?,
            (Some(path), _) => believing(path)?,
            (None, None) if Path::new(KUBEADM_CA).exists() => believing(Path::new(KUBEADM_CA))?,
            (None, None) => return Err(AccessError::NoCa),
        };
        Ok(Credentials {
            tls,
            name,
            token: kube.as_ref().and_then(token),
            kube,
        })
    }

    async fn read_kubeconfig(&self, path: &Path) -> Result<kube::Config, AccessError> {
        let mut config = access::from_file(path).await?;
        if let Some(name) = &self.server_name {
            config.tls_server_name = Some(name.clone());
        }
        Ok(config)
    }
}

/// Client certificates are part of TLS; of the other ways only a token that stands there is of use
/// for a probe.
fn token(config: &kube::Config) -> Option<HeaderValue> {
    let token = config.auth_info.token.as_ref()?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn believing(path: &Path) -> Result<ClientConfig, AccessError> {
    let bad = |problem: String| AccessError::Ca {
        path: path.to_owned(),
        problem,
    };
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("there is none in it".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_authorities_of_a_kubeconfig_become_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["kubernetes".to_owned()])
            .unwrap()
            .cert;
        let inline = STANDARD.encode(made.pem());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'https://10.0.0.1:6443', certificate-authority-data: {inline}}}}}]\n\
             users: [{{name: c, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n"
        );
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, text).unwrap();
        let credentials = Access {
            kubeconfig: Some(kubeconfig),
            ..Access::default()
        }
        .open()
        .await
        .unwrap();
        assert!(credentials.token.is_some());
        let path = folder.path().join("new/ca.crt");
        assert!(credentials.write_authorities(&path).unwrap());
        assert_eq!(CertificateDer::from_pem_file(path).unwrap(), *made.der());
    }
}
