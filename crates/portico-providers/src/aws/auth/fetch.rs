//! Credentials as they are needed: fetched by the first that asks while others wait, and again
//! before they end.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::chain::Source;
use super::metadata::Metadata;
use super::sign::{Credentials, Scope, sign};
use crate::aws::api::{DIALECT, Xml};
use crate::cloud::{
    Authorize, Call, CallError, CallMetrics, Client, Pace, Problem, Reply, Setup, Transport,
};

/// Credentials are not used in their last minutes: a request may take some, and clocks differ.
const MARGIN: SignedDuration = SignedDuration::from_mins(5);

/// Fetches credentials, and keeps them until shortly before they expire.
pub struct Fetcher {
    /// Where they come from.
    pub source: Source,
    /// A client for calls that are not signed.
    pub client: Client,
    /// For calls to the STS that are signed.
    pub transport: Arc<dyn Transport>,
    /// The address of the STS.
    pub sts: String,
    /// The region of the STS.
    pub region: String,
    /// The address of the instance's metadata.
    pub metadata: String,
    current: Mutex<Option<Fetched>>,
}

#[derive(Clone, Debug)]
struct Fetched {
    credentials: Credentials,
    until: Option<Timestamp>,
}

/// As agents and instances give them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

impl Fetcher {
    /// Nothing is fetched before the first use.
    pub fn new(
        source: Source,
        client: Client,
        transport: Arc<dyn Transport>,
        region: &str,
        sts: String,
    ) -> Self {
        let (region, metadata) = (region.to_owned(), Metadata::ENDPOINT.to_owned());
        Self {
            source,
            client,
            transport,
            sts,
            region,
            metadata,
            current: Mutex::new(None),
        }
    }

    /// Credentials that can be used now.
    pub async fn current(&self) -> Result<Credentials, CallError> {
        let mut current = self.current.lock().await;
        if let Some(fetched) = &*current
            && fetched
                .until
                .is_none_or(|until| Timestamp::now() + MARGIN < until)
        {
            return Ok(fetched.credentials.clone());
        }
        let fetched = self.fetch(&self.source).await?;
        Ok(current.insert(fetched).credentials.clone())
    }

    /// They were not accepted. Says whether others could be.
    pub fn forget(&self) -> bool {
        if let Ok(mut current) = self.current.try_lock() {
            *current = None;
        }
        !matches!(self.source, Source::Fixed(_))
    }

    fn fetch<'a>(&'a self, source: &'a Source) -> BoxFuture<'a, Result<Fetched, CallError>> {
        async move {
            match source {
                Source::Fixed(credentials) => Ok(Fetched {
                    credentials: credentials.clone(),
                    until: None,
                }),
                Source::WebIdentity {
                    token_file,
                    role,
                    session,
                } => {
                    let token = read(token_file).await?;
                    let fields = [("WebIdentityToken", token.expose_secret())];
                    let call = self.assume("AssumeRoleWithWebIdentity", role, session, &fields);
                    of_sts(&self.client.send(call).await?)
                }
                Source::Container {
                    url,
                    token,
                    token_file,
                } => {
                    let token = match token_file {
                        Some(file) => Some(read(file).await?),
                        None => token.clone(),
                    };
                    let call = Call::get("container.credentials", url.as_str());
                    given(&self.client.send(with_token(call, token)).await?.body)
                }
                Source::Instance => {
                    let metadata = Metadata {
                        client: &self.client,
                        endpoint: &self.metadata,
                    };
                    let role = metadata.get("iam/security-credentials/").await?;
                    given(
                        metadata
                            .get(&format!("iam/security-credentials/{role}"))
                            .await?
                            .as_bytes(),
                    )
                }
                Source::Role { role, base } => {
                    let base = self.fetch(base).await?.credentials;
                    let proof = Signed {
                        credentials: base,
                        region: self.region.clone(),
                    };
                    let client = client(Arc::clone(&self.transport), Arc::new(proof));
                    of_sts(
                        &client
                            .send(self.assume("AssumeRole", role, "portico", &[]))
                            .await?,
                    )
                }
            }
        }
        .boxed()
    }

    /// A second time gives other credentials, which does no harm.
    fn assume(
        &self,
        action: &'static str,
        role: &str,
        session: &str,
        more: &[(&str, &str)],
    ) -> Call {
        let version = ("Version", "2011-06-15");
        let fields = [
            ("Action", action),
            version,
            ("RoleArn", role),
            ("RoleSessionName", session),
        ];
        let operation = if more.is_empty() {
            "sts.AssumeRole"
        } else {
            "sts.AssumeRoleWithWebIdentity"
        };
        Call::post(operation, self.sts.as_str())
            .form(fields.into_iter().chain(more.iter().copied()))
            .repeatable()
    }
}

/// For one call to the STS.
fn client(transport: Arc<dyn Transport>, authorize: Arc<dyn Authorize>) -> Client {
    let (pace, metrics) = (Pace::default(), CallMetrics::default());
    Client::new(Setup {
        provider: "aws",
        transport,
        authorize,
        dialect: DIALECT,
        pace,
        metrics,
    })
}

/// Signs with credentials that are at hand.
struct Signed {
    credentials: Credentials,
    region: String,
}

impl Authorize for Signed {
    fn authorize<'a>(
        &'a self,
        request: &'a mut http::Request<bytes::Bytes>,
    ) -> BoxFuture<'a, Result<(), CallError>> {
        let scope = Scope {
            region: &self.region,
            service: "sts",
        };
        sign(request, &self.credentials, scope, Timestamp::now());
        async { Ok(()) }.boxed()
    }
}

fn with_token(call: Call, token: Option<SecretString>) -> Call {
    let value = token.and_then(|token| HeaderValue::from_str(token.expose_secret()).ok());
    match value {
        Some(mut value) => {
            value.set_sensitive(true);
            call.header(AUTHORIZATION, value)
        }
        None => call,
    }
}

async fn read(path: &Path) -> Result<SecretString, CallError> {
    let failed = |error: std::io::Error| missing(format!("{}: {error}", path.display()));
    let text = tokio::fs::read_to_string(path).await.map_err(failed)?;
    Ok(SecretString::from(text.trim()))
}

fn given(body: &[u8]) -> Result<Fetched, CallError> {
    // The error would show a part of them.
    let wrong = || missing("there are none in the answer".to_owned());
    let given: Given = serde_json::from_slice(body).map_err(|_| wrong())?;
    let (secret, token) = (
        SecretString::from(given.secret_access_key),
        Some(SecretString::from(given.token)),
    );
    let until = given.expiration.parse().map_err(|_| wrong())?;
    Ok(Fetched {
        credentials: Credentials {
            key: given.access_key_id,
            secret,
            token,
        },
        until: Some(until),
    })
}

fn of_sts(reply: &Reply) -> Result<Fetched, CallError> {
    let read = |xml: Xml<'_>| {
        let given = xml.find("Credentials")?;
        let token = Some(SecretString::from(given.text("SessionToken")));
        let (key, secret) = (
            given.text("AccessKeyId"),
            SecretString::from(given.text("SecretAccessKey")),
        );
        let until = given.text("Expiration").parse().ok()?;
        Some(Fetched {
            credentials: Credentials { key, secret, token },
            until: Some(until),
        })
    };
    Xml::read(reply, read)?
        .ok_or_else(|| missing("there are none in the answer of the STS".to_owned()))
}

fn missing(problem: String) -> CallError {
    CallError::new("credentials", Problem::Credentials(problem))
}

#[cfg(test)]
mod tests;
