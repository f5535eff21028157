//! What a Service's annotations say about its load balancer, parsed once. They are those of
//! DigitalOcean's own cloud controller. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::api::{HealthCheck, StickySessions};
use crate::cloud::{Annotations, refused};
use crate::{Protocol, ProviderError, Request};

pub(super) const PREFIX: &str = "service.beta.kubernetes.io/do-loadbalancer-";
/// `true`: this program leaves the load balancer alone, even one that it made.
pub(super) const DISOWN: &str = "service.kubernetes.io/do-loadbalancer-disown";
/// Where TLS is, if nothing says so.
const SECURE_PORT: u16 = 443;
const REGIONAL: &str = "REGIONAL";
pub(super) const NETWORK: &str = "REGIONAL_NETWORK";
pub(super) const INTERNAL: &str = "INTERNAL";
/// Longer names are refused, with room for the part that says whose it is.
const LONGEST_NAME: usize = 220;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// What the load balancer's name begins with.
    pub name: Option<String>,
    /// The vendor's word, for TCP ports that are not in `protocols`.
    pub protocol: String,
    pub protocols: BTreeMap<u16, &'static str>,
    pub http3: Option<u16>,
    pub passthrough: bool,
    pub certificate: Option<Certificate>,
    /// For the status, in place of addresses.
    pub hostname: Option<String>,
    pub size_unit: Option<u32>,
    pub sticky: StickySessions,
    pub redirect: bool,
    pub proxy: bool,
    pub keepalive: bool,
    pub no_dns_records: bool,
    pub idle_timeout: Option<u32>,
    pub allow: BTreeSet<String>,
    pub deny: BTreeSet<String>,
    pub kind: Option<String>,
    pub network: Option<String>,
    /// Complete but for where to ask, unless the Service says that too.
    pub check: HealthCheck,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Certificate {
    Id(String),
    Name(String),
}

impl Options {
    pub(super) fn of(request: &Request) -> Result<Self, ProviderError> {
        if is_disowned(request)? {
            return Err(ProviderError::Elsewhere);
        }
        let said = Annotations {
            request,
            prefix: PREFIX,
        };
        let flag = |name| said.bool(name).map(|value| value.unwrap_or(false));
        let named = said.text("certificate-name").map(Certificate::Name);
        let certificate = said.text("certificate-id").map(Certificate::Id).or(named);
        let options = Self {
            name: name(&said)?,
            protocol: word(&said, "protocol", &["tcp", "http", "https", "http2"])?
                .unwrap_or_else(|| "tcp".to_owned()),
            protocols: protocols(&said, certificate.is_some() || flag("tls-passthrough")?)?,
            http3: said.number("http3-port")?,
            passthrough: flag("tls-passthrough")?,
            certificate,
            hostname: said.text("hostname"),
            size_unit: said.number_in("size-unit", 1..=100)?,
            sticky: sticky(&said)?,
            redirect: flag("redirect-http-to-https")?,
            proxy: flag("enable-proxy-protocol")?,
            keepalive: flag("enable-backend-keepalive")?,
            no_dns_records: flag("disable-lets-encrypt-dns-records")?,
            idle_timeout: said.number_in("http-idle-timeout-seconds", 30..=600)?,
            allow: said.list("allow-rules").into_iter().collect(),
            deny: said.list("deny-rules").into_iter().collect(),
            kind: word(&said, "type", &[REGIONAL, NETWORK])?,
            network: word(&said, "network", &["EXTERNAL", INTERNAL])?,
            check: check(&said)?,
        };
        if options.passthrough && options.certificate.is_some() {
            return Err(refused(
                "InvalidAnnotation",
                "tls-passthrough and a certificate exclude each other",
            ));
        }
        Ok(options)
    }

    /// The kind of one that does not exist yet.
    pub(super) fn new_kind(&self) -> &str {
        self.kind.as_deref().unwrap_or(REGIONAL)
    }
}

pub(super) fn is_disowned(request: &Request) -> Result<bool, ProviderError> {
    Annotations {
        request,
        prefix: "",
    }
    .bool(DISOWN)
    .map(|value| value.unwrap_or(false))
}

fn word(
    said: &Annotations<'_>,
    name: &str,
    words: &[&str],
) -> Result<Option<String>, ProviderError> {
    match said.text(name) {
        Some(value) if !words.contains(&value.as_str()) => {
            Err(said.wrong(name, &value, &format!("is none of {}", words.join(", "))))
        }
        value => Ok(value),
    }
}

