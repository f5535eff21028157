//! Credentials, and the addresses of the other services (Keystone v3): a token and the catalog come
//! in one answer.

use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::{Domain, Global, Login, Named};
use crate::cloud::{Call, CallError, Client, LogIn, Problem, Reply, Token};

const OPERATION: &str = "tokens.create";

/// Where services answer, without the version of their API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub load_balancer: String,
    /// A cloud may have none that is told; then there are no floating IPs.
    pub network: Option<String>,
}

pub(super) struct Keystone {
    pub client: Client,
    pub global: Global,
}

impl LogIn for Keystone {
    type Place = Endpoints;

    fn log_in(&self) -> BoxFuture<'_, Result<(Token, Endpoints), CallError>> {
        let url = format!(
            "{}/v3/auth/tokens",
            self.global
                .auth_url
                .trim_end_matches('/')
                .trim_end_matches("/v3")
        );
        Box::pin(async {
            // A token whose answer was lost expires by itself.
            let reply = self
                .client
                .send(
                    Call::post(OPERATION, url)
                        .json(&body(&self.global))
                        .repeatable(),
                )
                .await?;
            let answer: Answer = reply.json()?;
            Ok((
                token(&reply, &answer.token)?,
                endpoints(&answer.token.catalog, &self.global)?,
            ))
        })
    }
}

#[derive(Debug, Deserialize)]
struct Answer {
    token: Issued,
}

#[derive(Debug, Deserialize)]
struct Issued {
    issued_at: Timestamp,
    expires_at: Timestamp,
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Debug, Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    interface: String,
    region: Option<String>,
    url: String,
}

fn token(reply: &Reply, issued: &Issued) -> Result<Token, CallError> {
    let secret = reply
        .header("x-subject-token")
        .ok_or_else(|| wrong("the answer has no token".to_owned()))?;
    // Both times are the server's, so its clock may be wrong.
    let lifetime = issued.expires_at.duration_since(issued.issued_at);
    Ok(Token {
        secret: SecretString::from(secret),
        lifetime: Duration::try_from(lifetime).unwrap_or_default(),
    })
}

fn endpoints(catalog: &[Service], global: &Global) -> Result<Endpoints, CallError> {
    let is_ours = |endpoint: &&Endpoint| {
        endpoint.interface == global.interface
            && (global.region.is_none() || endpoint.region == global.region)
    };
    let of = |kind: &str| {
        let all = catalog
            .iter()
            .filter(|service| service.kind == kind)
            .flat_map(|service| &service.endpoints);
        all.into_iter()
            .find(is_ours)
            .map(|endpoint| without_version(&endpoint.url))
    };
    let place = global
        .region
        .as_ref()
        .map(|region| format!(" in region {region}"))
        .unwrap_or_default();
    let missing = || {
        wrong(format!(
            "the catalog has no {} endpoint of type load-balancer{place}",
            global.interface
        ))
    };
    Ok(Endpoints {
        load_balancer: of("load-balancer").ok_or_else(missing)?,
        network: of("network"),
    })
}

fn without_version(url: &str) -> String {
    let url = url.trim_end_matches('/');
    url.strip_suffix("/v2.0")
        .or_else(|| url.strip_suffix("/v2"))
        .unwrap_or(url)
        .to_owned()
}

fn wrong(problem: String) -> CallError {
    CallError::new(OPERATION, Problem::Credentials(problem))
}

fn body(global: &Global) -> Value {
    let (method, proof) = match &global.login {
        Login::Password { user, password } => {
            let mut user = named(user);
            user["password"] = password.expose_secret().into();
            ("password", json!({ "user": user }))
        }
        Login::ApplicationCredential { id, secret } => (
            "application_credential",
            json!({"id": id, "secret": secret.expose_secret()}),
        ),
        Login::NamedApplicationCredential { name, user, secret } => {
            let proof =
                json!({"name": name, "user": named(user), "secret": secret.expose_secret()});
            ("application_credential", proof)
        }
    };
    let mut auth = json!({"identity": {"methods": [method], method: proof}});
    // An application credential has its project, and may not be asked for another.
    if let (Login::Password { .. }, Some(project)) = (&global.login, &global.project) {
        auth["scope"] = json!({"project": named(project)});
    }
    json!({ "auth": auth })
}

fn named(named: &Named) -> Value {
    match named {
        Named::Id(id) => json!({ "id": id }),
        Named::Name {
            name,
            domain: Domain::Id(id),
        } => json!({"name": name, "domain": {"id": id}}),
        Named::Name {
            name,
            domain: Domain::Name(domain),
        } => json!({"name": name, "domain": {"name": domain}}),
    }
}

#[cfg(test)]
mod tests;
