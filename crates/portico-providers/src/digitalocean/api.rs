//! The vendor's load balancer, and the calls that are needed, one short method each.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::cloud::{Call, CallError, Client, Dialect, Page, Problem, all_pages, encode, found};

pub(super) const URL: &str = "https://api.digitalocean.com";
/// The most that a page has.
const PER_PAGE: &str = "200";

pub(super) const DIALECT: Dialect = Dialect {
    read: |body| {
        let said: Value = serde_json::from_slice(body).ok()?;
        Some((
            said["id"].as_str()?.to_owned(),
            said["message"].as_str()?.to_owned(),
        ))
    },
    is_throttled: |_, _| false,
};

/// One that exists.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct LoadBalancer {
    pub id: String,
    /// `new`, `active` or `errored`; empty where that has to be looked at.
    pub status: String,
    #[serde(default)]
    pub created_at: String,
    #[serde(default, deserialize_with = "or_default")]
    pub ip: String,
    #[serde(default, deserialize_with = "or_default")]
    pub ipv6: String,
    #[serde(flatten)]
    pub spec: Spec,
}

impl LoadBalancer {
    /// Whether it is as it was seen.
    pub(super) fn is_known(&self) -> bool {
        !self.status.is_empty()
    }

    pub(super) fn distrust(&mut self) {
        self.status.clear();
    }

    /// It has the address that it will have.
    pub(super) fn is_ready(&self) -> bool {
        self.status == "active" && !self.ip.is_empty()
    }
}

impl fmt::Display for LoadBalancer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load balancer {} ({})", self.spec.name, self.id)
    }
}

/// All that a write says. What is `None` is not ours to say: the vendor chooses, and what it chose
/// stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spec {
    pub name: String,
    pub forwarding_rules: BTreeSet<Rule>,
    pub health_check: HealthCheck,
    #[serde(default)]
    pub droplet_ids: BTreeSet<u64>,
    #[serde(default, deserialize_with = "or_default")]
    pub firewall: Firewall,
    #[serde(default, deserialize_with = "or_default")]
    pub sticky_sessions: StickySessions,
    #[serde(default)]
    pub redirect_http_to_https: bool,
    #[serde(default)]
    pub enable_proxy_protocol: bool,
    #[serde(default)]
    pub enable_backend_keepalive: bool,
    #[serde(default)]
    pub disable_lets_encrypt_dns_records: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_idle_timeout_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_unit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cipher_policy: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_stack: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Rule {
    pub entry_protocol: String,
    pub entry_port: u16,
    pub target_protocol: String,
    pub target_port: u16,
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub certificate_id: String,
    #[serde(default)]
    pub tls_passthrough: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HealthCheck {
    pub protocol: String,
    pub port: u16,
    /// Not with TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub check_interval_seconds: u32,
    pub response_timeout_seconds: u32,
    pub unhealthy_threshold: u32,
    pub healthy_threshold: u32,
    /// Whether checks begin with a PROXY header where traffic does. Not in the vendor's
    /// description, so it is sent only where it makes a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<bool>,
}

/// `ip:192.0.2.1` and `cidr:192.0.2.0/24`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Firewall {
    #[serde(default)]
    pub allow: BTreeSet<String>,
    #[serde(default)]
    pub deny: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StickySessions {
    #[serde(rename = "type", default = "none")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_ttl_seconds: Option<u32>,
}

impl Default for StickySessions {
    fn default() -> Self {
        Self {
            kind: none(),
            cookie_name: None,
            cookie_ttl_seconds: None,
        }
    }
}

fn none() -> String {
    "none".to_owned()
}

/// What is null is as if it were not there.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A write says the region too, in another way than answers do.
#[derive(Serialize)]
struct Body<'a> {
    region: &'a str,
    #[serde(flatten)]
    spec: &'a Spec,
}

#[derive(Deserialize)]
struct Certificate {
    id: String,
    name: String,
}

pub(super) struct Api {
    pub client: Client,
    pub url: String,
    pub region: String,
}

impl Api {
    /// All of the account, the oldest first. Others' may be of kinds that are not known here.
    pub(super) async fn balancers(
        &self,
        is_ours: impl Fn(&str) -> bool,
    ) -> Result<Vec<LoadBalancer>, CallError> {
        let all: Vec<Value> = self.list("load_balancers.list", "load_balancers").await?;
        let ours = all
            .into_iter()
            .filter(|balancer| balancer["name"].as_str().is_some_and(&is_ours));
        let mut ours = ours
            .map(|value| decode("load_balancers.list", value))
            .collect::<Result<Vec<LoadBalancer>, _>>()?;
        ours.sort_by(|one, other| (&one.created_at, &one.id).cmp(&(&other.created_at, &other.id)));
        Ok(ours)
    }

