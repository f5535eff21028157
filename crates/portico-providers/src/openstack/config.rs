//! `cloud.conf`, as the cloud controller of OpenStack reads it: credentials (`[Global]`), what load
//! balancers are like (`[LoadBalancer]`), and named choices of networks (`[LoadBalancerClass
//! "name"]`). Sections of other controllers are left alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use tracing::warn;

use crate::cloud::{Ini, IniError, Section};

/// What the file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the cloud is, and the credentials.
    pub global: Global,
    /// What load balancers are like.
    pub balancers: Balancers,
    /// By name, in lower case.
    pub classes: BTreeMap<String, Networks>,
}

#[derive(Clone, Debug)]
pub struct Global {
    pub auth_url: String,
    pub login: Login,
    /// Not needed by an application credential, which has its project.
    pub project: Option<Named>,
    pub region: Option<String>,
    /// `public`, `internal` or `admin`
    pub interface: String,
    pub ca_file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub enum Login {
    Password {
        user: Named,
        password: SecretString,
    },
    ApplicationCredential {
        id: String,
        secret: SecretString,
    },
    NamedApplicationCredential {
        name: String,
        user: Named,
        secret: SecretString,
    },
}

/// By id, or by a name within a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    Id(String),
    Name { name: String, domain: Domain },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    Id(String),
    Name(String),
}

/// `[LoadBalancer]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancers {
    pub networks: Networks,
    pub method: Option<String>,
    /// Octavia's driver; its default if none.
    pub provider: Option<String>,
    pub internal: bool,
    pub flavor: Option<String>,
    pub availability_zone: Option<String>,
    pub tls_container: Option<String>,
    /// The driver cannot be given everything at once.
    pub serial: bool,
    pub monitor: bool,
    pub monitor_times: MonitorTimes,
}

/// Where addresses come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    pub subnet: Option<String>,
    pub network: Option<String>,
    pub member_subnet: Option<String>,
    pub floating_network: Option<String>,
    pub floating_subnet: Option<String>,
}

/// Seconds, and how many answers in a row make a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorTimes {
    pub delay: u32,
    pub timeout: u32,
    pub up_after: u32,
    pub down_after: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Ini(#[from] IniError),
    #[error("[{0}] needs {1}")]
    Missing(&'static str, &'static str),
}

const NETWORK_KEYS: [&str; 5] = [
    "subnet-id",
    "network-id",
    "member-subnet-id",
    "floating-network-id",
    "floating-subnet-id",
];

/// What upstream has them for is done always, never, or otherwise.
const WITHOUT_EFFECT: [&str; 7] = [
    "lb-version",
    "use-octavia",
    "cascade-delete",
    "max-shared-lb",
    "container-store",
    "enable-ingress-hostname",
    "ingress-hostname-suffix",
];

impl Config {
    /// Reads the text of the file; a key that is not known is an error.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let ini = Ini::parse(text)?;
        let mut classes = BTreeMap::new();
        for name in ini.section_names() {
            let Some(class) = name
                .strip_prefix("loadbalancerclass \"")
                .and_then(|name| name.strip_suffix('"'))
            else {
                continue;
            };
            let section = ini.section(name);
            section.only(&NETWORK_KEYS)?;
            classes.insert(class.to_lowercase(), networks(&section));
        }
        Ok(Self {
            global: global(&ini.section("global"))?,
            balancers: balancers(&ini.section("loadbalancer"))?,
            classes,
        })
    }
}

fn global(section: &Section) -> Result<Global, ConfigError> {
    section.only(&[
        "auth-url",
        "user-id",
        "username",
        "password",
        "tenant-id",
        "tenant-name",
        "domain-id",
        "domain-name",
        "tenant-domain-id",
        "tenant-domain-name",
        "user-domain-id",
        "user-domain-name",
        "region",
        "os-endpoint-type",
        "ca-file",
        "application-credential-id",
        "application-credential-name",
        "application-credential-secret",
    ])?;
    let interface = section
        .get("os-endpoint-type")
        .unwrap_or("public")
        .trim_end_matches("URL")
        .to_owned();
    if !["public", "internal", "admin"].contains(&interface.as_str()) {
        return Err(section
            .wrong("os-endpoint-type", "is not public, internal or admin")
            .into());
    }
    Ok(Global {
        auth_url: section
            .get("auth-url")
            .ok_or(ConfigError::Missing("Global", "auth-url"))?
            .to_owned(),
        login: login(section)?,
        project: named(section, "tenant-id", "tenant-name", "tenant")?,
        region: text(section, "region"),
        interface,
        ca_file: section.get("ca-file").map(PathBuf::from),
    })
}

