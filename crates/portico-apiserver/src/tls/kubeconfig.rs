//! A kubeconfig for one user with everything embedded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What a kubeconfig says; certificates and key are PEM.
pub(crate) struct Kubeconfig<'a> {
    pub server: &'a str,
    /// The name to expect in the server's certificate, where it is not the address of `server`.
    pub server_name: Option<&'a str>,
    pub authority: &'a str,
    pub user: &'a str,
    pub certificate: &'a str,
    pub key: &'a str,
}

impl Kubeconfig<'_> {
    /// Writes YAML. The user's name is quoted; everything else is base64 or an address.
    pub(crate) fn render(&self) -> String {
        let user = serde_json::Value::from(self.user);
        let server_name = self
            .server_name
            .map(|name| format!("\n    tls-server-name: {name}"))
            .unwrap_or_default();
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: portico
  cluster:
    server: {server}{server_name}
    certificate-authority-data: {authority}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: portico
  context:
    cluster: portico
    user: {user}
current-context: portico
",
            server = self.server,
            authority = STANDARD.encode(self.authority),
            certificate = STANDARD.encode(self.certificate),
            key = STANDARD.encode(self.key),
        )
    }
}