    pub(super) async fn balancer(&self, id: &str) -> Result<Option<LoadBalancer>, CallError> {
        let reply = self
            .client
            .send(Call::get("load_balancers.get", self.at(id)))
            .await;
        found(reply)?
            .map(|reply| one("load_balancers.get", reply.json()?))
            .transpose()
    }

    pub(super) async fn create(&self, spec: &Spec) -> Result<LoadBalancer, CallError> {
        let call = Call::post(
            "load_balancers.create",
            format!("{}/v2/load_balancers", self.url),
        );
        let reply = self.client.send(call.json(&self.body(spec))).await?;
        one("load_balancers.create", reply.json()?)
    }

    /// Replaces the whole load balancer.
    pub(super) async fn replace(&self, id: &str, spec: &Spec) -> Result<LoadBalancer, CallError> {
        let call = Call::put("load_balancers.update", self.at(id))
            .json(&self.body(spec))
            .repeatable();
        one(
            "load_balancers.update",
            self.client.send(call).await?.json()?,
        )
    }

    /// What is not there is gone.
    pub(super) async fn delete(&self, id: &str) -> Result<(), CallError> {
        let call = Call::delete("load_balancers.delete", self.at(id)).repeatable();
        found(self.client.send(call).await).map(drop)
    }

    /// The id of the certificate with a name, which is another after each renewal.
    pub(super) async fn certificate(&self, name: &str) -> Result<Option<String>, CallError> {
        let all: Vec<Certificate> = self.list("certificates.list", "certificates").await?;
        Ok(all
            .into_iter()
            .find(|certificate| certificate.name == name)
            .map(|certificate| certificate.id))
    }

    async fn list<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        name: &'static str,
    ) -> Result<Vec<T>, CallError> {
        all_pages(|page: Option<u32>| {
            let number = page.unwrap_or(1);
            let call = Call::get(operation, format!("{}/v2/{name}", self.url));
            let call = call
                .query("page", &number.to_string())
                .query("per_page", PER_PAGE);
            async move {
                let mut answer: Value = self.client.send(call).await?.json()?;
                let next = answer["links"]["pages"]["next"]
                    .is_string()
                    .then_some(number + 1);
                Ok(Page {
                    items: decode(operation, answer[name].take())?,
                    next,
                })
            }
        })
        .await
    }

    fn body<'a>(&'a self, spec: &'a Spec) -> Body<'a> {
        Body {
            region: &self.region,
            spec,
        }
    }

    fn at(&self, id: &str) -> String {
        format!("{}/v2/load_balancers/{}", self.url, encode(id))
    }
}

fn one(operation: &'static str, mut answer: Value) -> Result<LoadBalancer, CallError> {
    decode(operation, answer["load_balancer"].take())
}

fn decode<T: DeserializeOwned>(operation: &'static str, value: Value) -> Result<T, CallError> {
    serde_json::from_value(value).map_err(|error| CallError::new(operation, Problem::Decode(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_with_little_in_them_are_read() {
        let text = json!({"load_balancer": {
            "id": "x", "status": "active", "name": "a", "ip": null, "firewall": null, "sticky_sessions": {}, "tag": "",
            "forwarding_rules": [{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp",
                "target_port": 30080, "certificate_id": null}],
            "health_check": {"protocol": "tcp", "port": 80, "check_interval_seconds": 3, "response_timeout_seconds": 5,
                "unhealthy_threshold": 3, "healthy_threshold": 5},
        }});
        let found = one("load_balancers.get", text).unwrap();
        assert_eq!(
            (found.ip.as_str(), found.spec.firewall),
            ("", Firewall::default())
        );
        assert_eq!(found.spec.sticky_sessions, StickySessions::default());
        assert_eq!(
            (found.spec.size_unit, found.spec.droplet_ids),
            (None, BTreeSet::new())
        );
    }

    #[test]
    fn mistakes_are_told_in_the_vendors_words() {
        let read = (DIALECT.read)(
            br#"{"id": "unprocessable_entity", "message": "no", "request_id": "x"}"#,
        );
        assert_eq!(
            read,
            Some(("unprocessable_entity".to_owned(), "no".to_owned()))
        );
        assert_eq!((DIALECT.read)(b"<html>"), None);
    }
}
