//! The credentials: the service account of the machine, from its metadata server, or one with a key
//! in a file.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use http::header::{HeaderName, HeaderValue};
use jiff::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::cloud::{Call, CallError, Client, Problem, Token, TokenSource, secret};

const SCOPE: &str = "https://www.googleapis.com/auth/compute";
/// How long a signed request for a token is valid; Google allows an hour.
const LIFETIME: i64 = 3600;

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(deserialize_with = "secret")]
    access_token: SecretString,
    expires_in: u64,
}

impl From<TokenAnswer> for Token {
    fn from(answer: TokenAnswer) -> Self {
        Self {
            secret: answer.access_token,
            lifetime: Duration::from_secs(answer.expires_in),
        }
    }
}

/// The metadata server of the machine.
pub(super) struct Metadata {
    client: Arc<Client>,
    base: String,
}

impl Metadata {
    /// `GCE_METADATA_HOST` says where another one is.
    pub(super) fn new(client: Arc<Client>, host: Option<&str>) -> Self {
        let base = format!(
            "http://{}/computeMetadata/v1/",
            host.unwrap_or("metadata.google.internal")
        );
        Self { client, base }
    }

    fn call(&self, operation: &'static str, path: &str) -> Call {
        let flavor = HeaderName::from_static("metadata-flavor");
        Call::get(operation, format!("{}{path}", self.base))
            .header(flavor, HeaderValue::from_static("Google"))
    }

    /// Reads one value of the metadata, as text.
    pub(super) async fn value(&self, path: &str) -> Result<String, CallError> {
        let reply = self.client.send(self.call("metadata", path)).await?;
        Ok(String::from_utf8_lossy(&reply.body).trim().to_owned())
    }
}

impl TokenSource for Metadata {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, CallError>> {
        Box::pin(async {
            let reply = self
                .client
                .send(self.call("token", "instance/service-accounts/default/token"))
                .await?;
            reply.json::<TokenAnswer>().map(Token::from)
        })
    }
}

/// The file that `GOOGLE_APPLICATION_CREDENTIALS` names.
#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    project_id: String,
    #[serde(default)]
    private_key_id: String,
    #[serde(default, deserialize_with = "secret")]
    private_key: SecretString,
    #[serde(default)]
    client_email: String,
    #[serde(default)]
    token_uri: String,
}

/// A service account with its key.
pub(super) struct ServiceAccount {
    client: Arc<Client>,
    pub project: String,
    key_id: String,
    email: String,
    token_uri: String,
    key: RsaKeyPair,
}

impl ServiceAccount {
    pub(super) fn parse(client: Arc<Client>, text: &str) -> Result<Self, String> {
        // An error of serde may quote what it was reading.
        let file: KeyFile = serde_json::from_str(text).map_err(|error| {
            format!(
                "is no service account key: line {} column {}",
                error.line(),
                error.column()
            )
        })?;
        if file.kind != "service_account" {
            return Err(format!(
                "has credentials of type {:?}, and only service_account is known",
                file.kind
            ));
        }
        let pem = PrivatePkcs8KeyDer::from_pem_slice(file.private_key.expose_secret().as_bytes());
        let key = pem.map_err(|_| "private_key is no PEM text of a PKCS#8 key".to_owned())?;
        let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der());
        Ok(Self {
            client,
            project: file.project_id,
            key_id: file.private_key_id,
            email: file.client_email,
            token_uri: file.token_uri,
            key: key.map_err(|error| format!("private_key is no RSA key: {error}"))?,
        })
    }

    /// What Google gives a token for (RFC 7523).
    fn assertion(&self, now: i64) -> Result<String, CallError> {
        let failed =
            |problem: &str| CallError::new("token", Problem::Credentials(problem.to_owned()));
        let head = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let claims = json!({
            "iss": self.email, "scope": SCOPE, "aud": self.token_uri, "iat": now, "exp": now + LIFETIME,
        });
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!(
            "{}.{}",
            encode(head.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                signed.as_bytes(),
                &mut signature,
            )
            .map_err(|_| failed("the key cannot sign"))?;
        Ok(format!("{signed}.{}", encode(&signature)))
    }
}

impl TokenSource for ServiceAccount {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, CallError>> {
        Box::pin(async {
            let assertion = self.assertion(Timestamp::now().as_second())?;
            let fields = [
                ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                ("assertion", &assertion),
            ];
            let call = Call::post("token", self.token_uri.clone())
                .form(fields)
                .repeatable();
            self.client
                .send(call)
                .await?
                .json::<TokenAnswer>()
                .map(Token::from)
        })
    }
}

#[cfg(test)]
mod tests;
