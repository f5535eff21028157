//! The cloud configuration of the provider: where HAProxy listens, how it is reached, what is usual
//! for Services.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portico_model::duration;
use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::desired::Targets;
use crate::{Family, Host, IpMode};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Settings {
    /// Where HAProxy listens, and what is told to clients. Services share them, each with ports of
    /// its own.
    pub addresses: Vec<Address>,
    /// The folder of the configuration and the state. Only Portico writes there.
    pub folder: PathBuf,
    /// `haproxy -S`
    pub master_socket: PathBuf,
    pub program: PathBuf,
    /// Start HAProxy when no process answers at the socket. `false` where systemd or another
    /// program starts it.
    pub run: bool,
    pub targets: Targets,
    #[serde(deserialize_with = "ip_mode")]
    pub ip_mode: IpMode,
    #[serde(deserialize_with = "positive")]
    pub connect_timeout: Duration,
    /// Connections that are idle for this long are ended.
    #[serde(deserialize_with = "positive")]
    pub idle_timeout: Duration,
    /// For connections that HAProxy still has from before a reload.
    #[serde(deserialize_with = "positive")]
    pub drain_timeout: Duration,
    pub health_check: Checks,
    /// More lines of the sections `global` and `defaults`.
    pub global: String,
    pub defaults: String,
}

/// How servers are asked for their health.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Checks {
    #[serde(deserialize_with = "positive")]
    pub interval: Duration,
    #[serde(deserialize_with = "positive")]
    pub timeout: Duration,
    pub rise: u16,
    pub fall: u16,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            folder: "/var/lib/portico/haproxy".into(),
            master_socket: "/run/portico/haproxy.sock".into(),
            program: "haproxy".into(),
            run: true,
            targets: Targets::Nodes,
            ip_mode: IpMode::Proxy,
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(600),
            drain_timeout: Duration::from_secs(3600),
            health_check: Checks::default(),
            global: String::new(),
            defaults: String::new(),
        }
    }
}

/// An address that HAProxy listens at, and the one that clients know, where a router translates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub bind: IpAddr,
    pub publish: Host,
}

impl Address {
    /// A Service with this family can be had here: that of the address clients know.
    pub(super) fn family(&self) -> Family {
        match self.publish {
            Host::Ip(address) => Family::of(address),
            Host::Name(_) => Family::of(self.bind),
        }
    }

    pub(super) fn is(&self, address: IpAddr) -> bool {
        self.bind == address || self.publish == Host::Ip(address)
    }
}

impl Settings {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        settings.check().map(|()| settings)
    }

    fn check(&self) -> Result<(), String> {
        if self.addresses.is_empty() {
            return Err("addresses: name at least one address for HAProxy to listen at".to_owned());
        }
        if self.health_check.rise == 0 || self.health_check.fall == 0 {
            return Err("healthCheck: rise and fall are at least 1".to_owned());
        }
        for (name, path) in [
            ("folder", &self.folder),
            ("masterSocket", &self.master_socket),
        ] {
            if !path.is_absolute() || !path.to_str().is_some_and(is_plain_path) {
                return Err(format!(
                    "{name}: write an absolute path of letters, digits and ./_-"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.folder.join("haproxy.cfg")
    }

    /// What is wanted, to begin with after a restart.
    pub(super) fn table_path(&self) -> PathBuf {
        self.folder.join("table.json")
    }

    /// What HAProxy knew of the health of servers before a reload.
    pub(super) fn state_path(&self) -> PathBuf {
        self.folder.join("servers.state")
    }

    /// Where an earlier worker hands its stick tables to its successor.
    pub(super) fn peers_path(&self) -> PathBuf {
        self.folder.join("peers.sock")
    }

    pub(super) fn pid_path(&self) -> PathBuf {
        self.folder.join("haproxy.pid")
    }
}

/// A path that means in a configuration of HAProxy what it says.
fn is_plain_path(path: &str) -> bool {
    path.chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "./_-".contains(letter))
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Plain(IpAddr),
            Mapped { bind: IpAddr, publish: String },
        }
        let wrong = |_| {
            de::Error::custom(
                "write an address, or `bind: ADDRESS` with `publish: ADDRESS or NAME`",
            )
        };
        match Written::deserialize(deserializer).map_err(wrong)? {
            Written::Plain(address) => Ok(Self {
                bind: address,
                publish: Host::Ip(address),
            }),
            Written::Mapped { bind, publish } => {
                let publish = publish
                    .parse()
                    .map_or_else(|_| Host::Name(publish), Host::Ip);
                Ok(Self { bind, publish })
            }
        }
    }
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let usable = |duration: &Duration| (1..=i32::MAX as u128).contains(&duration.as_millis());
    duration::parse(&text)
        .filter(usable)
        .ok_or_else(|| de::Error::custom(format!("{text:?} is no time, write it as 90s or 10m")))
}

fn ip_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpMode, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "Proxy" => Ok(IpMode::Proxy),
        "VIP" => Ok(IpMode::Vip),
        other => Err(de::Error::custom(format!(
            "ipMode {other:?} is not known: use Proxy or VIP"
        ))),
    }
}

impl<'de> Deserialize<'de> for Targets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "targets: {text:?} is not known: use nodes or endpoints"
            ))
        })
    }
}

#[cfg(test)]
mod tests;