fn login(section: &Section) -> Result<Login, ConfigError> {
    let secret = |key| section.get(key).map(SecretString::from);
    let user = || {
        let user = named(section, "user-id", "username", "user")?;
        user.ok_or(ConfigError::Missing(
            "Global",
            "username or user-id, or an application credential",
        ))
    };
    if let Some(secret) = secret("application-credential-secret") {
        return match (
            text(section, "application-credential-id"),
            text(section, "application-credential-name"),
        ) {
            (Some(id), _) => Ok(Login::ApplicationCredential { id, secret }),
            (None, Some(name)) => Ok(Login::NamedApplicationCredential {
                name,
                user: user()?,
                secret,
            }),
            (None, None) => Err(ConfigError::Missing(
                "Global",
                "application-credential-id or application-credential-name",
            )),
        };
    }
    let password = secret("password");
    Ok(Login::Password {
        user: user()?,
        password: password.ok_or(ConfigError::Missing("Global", "password"))?,
    })
}

/// A name is one of a domain: its own, that of both user and project, or the one that every cloud
/// has.
fn named(
    section: &Section,
    id: &str,
    name: &str,
    kind: &str,
) -> Result<Option<Named>, ConfigError> {
    if let Some(id) = text(section, id) {
        return Ok(Some(Named::Id(id)));
    }
    let get = |key: String| text(section, &key);
    let ids = get(format!("{kind}-domain-id"))
        .or_else(|| get("domain-id".to_owned()))
        .map(Domain::Id);
    let names = get(format!("{kind}-domain-name"))
        .or_else(|| get("domain-name".to_owned()))
        .map(Domain::Name);
    let domain = ids
        .or(names)
        .unwrap_or_else(|| Domain::Id("default".to_owned()));
    Ok(text(section, name).map(|name| Named::Name { name, domain }))
}

fn balancers(section: &Section) -> Result<Balancers, ConfigError> {
    let mut known = vec![
        "lb-method",
        "lb-provider",
        "internal-lb",
        "flavor-id",
        "availability-zone",
        "default-tls-container-ref",
        "provider-requires-serial-api-calls",
        "create-monitor",
        "monitor-delay",
        "monitor-timeout",
        "monitor-max-retries",
        "monitor-max-retries-down",
    ];
    known.extend(NETWORK_KEYS);
    known.extend(WITHOUT_EFFECT);
    section.only(&known)?;
    for key in WITHOUT_EFFECT
        .iter()
        .filter(|key| section.get(key).is_some())
    {
        warn!(key, "this key of [LoadBalancer] has no effect");
    }
    Ok(Balancers {
        networks: networks(section),
        method: text(section, "lb-method"),
        provider: text(section, "lb-provider"),
        internal: section.bool("internal-lb")?.unwrap_or(false),
        flavor: text(section, "flavor-id"),
        availability_zone: text(section, "availability-zone"),
        tls_container: text(section, "default-tls-container-ref"),
        serial: section
            .bool("provider-requires-serial-api-calls")?
            .unwrap_or(false),
        monitor: section.bool("create-monitor")?.unwrap_or(true),
        monitor_times: MonitorTimes {
            delay: seconds(section, "monitor-delay")?.unwrap_or(5),
            timeout: seconds(section, "monitor-timeout")?.unwrap_or(3),
            up_after: section.number("monitor-max-retries")?.unwrap_or(1),
            down_after: section.number("monitor-max-retries-down")?.unwrap_or(3),
        },
    })
}

fn networks(section: &Section) -> Networks {
    Networks {
        subnet: text(section, "subnet-id"),
        network: text(section, "network-id"),
        member_subnet: text(section, "member-subnet-id"),
        floating_network: text(section, "floating-network-id"),
        floating_subnet: text(section, "floating-subnet-id"),
    }
}

/// `5`, `5s` or `1m`
fn seconds(section: &Section, key: &str) -> Result<Option<u32>, IniError> {
    let Some(value) = section.get(key) else {
        return Ok(None);
    };
    let (number, unit) = match value.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (value.trim_end_matches('s'), 1),
    };
    let number: Option<u32> = number.trim().parse().ok();
    let seconds = number.and_then(|number| number.checked_mul(unit));
    seconds
        .map(Some)
        .ok_or_else(|| section.wrong(key, "is not a time such as 5s or 1m"))
}

fn text(section: &Section, key: &str) -> Option<String> {
    section.get(key).map(str::to_owned)
}

#[cfg(test)]
mod tests;
