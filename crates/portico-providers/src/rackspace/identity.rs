//! Credentials, and the address of the load balancers' API (Identity v2.0): an API key becomes a
//! token, which comes with the catalog.

use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use super::config::Config;
use crate::cloud::{Call, CallError, Client, LogIn, Problem, Token, secret};

const OPERATION: &str = "tokens.create";
/// In catalogs.
const NAME: &str = "cloudLoadBalancers";
const KIND: &str = "rax:load-balancer";

pub(super) struct Identity {
    pub client: Client,
    pub config: Config,
}

impl LogIn for Identity {
    /// The address of the load balancers' API, with the account.
    type Place = String;

    fn log_in(&self) -> BoxFuture<'_, Result<(Token, String), CallError>> {
        let Config {
            auth_url,
            username,
            api_key,
            region,
            ..
        } = &self.config;
        let credentials = json!({"username": username, "apiKey": api_key.expose_secret()});
        let body = json!({"auth": {"RAX-KSKEY:apiKeyCredentials": credentials}});
        // A token whose answer was lost expires by itself.
        let call = Call::post(OPERATION, format!("{auth_url}/v2.0/tokens"))
            .json(&body)
            .repeatable();
        Box::pin(async move {
            let Answer { access } = self.client.send(call).await?.json()?;
            let lifetime = access.token.expires.duration_since(Timestamp::now());
            let lifetime = Duration::try_from(lifetime).unwrap_or_default();
            Ok((
                Token {
                    secret: access.token.id,
                    lifetime,
                },
                endpoint(&access.service_catalog, region)?,
            ))
        })
    }
}

#[derive(Debug, Deserialize)]
struct Answer {
    access: Access,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Access {
    token: Issued,
    #[serde(default)]
    service_catalog: Vec<Service>,
}

#[derive(Debug, Deserialize)]
struct Issued {
    #[serde(deserialize_with = "secret")]
    id: SecretString,
    expires: Timestamp,
}

#[derive(Debug, Deserialize)]
struct Service {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    endpoints: Vec<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    region: Option<String>,
    #[serde(rename = "publicURL")]
    public_url: String,
}

fn endpoint(catalog: &[Service], region: &str) -> Result<String, CallError> {
    let service = catalog
        .iter()
        .find(|service| service.name == NAME && service.kind == KIND);
    let endpoints = service
        .map(|service| service.endpoints.as_slice())
        .unwrap_or_default();
    let of_region = |endpoint: &&Endpoint| endpoint.region.as_deref() == Some(region);
    match endpoints.iter().find(of_region) {
        Some(endpoint) => Ok(endpoint.public_url.trim_end_matches('/').to_owned()),
        None => {
            let regions: Vec<&str> = endpoints
                .iter()
                .filter_map(|endpoint| endpoint.region.as_deref())
                .collect();
            let known = regions.join(", ");
            let problem =
                format!("the catalog has no {KIND} in region {region:?}: use one of {known}");
            Err(CallError::new(OPERATION, Problem::Credentials(problem)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_that_of_the_service_in_the_region() {
        let endpoint =
            |region: &str, url: &str| json!({"region": region, "publicURL": url, "tenantId": "1"});
        let catalog = json!([
            {"name": "cloudDNS", "type": "rax:dns", "endpoints": [{"publicURL": "https://dns/v1.0/1"}]},
            {"name": "cloudLoadBalancerControl", "type": KIND, "endpoints": [endpoint("ORD", "https://control")]},
            {"name": NAME, "type": KIND, "endpoints": [endpoint("DFW", "https://d/v1.0/1"), endpoint("ORD", "https://o/v1.0/1/")]},
        ]);
        let catalog: Vec<Service> = serde_json::from_value(catalog).unwrap();
        assert_eq!(
            super::endpoint(&catalog, "ORD").unwrap(),
            "https://o/v1.0/1"
        );
        let error = super::endpoint(&catalog, "LON").unwrap_err().to_string();
        assert!(
            error.ends_with(
                "the catalog has no rax:load-balancer in region \"LON\": use one of DFW, ORD"
            ),
            "{error}"
        );
    }
}