fn name(said: &Annotations<'_>) -> Result<Option<String>, ProviderError> {
    let Some(name) = said.text("name") else {
        return Ok(None);
    };
    let fits = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    let begins = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if !begins || !name.chars().all(fits) || name.len() > LONGEST_NAME {
        let problem = format!(
            "is not a name of letters, digits, dots and dashes, with {LONGEST_NAME} at most"
        );
        return Err(said.wrong("name", &name, &problem));
    }
    Ok(Some(name))
}

/// By port. With TLS, the usual port has HTTPS if no list says where it is.
fn protocols(
    said: &Annotations<'_>,
    secure: bool,
) -> Result<BTreeMap<u16, &'static str>, ProviderError> {
    let mut protocols = BTreeMap::new();
    for (name, protocol) in [
        ("http-ports", "http"),
        ("tls-ports", "https"),
        ("http2-ports", "http2"),
    ] {
        for text in said.list(name) {
            let port: u16 = text
                .parse()
                .map_err(|_| said.wrong(name, &text, "is no port"))?;
            if protocols.insert(port, protocol).is_some() {
                return Err(said.wrong(
                    name,
                    &text,
                    "is named by another annotation too, or twice",
                ));
            }
        }
    }
    if secure && said.text("tls-ports").is_none() {
        protocols.entry(SECURE_PORT).or_insert("https");
    }
    Ok(protocols)
}

fn sticky(said: &Annotations<'_>) -> Result<StickySessions, ProviderError> {
    let Some(kind) =
        word(said, "sticky-sessions-type", &["none", "cookies"])?.filter(|kind| kind == "cookies")
    else {
        return Ok(StickySessions::default());
    };
    let missing = |name: &str| {
        refused(
            "InvalidAnnotation",
            format!("sticky sessions need the annotation {PREFIX}{name}"),
        )
    };
    let (name, ttl) = ("sticky-sessions-cookie-name", "sticky-sessions-cookie-ttl");
    Ok(StickySessions {
        kind,
        cookie_name: Some(said.text(name).ok_or_else(|| missing(name))?),
        cookie_ttl_seconds: Some(said.number(ttl)?.ok_or_else(|| missing(ttl))?),
    })
}

/// Port, path and protocol count only where the Service says that it chooses them; a port of 0 is
/// to be found.
fn check(said: &Annotations<'_>) -> Result<HealthCheck, ProviderError> {
    let number = |name: &str, range, usual| {
        said.number_in(name, range)
            .map(|value| value.unwrap_or(usual))
    };
    let mut check = HealthCheck {
        check_interval_seconds: number("healthcheck-check-interval-seconds", 3..=300, 3)?,
        response_timeout_seconds: number("healthcheck-response-timeout-seconds", 3..=300, 5)?,
        unhealthy_threshold: number("healthcheck-unhealthy-threshold", 2..=10, 3)?,
        healthy_threshold: number("healthcheck-healthy-threshold", 2..=10, 5)?,
        ..HealthCheck::default()
    };
    if said
        .request
        .annotations
        .contains_key(&format!("{PREFIX}override-health-check"))
    {
        let protocol = word(said, "healthcheck-protocol", &["tcp", "http", "https"])?;
        check.protocol = protocol.unwrap_or_else(|| "tcp".to_owned());
        check.port = check_port(said)?;
        let path = said
            .text("healthcheck-path")
            .unwrap_or_else(|| "/".to_owned());
        check.path = (check.protocol != "tcp").then_some(path);
    }
    Ok(check)
}

/// The node port of the port that is named, or of the first one that can be asked.
fn check_port(said: &Annotations<'_>) -> Result<u16, ProviderError> {
    let (name, wanted) = ("healthcheck-port", said.number::<u16>("healthcheck-port")?);
    let mut ports = said
        .request
        .ports
        .iter()
        .filter(|port| wanted.is_none_or(|wanted| wanted == port.port));
    let known = ports.clone().next().is_some();
    match (ports.find(|port| port.protocol == Protocol::Tcp), wanted) {
        (Some(port), _) => Ok(port.node_port),
        (None, Some(port)) if known => Err(said.wrong(
            name,
            &port.to_string(),
            "is a UDP port, and checks ask by TCP",
        )),
        (None, Some(port)) => Err(said.wrong(name, &port.to_string(), "is no port of the Service")),
        (None, None) => Err(refused(
            "HealthCheckNotSupported",
            format!(
                "checks ask by TCP, and the Service has UDP alone: take away \
                 {PREFIX}override-health-check"
            ),
        )),
    }
}

#[cfg(test)]
mod tests;
