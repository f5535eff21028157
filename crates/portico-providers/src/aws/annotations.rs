//! What Services say to this provider alone. Pure.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::wanted::{Check, refused};
use crate::{ProviderError, Request};

/// The only attribute of balancers that both kinds have, by its name with Network Load Balancers.
pub(super) const CROSS_ZONE: &str = "load_balancing.cross_zone.enabled";
const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Network,
    Classic,
}

impl Kind {
    /// What the Service asks for, if that is known.
    pub(super) fn of(request: &Request) -> Result<Option<Self>, ProviderError> {
        match get(request, "type") {
            None => Ok(None),
            Some("nlb") => Ok(Some(Self::Network)),
            Some("classic" | "clb" | "elb") => Ok(Some(Self::Classic)),
            Some("nlb-ip" | "external") => Err(ProviderError::Elsewhere),
            Some(other) => refused(
                "BadAnnotation",
                format!("{PREFIX}type: {other:?} is none of nlb, classic, external"),
            ),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Classic => "classic",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Network => Self::Classic,
            Self::Classic => Self::Network,
        }
    }
}

/// All but the kind, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Annotations {
    pub internal: bool,
    pub subnets: Vec<String>,
    pub addresses: Vec<String>,
    pub proxy_protocol: bool,
    /// Attributes of the balancer, by the vendor's names.
    pub settings: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    /// Without port and path.
    pub check: Check,
}

impl Annotations {
    pub(super) fn of(request: &Request) -> Result<Self, ProviderError> {
        let annotations = Self {
            internal: get(request, "internal").is_some_and(|value| value != "false"),
            subnets: list(request, "subnets"),
            addresses: list(request, "eip-allocations"),
            proxy_protocol: proxy_protocol(request)?,
            settings: settings(request)?,
            tags: tags(request),
            check: check(request)?,
        };
        if annotations.internal && !annotations.addresses.is_empty() {
            let message = format!(
                "{PREFIX}eip-allocations: an internal load balancer has no public addresses"
            );
            return refused("BadAnnotation", message);
        }
        Ok(annotations)
    }
}

fn get<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let value = request
        .annotations
        .get(&format!("{PREFIX}{name}"))
        .map(|value| value.trim());
    value.filter(|value| !value.is_empty())
}

fn list(request: &Request, name: &str) -> Vec<String> {
    let values = get(request, name)
        .unwrap_or_default()
        .split(',')
        .map(str::trim);
    values
        .filter(|value| !value.is_empty())
        .map(str::to_owned)
        .collect()
}

fn proxy_protocol(request: &Request) -> Result<bool, ProviderError> {
    match get(request, "proxy-protocol") {
        None => Ok(false),
        Some("*") => Ok(true),
        Some(other) => refused(
            "BadAnnotation",
            format!("{PREFIX}proxy-protocol: {other:?} is not \"*\" (all ports)"),
        ),
    }
}

/// `key=value,key=value`
fn tags(request: &Request) -> BTreeMap<String, String> {
    let pairs = list(request, "additional-resource-tags");
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        (key.trim().to_owned(), value.trim().to_owned())
    };
    pairs.iter().map(pair).collect()
}

fn number(
    request: &Request,
    name: &str,
    range: RangeInclusive<u32>,
) -> Result<Option<u32>, ProviderError> {
    let Some(text) = get(request, name) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => {
            let bounds = format!("is not a number from {} to {}", range.start(), range.end());
            refused(
                "BadAnnotation",
                format!("{PREFIX}{name}: {text:?} {bounds}"),
            )
        }
    }
}

fn settings(request: &Request) -> Result<BTreeMap<String, String>, ProviderError> {
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: String| _ = settings.insert(name.to_owned(), value);
    let is_true = |name| get(request, name).is_some_and(|value| value == "true");
    if is_true("cross-zone-load-balancing-enabled") {
        set(CROSS_ZONE, "true".to_owned());
    }
    if is_true("connection-draining-enabled") {
        let seconds = number(request, "connection-draining-timeout", 1..=3600)?.unwrap_or(300);
        set("connection_draining.timeout", seconds.to_string());
    }
    if let Some(seconds) = number(request, "connection-idle-timeout", 1..=4000)? {
        set("idle_timeout", seconds.to_string());
    }
    Ok(settings)
}

/// Bounds are the narrower ones of both kinds.
fn check(request: &Request) -> Result<Check, ProviderError> {
    let interval = number(request, "healthcheck-interval", 5..=300)?.unwrap_or(10);
    let timeout =
        number(request, "healthcheck-timeout", 2..=60)?.unwrap_or_else(|| 5.min(interval - 1));
    if timeout >= interval {
        return refused(
            "BadAnnotation",
            format!("{PREFIX}healthcheck-timeout: {timeout} is not less than the interval"),
        );
    }
    let healthy = number(request, "healthcheck-healthy-threshold", 2..=10)?.unwrap_or(2);
    let unhealthy = number(request, "healthcheck-unhealthy-threshold", 2..=10)?.unwrap_or(2);
    Ok(Check {
        interval,
        timeout,
        healthy,
        unhealthy,
        ..Check::default()
    })
}
